"""The two steps that take most of the time of a training, each fused into one pass over memory.

`propagate` is the hidden layer of a GCN after its matrix product; `attend` is the attention of a GAT. Both take a
stack of models as leading dimension, draw their masks as `dropout` does, and can be differentiated twice. They are
compiled by numba on the CPU and by Triton on a GPU; without a compiler, torch operations give the same numbers.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.nn import functional as F

from wtawp.graphs.autograd_calls import call_function
from wtawp.graphs.kernels import is_differentiated
from wtawp.graphs.operator import Operator
from wtawp.graphs.products import spmm
from wtawp.models import dropout_kernels
from wtawp.models.dropout import dropout, next_key
from wtawp.models.dropout_kernels import HAS_NUMBA, HAS_TRITON, limits

if HAS_NUMBA:
    from wtawp.models import fused_numba
if HAS_TRITON:
    from wtawp.models import fused_triton

SLOPE = 0.2


def is_compiled(device: torch.device) -> bool:
    """Tell whether there is a compiled kernel for this device."""
    return (device.type == "cpu" and HAS_NUMBA) or (device.type == "cuda" and HAS_TRITON)


def propagate(
    operator: Operator, dense: Tensor, bias: Tensor, *, p: float, training: bool, positions: Tensor | None = None
) -> Tensor:  # [n, m], [..., m, h], [..., h] -> [..., n, h]
    """Compute dropout(relu(A H + b)).

    Args:
        operator: A, [n, m].
        dense: H, [..., m, h].
        bias: b, [..., h].
        p: Probability of dropping a unit.
        training: Whether to drop anything.
        positions: Positions of the rows in the whole graph, [n], as in `dropout`.

    Returns:
        The hidden layer, [..., n, h].
    """
    if is_differentiated(operator.values) or not is_compiled(dense.device):
        return dropout((spmm(operator, dense) + bias[..., None, :]).relu(), p, training, positions=positions)
    is_alone = dense.dim() == 2
    key = next_key(dense.device) if training and p > 0 else None
    keys = None if key is None else key.reshape(-1)
    stack, shift = (dense[None], bias[None]) if is_alone else (dense, bias)
    out: Tensor = call_function(_Propagate, stack, shift, keys, operator, positions, p if training else 0.0)
    return out[0] if is_alone else out


def convolve(
    inputs: Operator, weight: Tensor, operator: Operator, bias: Tensor, *, p: float, training: bool,
    positions: Tensor | None = None,
) -> Tensor:  # [m, d], [..., d, h], [n, m], [..., h] -> [..., n, h]  # fmt: skip
    """Compute dropout(relu(A X W + b)) for sparse features X, the hidden layer of a GCN.

    On a CPU the product X W of one model stays in its cache. Otherwise it is `propagate` after a product.

    Args:
        inputs: X, [m, d].
        weight: W, [..., d, h].
        operator: A, [n, m].
        bias: b, [..., h].
        p: Probability of dropping a unit.
        training: Whether to drop anything.
        positions: Positions of the rows in the whole graph, [n], as in `dropout`.

    Returns:
        The hidden layer, [..., n, h].

    Raises:
        ValueError: If the shapes do not match.
    """
    if inputs.shape != (operator.shape[1], weight.shape[-2]):
        expected = f"[{operator.shape[1]}, {weight.shape[-2]}]"
        raise ValueError(f"the features must have shape {expected} for this operator and weight, got {inputs.shape}")
    is_constant = not (is_differentiated(inputs.values) or is_differentiated(operator.values))
    if not (weight.device.type == "cpu" and is_compiled(weight.device) and is_constant):
        return propagate(operator, spmm(inputs, weight), bias, p=p, training=training, positions=positions)
    is_alone = weight.dim() == 2
    key = next_key(weight.device) if training and p > 0 else None
    keys = None if key is None else key.reshape(-1)
    stack, shift = (weight[None], bias[None]) if is_alone else (weight, bias)
    options = inputs, operator, positions, p if training else 0.0
    out: Tensor = call_function(_Convolve, stack, shift, keys, *options)
    return out[0] if is_alone else out


class _Convolve(torch.autograd.Function):
    """weight [b, d, h], bias [b, h], keys [b] -> [b, n, h], on the CPU; as `_Propagate` after a product."""

    @staticmethod
    def forward(weight: Tensor, bias: Tensor, keys: Tensor | None, inputs: Operator, operator: Operator,
                positions: Tensor | None, p: float) -> Tensor:  # fmt: skip
        size, h, (n, m) = weight.shape[0], weight.shape[2], operator.shape
        threshold, scale = limits(p)
        keys = torch.zeros(size, dtype=torch.int64) if keys is None else keys
        positions = torch.arange(n) if positions is None else positions
        product, out = torch.empty(1, m, h, dtype=weight.dtype), torch.empty(size, n, h, dtype=weight.dtype)
        words, entries, counts = inputs.arrays
        own, *rest = _arrays(weight, bias, keys, positions, product, out)
        fused_numba.convolve(threshold, _factor(scale, own), words, entries, counts[None], own, *operator.arrays, *rest)
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.inputs, ctx.operator, ctx.scale = inputs[3], inputs[4], limits(inputs[6])[1]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (out,) = ctx.saved_tensors
        inputs: Operator = ctx.inputs
        operator: Operator = ctx.operator
        passed = torch.ops.aten.threshold_backward(grad, out, 0)
        values = operator.t_values * ctx.scale  # e values, not n h, are scaled
        back, back_to_words = operator.mirrored(), inputs.mirrored()
        if torch.is_grad_enabled() or is_functorch_wrapped_tensor(grad):  # a second derivative, or many gradients
            to_weight = spmm(back_to_words, spmm(back, passed, values), inputs.t_values)
        else:
            size, _, h = passed.shape
            product = torch.empty(1, operator.shape[1], h, dtype=passed.dtype)
            to_weight = torch.empty(size, inputs.shape[1], h, dtype=passed.dtype)
            scaled, counts, *rest = _arrays(values[None], inputs.t_values[None], passed, product, to_weight)
            fused_numba.multiply_twice(*back.arrays[:2], scaled, *back_to_words.arrays[:2], counts, *rest)
        return to_weight, ctx.scale * passed.sum(-2), None, None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], weight: Tensor, bias: Tensor, keys: Tensor | None,
             *options: Any) -> tuple[Tensor, int]:  # fmt: skip
        size = info.batch_size
        folded = [
            None if t is None else _folded(t, d, size) for t, d in zip((weight, bias, keys), in_dims, strict=False)
        ]
        out: Tensor = call_function(_Convolve, *folded, *options)
        return out.view(size, -1, *out.shape[1:]), 0


class _Propagate(torch.autograd.Function):
    """dense [b, m, h], bias [b, h], keys [b] -> [b, n, h]. Entries that are zero in the output get no gradient."""

    @staticmethod
    def forward(dense: Tensor, bias: Tensor, keys: Tensor | None, operator: Operator, positions: Tensor | None,
                p: float) -> Tensor:  # fmt: skip
        n, h = operator.shape[0], dense.shape[2]
        threshold, scale = limits(p)
        keys = torch.zeros(len(dense), dtype=torch.int64, device=dense.device) if keys is None else keys
        positions = torch.arange(n, device=dense.device) if positions is None else positions
        dense, bias = dense.detach(), bias.detach()
        if dense.device.type == "cuda":
            result: Tensor = fused_triton.propagate(operator, dense, bias, keys, positions, threshold, scale)
            return result
        out = torch.empty(len(dense), n, h, dtype=dense.dtype)
        own, *rest = _arrays(dense, bias, keys, positions, out)
        fused_numba.propagate(threshold, _factor(scale, own), *operator.arrays, own, *rest)
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.operator, ctx.scale = inputs[3], limits(inputs[5])[1]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (out,) = ctx.saved_tensors
        operator: Operator = ctx.operator
        passed = torch.ops.aten.threshold_backward(grad, out, 0)
        to_dense = spmm(operator.mirrored(), passed, operator.t_values * ctx.scale)  # e values, not n h, are scaled
        return to_dense, ctx.scale * passed.sum(-2), None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], dense: Tensor, bias: Tensor, keys: Tensor | None,
             operator: Operator, positions: Tensor | None, p: float) -> tuple[Tensor, int]:  # fmt: skip
        size = info.batch_size
        folded = [
            None if t is None else _folded(t, d, size) for t, d in zip((dense, bias, keys), in_dims, strict=False)
        ]
        out: Tensor = call_function(_Propagate, *folded, operator, positions, p)
        return out.view(size, -1, *out.shape[1:]), 0


def attend(
    operator: Operator,
    projected: Tensor,
    source: Tensor,
    target: Tensor,
    *,
    p: float,
    training: bool,
    entries: Tensor,
    weights: Tensor | None = None,
) -> Tensor:  # [n, m], [..., m, heads, w], [..., m, heads], [..., n, heads], [e] -> [..., n, heads, w]
    """Compute attention: in each row i, the sum over j of dropout(softmax_j(leaky(source_j + target_i))) projected_j.

    Args:
        operator: The graph, [n, m]; its structure is used, its values are not.
        projected: Projected features of each head, [..., m, heads, w].
        source: Scores of the sources, [..., m, heads].
        target: Scores of the targets, [..., n, heads].
        p: Probability of dropping an entry.
        training: Whether to drop anything.
        entries: Positions of the operator's entries in the whole graph, [e], from which the masks are derived.
        weights: Factors of the exponentials, [e]; an entry of weight 0 has no effect. There is no compiled kernel for
            them. None if all are 1.

    Returns:
        The aggregated features of each head, [..., n, heads, w].
    """
    is_alone = projected.dim() == 3
    if is_alone:
        projected, source, target = projected[None], source[None], target[None]
    keys = next_key(projected.device).reshape(-1) if training and p > 0 else None
    options = (operator, entries, p if training else 0.0)
    if weights is None and is_compiled(projected.device):
        out: Tensor = call_function(_Attend, projected, source, target, keys, *options)[0]
    else:
        out = attend_in_steps(projected, source, target, keys, *options, weights)
    return out[0] if is_alone else out


def attend_in_steps(projected: Tensor, source: Tensor, target: Tensor, keys: Tensor | None, operator: Operator,
                    entries: Tensor, p: float, edge_weight: Tensor | None = None) -> Tensor:  # fmt: skip
    """Compute `attend` in torch operations, for machines without a compiler and for second derivatives."""
    rows, cols = operator.rows, operator.indices.long()
    scores = F.leaky_relu(source[:, cols] + target[:, rows], SLOPE)  # [b, e, heads]
    places = rows[:, None].expand_as(scores)
    lowest = scores.new_full((len(scores), operator.shape[0], scores.shape[2]), -torch.inf)
    weights = (scores - lowest.scatter_reduce(1, places, scores.detach(), "amax")[:, rows]).exp()
    weights = weights if edge_weight is None else weights * edge_weight[:, None]
    total = torch.zeros_like(lowest).index_add(1, rows, weights).clamp_min(torch.finfo(weights.dtype).tiny)
    weights = weights / total[:, rows]
    if keys is not None:
        weights = weights * dropout_kernels.apply(torch.ones_like(weights), keys, entries, p)
    return spmm(operator, projected.transpose(1, 2), weights.transpose(1, 2)).transpose(1, 2)


class _Attend(torch.autograd.Function):
    """projected [b, m, heads, w], source [b, m, heads], target [b, n, heads], keys [b] -> [b, n, heads, w]."""

    @staticmethod
    def forward(projected: Tensor, source: Tensor, target: Tensor, keys: Tensor | None, operator: Operator,
                entries: Tensor, p: float) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Return the output and what the backward pass starts from: the attention [b, e, heads] or its log-sums."""
        projected, source, target = projected.detach(), source.detach(), target.detach()
        keys = torch.zeros(len(projected), dtype=torch.int64, device=projected.device) if keys is None else keys
        if projected.device.type == "cuda":
            both: tuple[Tensor, Tensor] = fused_triton.attend(
                operator, projected, source, target, keys, entries, *limits(p)
            )
            return both
        attention = torch.empty(len(projected), len(operator.indices), source.shape[2], dtype=projected.dtype)
        structure = operator.indptr, operator.indices
        fused_numba.scores(*_arrays(*structure, source, target, attention))
        attention.exp_()  # here, because numba's exponential does not use vectors
        out = torch.empty(len(projected), operator.shape[0], *projected.shape[2:], dtype=projected.dtype)
        fused_numba.attend(*limits(p), *_arrays(*structure, attention, projected, keys, entries, out))
        return out, attention

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        projected, source, target, keys, ctx.operator, entries, ctx.p = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(projected, source, target, keys, entries, *output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        projected, source, target, keys, entries, out, kept = ctx.saved_tensors
        operator: Operator = ctx.operator
        inputs = projected, source, target
        if torch.is_grad_enabled():  # a second derivative is wanted
            again = attend_in_steps(*inputs, keys, operator, entries, ctx.p)
            wanted = [t for t, needed in zip(inputs, ctx.needs_input_grad, strict=False) if needed]
            grads = iter(torch.autograd.grad(again, wanted, grad, create_graph=True))
            return *(next(grads) if needed else None for needed in ctx.needs_input_grad[:3]), None, None, None, None
        keys = torch.zeros(len(projected), dtype=torch.int64, device=projected.device) if keys is None else keys
        to: tuple[Tensor, ...]
        if grad.device.type == "cuda":
            to = fused_triton.attend_back(operator, *inputs, keys, entries, *limits(ctx.p), out, kept, grad)
        else:
            to = tuple(torch.zeros_like(t, memory_format=torch.contiguous_format) for t in inputs)
            arrays = _arrays(operator.indptr, operator.indices, kept, *inputs, keys, entries, out, grad, *to)
            fused_numba.attend_back(*limits(ctx.p), *arrays)
        return *to, None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        size = info.batch_size
        folded = [None if t is None else _folded(t, d, size) for t, d in zip(inputs[:4], in_dims, strict=False)]
        out, kept = call_function(_Attend, *folded, *inputs[4:])
        return (out.view(size, -1, *out.shape[1:]), kept.view(size, -1, *kept.shape[1:])), (0, 0)


def _arrays(*tensors: Tensor) -> list[Any]:
    """Convert tensors for numba. Outputs must be contiguous already, or results would be written to a copy."""
    return [t.detach().contiguous().numpy() for t in tensors]


def _factor(scale: float, like: Any) -> Any:
    """A factor for numba, in the type of an array."""
    return np.array([scale], dtype=like.dtype)


def _folded(t: Tensor, dim: int | None, size: int) -> Tensor:
    """Fold a dimension that vmap added into that of the stack: [.., size, .., b, ...] -> [size * b, ...]."""
    front = t.expand(size, *t.shape) if dim is None else t.movedim(dim, 0)
    return front.flatten(0, 1)
