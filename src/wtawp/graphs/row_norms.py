"""The Euclidean norm of each row, which can be differentiated twice where rows are zero."""

from typing import Any

import torch
from torch import Tensor

from wtawp.graphs.autograd_calls import call_function


def row_norms(x: Tensor) -> Tensor:  # [..., n, h] -> [..., n]
    """Compute the Euclidean norm of each row; the derivatives of the norm of a zero row are 0, of any order.

    Values and first derivatives are those of `torch.linalg.vector_norm`, whose second derivative is NaN there.

    Args:
        x: The rows, [..., n, h].

    Returns:
        Their norms, [..., n].

    Example:
        >>> row_norms(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([5., 0.])
    """
    norms: Tensor = call_function(_RowNorms, x)
    return norms


class _RowNorms(torch.autograd.Function):
    """[..., n, h] -> [..., n]."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        norms: Tensor = torch.linalg.vector_norm(x, dim=-1)
        return norms

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, norms = ctx.saved_tensors
        is_zero = (norms == 0)[..., None]
        unit = torch.where(is_zero, 0, x / torch.where(is_zero, 1, norms[..., None]))
        return grad[..., None] * unit
