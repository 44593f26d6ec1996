"""Norms of rows against torch's, and their second derivative where torch's is NaN."""

import torch
from torch import Tensor

from wtawp.base import rng
from wtawp.graphs.row_norms import row_norms


def rows(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=rng("rows"), dtype=torch.float64)


def test_values_and_first_derivatives_are_those_of_torch_bit_for_bit() -> None:
    x = rows(2, 5, 3).float()
    x[0, 1] = x[1, 4] = 0
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    one, other = row_norms(ours), torch.linalg.vector_norm(theirs, dim=-1)
    assert torch.equal(one, other)
    weight = rows(2, 5).float()
    (one * weight).sum().backward()
    (other * weight).sum().backward()
    assert ours.grad is not None
    assert theirs.grad is not None
    assert torch.equal(ours.grad, theirs.grad)


def test_second_derivatives_are_those_of_finite_differences_and_zero_for_zero_rows() -> None:
    assert torch.autograd.gradgradcheck(row_norms, rows(4, 3).requires_grad_())
    x = torch.zeros(2, 3, dtype=torch.float64).requires_grad_()
    (first,) = torch.autograd.grad(row_norms(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.equal(second, torch.zeros_like(second))


def test_a_stack_is_mapped() -> None:
    x = rows(4, 5, 3)
    assert torch.equal(torch.vmap(row_norms)(x), torch.linalg.vector_norm(x, dim=-1))
