"""x * mask / (1 - p) for a stack of models, where the mask is a hash of (key, row * width + column).

Three implementations of one function: torch (everywhere), numba (CPU, extra `fast`), Triton (CUDA, if installed).
"""

from importlib.util import find_spec

import torch
from torch import Tensor

M1, M2 = 0x21F0AAAD, 0x735A2D97
HAS_NUMBA = find_spec("numba") is not None
HAS_TRITON = find_spec("triton") is not None

if HAS_NUMBA:
    from wtawp.models import dropout_numba
if HAS_TRITON:
    from wtawp.models import dropout_triton


def limits(p: float) -> tuple[int, float]:
    """Return the hash below which a unit is dropped, and the factor of the units that remain."""
    return min(int(p * 2**32), 2**32 - 1), 1 / (1 - p)


def apply(x: Tensor, keys: Tensor, positions: Tensor, p: float, *, compiled: bool = True) -> Tensor:
    """Drop units of a stack of models: x [b or 1, n, h], keys [b], positions [n] -> [b, n, h]."""
    threshold, scale = limits(p)
    if compiled and HAS_NUMBA and x.device.type == "cpu":
        out = torch.empty(len(keys), *x.shape[1:], dtype=x.dtype)
        x, keys, positions = x.detach().contiguous(), keys.contiguous(), positions.contiguous()
        factor = torch.tensor([scale], dtype=x.dtype).numpy()
        dropout_numba.apply(x.numpy(), keys.numpy(), positions.numpy(), threshold, factor, out.numpy())
        return out
    if compiled and HAS_TRITON and x.device.type == "cuda":
        return dropout_triton.apply(x, keys, positions, threshold, scale)
    place = positions[:, None] * x.shape[2] + torch.arange(x.shape[2], device=x.device)  # [n, h]
    kept = hashed(place, keys[:, None, None]) >= threshold
    return torch.where(kept, x * scale, 0.0)


def hashed(place: Tensor, key: Tensor) -> Tensor:
    """Hash a position and a 64-bit key to 32 bits: a multiplicative hash that mixes in both halves of the key."""
    low, high = key & 0xFFFFFFFF, (key >> 32) & 0xFFFFFFFF
    h = (place * 0x9E3779B1 + low) & 0xFFFFFFFF
    h = ((h ^ (h >> 16)) * M1 + high) & 0xFFFFFFFF
    h = ((h ^ (h >> 15)) * M2) & 0xFFFFFFFF
    return h ^ (h >> 15)
