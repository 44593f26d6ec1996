"""The loop of `dropout_kernels` on a GPU."""

import torch
import triton
from torch import Tensor
from triton import language as tl

BLOCK = 1024


@triton.jit
def hashed(place, key):  # type: ignore[no-untyped-def]
    """Hash a position and a key to 32 bits; both are 64 bits wide and truncated explicitly."""
    h = (place * 0x9E3779B1 + (key & 0xFFFFFFFF)) & 0xFFFFFFFF
    h = ((h ^ (h >> 16)) * 0x21F0AAAD + ((key >> 32) & 0xFFFFFFFF)) & 0xFFFFFFFF
    h = ((h ^ (h >> 15)) * 0x735A2D97) & 0xFFFFFFFF
    return h ^ (h >> 15)


@triton.jit  # type: ignore[untyped-decorator]
def _kernel(x, keys, positions, out, rows, width, shared, threshold, scale: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    b = tl.program_id(1)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    size = rows * width
    inside = place < size
    row = place // width
    column = place - row * width
    h = hashed(tl.load(positions + row, mask=inside, other=0) * width + column, tl.load(keys + b))
    base = b.to(tl.int64) * size
    value = tl.load(x + base * (1 - shared) + place, mask=inside, other=0.0)
    tl.store(out + base + place, tl.where(h >= threshold, value * scale, 0.0).to(value.dtype), mask=inside)


def apply(x: Tensor, keys: Tensor, positions: Tensor, threshold: int, scale: float) -> Tensor:
    """See `dropout_kernels.apply`."""
    rows, width = x.shape[1:]
    out = torch.empty(len(keys), rows, width, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(rows * width, BLOCK), len(keys))
    shared = int(len(x) == 1)
    _kernel[grid](
        x.contiguous(),
        keys.contiguous(),
        positions.contiguous(),
        out,
        rows,
        width,
        shared,
        threshold,
        scale=scale,
        BLOCK=BLOCK,
    )
    return out
