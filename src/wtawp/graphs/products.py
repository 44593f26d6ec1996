"""The one primitive all models go through: sparse times dense, with gradients and a vmap rule.

`spmm` maps over a stack of models (its vmap rule passes the whole stack to one kernel) and differentiates with respect
to the dense matrix and, where required, to the entries. `multiply` extends it to dense and factored operators.
"""

import math
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from wtawp.graphs import kernels
from wtawp.graphs.autograd_calls import call_function
from wtawp.graphs.operator import Operator

NARROW = 64  # columns of a dense matrix up to which a CPU multiplies it with each member of a stack by itself
WIDE = 16  # columns up to which a CPU takes no less time for fewer of them


def spmm(operator: Operator, dense: Tensor, values: Tensor | None = None) -> Tensor:  # [n, m], [m, h] -> [n, h]
    """Multiply a sparse operator with a dense matrix. It can be differentiated and mapped with `torch.func.vmap`.

    Args:
        operator: The sparse matrix, [n, m].
        dense: The dense matrix, [m, h], or a stack of them, [..., m, h].
        values: Values to use in place of the operator's own, in the order of its entries, [..., e]: attention
            coefficients, features after dropout. None: its own.

    Returns:
        The product, [n, h] or [..., n, h]; leading dimensions of `values` and `dense` broadcast.

    Example:
        >>> from wtawp.graphs import sum_operator
        >>> spmm(sum_operator(torch.tensor([[0, 1], [1, 0]]), None, 2), torch.tensor([[1.0], [5.0]]))
        tensor([[5.],
                [1.]])
    """
    values = operator.values if values is None else values
    product: Tensor = call_function(_SpMM, values, dense, operator)
    return product


class Multiplies(Protocol):
    """An object that is used as an operator and implements `@` itself: low-rank factors, or a recording wrapper."""

    def __matmul__(self, dense: Tensor) -> Tensor: ...  # [..., m, h] -> [..., n, h]


def multiply(left: Operator | Tensor | Multiplies, dense: Tensor, values: Tensor | None = None) -> Tensor:
    """Multiply any operator, sparse, dense or factored, with a dense matrix.

    Args:
        left: The operator, [n, m]. A constant dense one may end in columns of zeros for which `dense` has no rows: see
            `aligned`.
        dense: The dense matrix, [..., m, h].
        values: As in `spmm`; only for an `Operator`.

    Returns:
        The product, [..., n, h].
    """
    if isinstance(left, Operator):
        return spmm(left, dense, values)
    if not isinstance(left, Tensor):
        return left @ dense
    if left.requires_grad or left.dim() > 2:
        return call_function(_NarrowRight, left, dense) if _is_narrow(left, dense) else left @ dense
    product: Tensor = call_function(_SharedLeft, left, dense)
    return product


def aligned(x: Tensor) -> Tensor:  # [n, d] -> [n, a little more]
    """Append columns of zeros up to a multiple of 8: a GPU's matrix units are three times faster with such widths.

    Args:
        x: The matrix, [n, d].

    Returns:
        The padded matrix, [n, d rounded up to a multiple of 8]; x itself if there is nothing to append.
    """
    return F.pad(x, (0, -x.shape[1] % 8)) if x.shape[1] % 8 else x


