"""The loops of `fused` on a GPU. No atomics: the same numbers every time."""

import torch
import triton
from torch import Tensor
from triton import language as tl

from wtawp.graphs.kernels_triton import COLUMNS, entries_at_once, sum_row
from wtawp.graphs.operator import Operator
from wtawp.models.dropout_triton import hashed

SLOPE = tl.constexpr(0.2)
LANES = 256  # models x heads x width of one program of `attend`


@triton.jit  # type: ignore[untyped-decorator]
def _propagate(  # type: ignore[no-untyped-def]
    indptr,
    indices,
    values,
    dense,
    bias,
    keys,
    positions,
    out,
    width,
    size,
    threshold,
    x_model,
    x_row,
    x_column,
    scale: tl.constexpr,
    DROP: tl.constexpr,
    COLUMNS: tl.constexpr,
    ENTRIES: tl.constexpr,
):
    i = tl.program_id(0)
    place = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = place < size
    model, column = (place // width).to(tl.int64), place % width
    total = sum_row(indices, values, dense, tl.load(indptr + i), tl.load(indptr + i + 1), model, column, inside,
                    0, x_model, x_row, x_column, ENTRIES)  # fmt: skip
    total = tl.maximum(total + tl.load(bias + place, mask=inside, other=0.0), 0.0)
    if DROP:
        h = hashed(tl.load(positions + i) * width + column, tl.load(keys + model, mask=inside, other=0))
        total = tl.where(h >= threshold, total * scale, 0.0)
    tl.store(out + i.to(tl.int64) * size + place, total, mask=inside)


def propagate(operator: Operator, dense: Tensor, bias: Tensor, keys: Tensor, positions: Tensor, threshold: int,
              scale: float) -> Tensor:  # fmt: skip
    """See `fused.propagate`; in memory the output is [n, b, h]."""
    (batch, _, width), rows = dense.shape, operator.shape[0]
    out = torch.empty(rows, batch, width, dtype=dense.dtype, device=dense.device)
    _propagate[(rows, triton.cdiv(batch * width, COLUMNS))](
        operator.indptr, operator.indices, operator.values, dense, bias.contiguous(), keys.contiguous(),
        positions.contiguous(), out, width, batch * width, threshold, *dense.stride(),
        scale=scale, DROP=threshold > 0, COLUMNS=COLUMNS, ENTRIES=entries_at_once(operator.indptr, operator.indices),
    )  # fmt: skip
    return out.transpose(0, 1)


@triton.jit  # type: ignore[untyped-decorator]
def _lanes(batch, heads, width, MODELS: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """The models, heads and columns of a program, and which of them are there."""
    b = (tl.program_id(1) * MODELS + tl.arange(0, MODELS)).to(tl.int64)[:, None, None]
    h = tl.arange(0, HEADS)[None, :, None]
    k = tl.arange(0, WIDTH)[None, None, :]
    return b, h, k, (b < batch) & (h < heads), (b < batch) & (h < heads) & (k < width)


@triton.jit  # type: ignore[untyped-decorator]
def _attend(  # type: ignore[no-untyped-def]
    indptr,
    indices,
    projected,
    source,
    target,
    keys,
    entries,
    out,
    sums,
    batch,
    rows,
    columns,
    heads,
    width,
    threshold,
    scale: tl.constexpr,
    DROP: tl.constexpr,
    MODELS: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """One row, some models: the softmax is gathered as it goes, with the highest score so far (flash attention)."""
    i = tl.program_id(0).to(tl.int64)
    b, h, k, there, inside = _lanes(batch, heads, width, MODELS, HEADS, WIDTH)
    own = tl.load(target + (b * rows + i) * heads + h, mask=there, other=0.0)
    key = tl.load(keys + b, mask=b < batch, other=0)
    highest = tl.full([MODELS, HEADS, 1], -float("inf"), own.dtype)
    total = tl.zeros([MODELS, HEADS, 1], own.dtype)
    result = tl.zeros([MODELS, HEADS, WIDTH], own.dtype)
    for e in range(tl.load(indptr + i), tl.load(indptr + i + 1)):
        j = tl.load(indices + e).to(tl.int64)
        s = tl.load(source + (b * columns + j) * heads + h, mask=there, other=0.0) + own
        s = tl.maximum(s, s * SLOPE)
        new = tl.maximum(highest, s)
        shrink, weight = tl.exp(highest - new), tl.exp(s - new)
        total = total * shrink + weight
        if DROP:
            kept = hashed(tl.load(entries + e) * heads + h, key) >= threshold
            weight = tl.where(kept, weight * scale, 0.0)
        x = tl.load(projected + ((b * columns + j) * heads + h) * width + k, mask=inside, other=0.0)
        result = result * shrink + weight * x
        highest = new
    tl.store(out + ((b * rows + i) * heads + h) * width + k, result / total, mask=inside)
    tl.store(sums + (b * rows + i) * heads + h, highest + tl.log(total), mask=there)


@triton.jit  # type: ignore[untyped-decorator]
def _attend_back(  # type: ignore[no-untyped-def]
    t_indptr,
    t_indices,
    order,
    projected,
    source,
    target,
    keys,
    entries,
    sums,
    means,
    grad,
    to_projected,
    to_source,
    steps,
    batch,
    rows,
    columns,
    edges,
    heads,
    width,
    threshold,
    scale: tl.constexpr,
    DROP: tl.constexpr,
    MODELS: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """One column, some models: its own gradients, and the scores' for the rows to sum up."""
    j = tl.program_id(0).to(tl.int64)
    b, h, k, there, inside = _lanes(batch, heads, width, MODELS, HEADS, WIDTH)
    own = tl.load(source + (b * columns + j) * heads + h, mask=there, other=0.0)
    x = tl.load(projected + ((b * columns + j) * heads + h) * width + k, mask=inside, other=0.0)
    key = tl.load(keys + b, mask=b < batch, other=0)
    to_x, to_own = tl.zeros([MODELS, HEADS, WIDTH], x.dtype), tl.zeros([MODELS, HEADS, 1], x.dtype)
    for place in range(tl.load(t_indptr + j), tl.load(t_indptr + j + 1)):
        i, e = tl.load(t_indices + place).to(tl.int64), tl.load(order + place)
        at = (b * rows + i) * heads + h
        raw = tl.load(target + at, mask=there, other=0.0) + own
        weight = tl.exp(tl.maximum(raw, raw * SLOPE) - tl.load(sums + at, mask=there, other=0.0))
        factor = tl.full([MODELS, HEADS, 1], 1.0, x.dtype)
        if DROP:
            kept = hashed(tl.load(entries + e) * heads + h, key) >= threshold
            factor = tl.where(kept, factor * scale, 0.0)
        g = tl.load(grad + at * width + k, mask=inside, other=0.0)
        to_x += weight * factor * g
        dot = tl.sum(g * x, axis=2, keep_dims=True)
        step = weight * (factor * dot - tl.load(means + at, mask=there, other=0.0))
        step = tl.where(raw > 0, step, step * SLOPE)
        to_own += step
        tl.store(steps + (b * edges + e) * heads + h, step, mask=there)
    tl.store(to_projected + ((b * columns + j) * heads + h) * width + k, to_x, mask=inside)
    tl.store(to_source + (b * columns + j) * heads + h, to_own, mask=there)


@triton.jit  # type: ignore[untyped-decorator]
def _row_sums(indptr, steps, out, batch, rows, edges, heads, MODELS: tl.constexpr, HEADS: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0).to(tl.int64)
    b = (tl.program_id(1) * MODELS + tl.arange(0, MODELS)).to(tl.int64)[:, None]
    h = tl.arange(0, HEADS)[None, :]
    there = (b < batch) & (h < heads)
    total = tl.zeros([MODELS, HEADS], out.dtype.element_ty)
    for e in range(tl.load(indptr + i), tl.load(indptr + i + 1)):
        total += tl.load(steps + (b * edges + e) * heads + h, mask=there, other=0.0)
    tl.store(out + (b * rows + i) * heads + h, total, mask=there)


def _blocks(heads: int, width: int, batch: int) -> dict[str, int]:
    head_block, width_block = triton.next_power_of_2(heads), triton.next_power_of_2(width)
    models = max(1, min(LANES // (head_block * width_block), triton.next_power_of_2(batch)))
    return {"MODELS": models, "HEADS": head_block, "WIDTH": width_block}


def attend(operator: Operator, projected: Tensor, source: Tensor, target: Tensor, keys: Tensor, entries: Tensor,
           threshold: int, scale: float) -> tuple[Tensor, Tensor]:  # fmt: skip
    """See `fused.attend`; beside the output the logarithm of every softmax's denominator, [b, n, heads]."""
    (batch, columns, heads, width), rows = projected.shape, operator.shape[0]
    out = projected.new_empty(batch, rows, heads, width)
    sums = projected.new_empty(batch, rows, heads)
    blocks = _blocks(heads, width, batch)
    _attend[(rows, triton.cdiv(batch, blocks["MODELS"]))](
        operator.indptr, operator.indices, projected.contiguous(), source.contiguous(), target.contiguous(),
        keys.contiguous(), entries.contiguous(), out, sums, batch, rows, columns, heads, width, threshold,
        scale=scale, DROP=threshold > 0, **blocks,
    )  # fmt: skip
    return out, sums


def attend_back(operator: Operator, projected: Tensor, source: Tensor, target: Tensor, keys: Tensor, entries: Tensor,
                threshold: int, scale: float, out: Tensor, sums: Tensor,
                grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of `attend` for projected, source and target."""
    (batch, columns, heads, width), rows, edges = projected.shape, operator.shape[0], len(operator.indices)
    means = (grad * out).sum(-1)
    to_projected, to_source = projected.new_empty(projected.shape), projected.new_empty(batch, columns, heads)
    to_target, steps = projected.new_empty(batch, rows, heads), projected.new_empty(batch, edges, heads)
    blocks = _blocks(heads, width, batch)
    _attend_back[(columns, triton.cdiv(batch, blocks["MODELS"]))](
        operator.t_indptr, operator.t_indices, operator.order, projected.contiguous(), source.contiguous(),
        target.contiguous(), keys.contiguous(), entries.contiguous(), sums, means.contiguous(), grad.contiguous(),
        to_projected, to_source, steps, batch, rows, columns, edges, heads, width, threshold,
        scale=scale, DROP=threshold > 0, **blocks,
    )  # fmt: skip
    models = min(32, triton.next_power_of_2(batch))
    _row_sums[(rows, triton.cdiv(batch, models))](
        operator.indptr, steps, to_target, batch, rows, edges, heads, MODELS=models, HEADS=blocks["HEADS"]
    )
    return to_projected, to_source, to_target
