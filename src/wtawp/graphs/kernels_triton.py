"""Sparse times dense for a stack of models on a GPU. No atomics: the same numbers every time.

A program sums one row for a few hundred columns, the models' columns lying side by side. The output lies in memory
as [n, b, h], so that a matrix shared by all models multiplies the whole stack as one; callers see [b, n, h].
"""

import torch
import triton
from torch import Tensor
from triton import language as tl

COLUMNS = 512  # of one program


def entries_at_once(indptr: Tensor, indices: Tensor) -> int:
    """How many entries of a row a program loads in one step; many keep more loads in flight if rows are long."""
    return 4 if len(indices) > 8 * len(indptr) else 1


@triton.jit  # type: ignore[untyped-decorator]
def sum_row(  # type: ignore[no-untyped-def]
    indices, values, dense, start, end, model, column, inside, v_model, x_model, x_row, x_column, ENTRIES: tl.constexpr
):
    """The sum of values[e] * dense[indices[e]] over a row's entries, at the columns given by (model, column)."""
    total = (
        tl.zeros_like(inside).to(tl.float32)
        if dense.dtype.element_ty != tl.float64
        else tl.zeros_like(inside).to(tl.float64)
    )
    for first in range(start, end, ENTRIES):
        entry = first + tl.arange(0, ENTRIES)
        here = entry < end
        row = tl.load(indices + entry, mask=here, other=0).to(tl.int64)
        both = here[:, None] & inside[None, :]
        v = tl.load(values + entry[:, None] + (model * v_model)[None, :], mask=both, other=0.0)
        x = tl.load(
            dense + (row * x_row)[:, None] + (model * x_model + column * x_column)[None, :], mask=both, other=0.0
        )
        total += tl.sum(v * x, axis=0)
    return total


@triton.jit  # type: ignore[untyped-decorator]
def _multiply(  # type: ignore[no-untyped-def]
    indptr,
    indices,
    values,
    dense,
    out,
    width,
    size,
    v_model,
    x_model,
    x_row,
    x_column,
    COLUMNS: tl.constexpr,
    ENTRIES: tl.constexpr,
):
    i = tl.program_id(0)
    place = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = place < size
    model, column = (place // width).to(tl.int64), place % width
    total = sum_row(indices, values, dense, tl.load(indptr + i), tl.load(indptr + i + 1), model, column, inside,
                    v_model, x_model, x_row, x_column, ENTRIES)  # fmt: skip
    tl.store(out + i.to(tl.int64) * size + place, total, mask=inside)


def multiply(indptr: Tensor, indices: Tensor, values: Tensor, dense: Tensor) -> Tensor:
    """See `kernels.multiply`."""
    batch, rows, width = max(len(values), len(dense)), len(indptr) - 1, dense.shape[2]
    out = torch.empty(rows, batch, width, dtype=dense.dtype, device=dense.device)
    size, values = batch * width, values.contiguous()  # a row's entries are read one after another
    v_model = values.stride(0) if len(values) > 1 else 0
    x_model = dense.stride(0) if len(dense) > 1 else 0
    if out.numel():
        _multiply[(rows, triton.cdiv(size, COLUMNS))](
            indptr, indices, values, dense, out, width, size, v_model, x_model, dense.stride(1), dense.stride(2),
            COLUMNS=COLUMNS, ENTRIES=entries_at_once(indptr, indices),
        )  # fmt: skip
    return out.transpose(0, 1)