class _SharedLeft(torch.autograd.Function):
    """A constant [n, m] times [..., m, h]; a stack is laid side by side and multiplied in one product.

    torch would use a batched product, which is several times slower when h is small. On the CPU the batched product is
    faster for a narrow matrix, because rearranging the stack takes longer than multiplying.
    """

    @staticmethod
    def forward(left: Tensor, dense: Tensor) -> Tensor:
        missing = left.shape[1] - dense.shape[-2]
        dense = F.pad(dense, (0, 0, 0, missing)) if missing else dense  # a padding by nothing would copy
        if dense.dim() == 2:
            return _product(left, dense)
        if left.device.type == "cpu" and min(left.shape) <= NARROW:
            return left.expand(*dense.shape[:-2], *left.shape) @ dense
        stack = dense.movedim(-2, 0)  # [m, ..., h]
        return _product(left, stack.reshape(stack.shape[0], -1)).view(-1, *stack.shape[1:]).movedim(0, -2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:  # noqa: ARG004
        left, dense = inputs
        ctx.rows = dense.shape[-2]
        ctx.save_for_backward(left)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        (left,) = ctx.saved_tensors
        return None, multiply(left.mT, grad)[..., : ctx.rows, :]

    @staticmethod
    def vmap(_info: Any, in_dims: tuple[int | None, int | None], left: Tensor, dense: Tensor) -> tuple[Tensor, int]:
        stack = dense if in_dims[1] is None else dense.movedim(in_dims[1], 0)
        if in_dims[0] is None:
            return multiply(left, stack), 0
        return left.movedim(in_dims[0], 0) @ stack, 0


class _NarrowRight(torch.autograd.Function):
    """[..., n, m] times [..., m, h] for a small h, such as the number of classes, on the CPU."""

    generate_vmap_rule = True

    @staticmethod
    def forward(left: Tensor, right: Tensor) -> Tensor:
        return _product(left, right)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:  # noqa: ARG004
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        left, right = ctx.saved_tensors
        if torch.is_autocast_enabled(grad.device.type):
            with torch.autocast(grad.device.type, enabled=False):
                return _NarrowRight.backward(ctx, grad)
        to_left = grad @ right.mT if ctx.needs_input_grad[0] else None
        to_right = _product(left.mT, grad) if ctx.needs_input_grad[1] else None
        return to_left, to_right


def _is_narrow(left: Tensor, right: Tensor) -> bool:
    """Whether a product is faster if columns are added to the second matrix."""
    return left.device.type == "cpu" and right.shape[-1] < WIDE and left.dim() == right.dim()


def _product(left: Tensor, right: Tensor) -> Tensor:  # [..., n, m], [..., m, h] -> [..., n, h]
    """The product of two matrices, or stacks of them.

    On a CPU torch takes more than twice as long for 7 columns as for 16, so that missing ones are filled with zeros.
    (The transposed product would be faster still, but its last digits depend on the number of threads.)
    """
    if not _is_narrow(left, right):
        return left @ right
    width = right.shape[-1]
    return (left @ F.pad(right, (0, WIDE - width)))[..., :width].contiguous()


class _SpMM(torch.autograd.Function):
    """values [..., e], dense [..., m, h] -> [..., n, h]; leading dimensions broadcast (models, heads)."""

    @staticmethod
    def forward(values: Tensor, dense: Tensor, operator: Operator) -> Tensor:
        lead: torch.Size = dense.shape[:-2]
        if values.dim() > 1:
            lead = torch.broadcast_shapes(values.shape[:-1], lead)  # type: ignore[no-untyped-call]
        v, x = _folded(values, lead, 1), _folded(dense, lead, 2)
        product = kernels.multiply(operator.indptr, operator.indices, v, x)
        if len(lead) < 2:
            return product if lead else product[0]
        return product.reshape(*lead, *product.shape[1:])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Operator], output: Tensor) -> None:  # noqa: ARG004
        values, dense, ctx.operator = inputs
        ctx.is_constant = values is ctx.operator.values and not values.requires_grad
        ctx.save_for_backward(values, dense)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        values, dense = ctx.saved_tensors
        operator: Operator = ctx.operator
        to_values = to_dense = None
        if ctx.needs_input_grad[0]:
            to_values = kernels.inner_products(operator.rows, operator.indices.long(), grad, dense).sum_to_size(
                values.shape
            )
        if ctx.needs_input_grad[1]:
            # The operator's own constant values are permuted once; others (attention, dropout) each time.
            reordered = operator.t_values if ctx.is_constant else values[..., operator.order]
            to_dense = spmm(operator.mirrored(), grad, reordered).sum_to_size(dense.shape)
        return to_values, to_dense, None

    @staticmethod
    def vmap(
        _info: Any, in_dims: tuple[int | None, int | None, None], values: Tensor, dense: Tensor, operator: Operator
    ) -> tuple[Tensor, int]:
        # The stack goes in front; a singleton keeps it apart from heads that only the other side has.
        heads = [t.dim() - dims - (d is not None) for t, d, dims in ((values, in_dims[0], 1), (dense, in_dims[1], 2))]
        fronted = []
        for t, d, num_heads in ((values, in_dims[0], heads[0]), (dense, in_dims[1], heads[1])):
            front = t if d is None else t.movedim(d, 0)
            fronted.append(front if d is None else front[(slice(None), *[None] * (max(heads) - num_heads))])
        return call_function(_SpMM, *fronted, operator), 0


def _folded(t: Tensor, lead: torch.Size, dims: int) -> Tensor:
    """Merge all leading dimensions into one; a tensor without any becomes a stack of one, which kernels share."""
    if t.dim() == dims:
        return t[None]
    return t.expand(*lead, *t.shape[-dims:]).reshape(math.prod(lead), *t.shape[-dims:])
