from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

from wtawp.graphs.autograd_calls import call_function


class Scaled(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, factor: float) -> Tensor:
        return x * factor

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:  # noqa: ARG004
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.factor, None


def test_it_is_the_call_of_torch_with_its_gradient() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    out = call_function(Scaled, x, 3.0)
    assert torch.equal(out, Scaled.apply(x, 3.0))
    assert torch.autograd.grad(out.sum(), x)[0].tolist() == [3.0, 3.0]


def test_it_can_be_mapped_and_transformed() -> None:
    x = torch.tensor([[1.0], [2.0]])
    assert vmap(lambda row: call_function(Scaled, row, 3.0))(x).tolist() == [[3.0], [6.0]]
    assert grad(lambda t: call_function(Scaled, t, 3.0).sum())(x).tolist() == [[3.0], [3.0]]


def test_all_arguments_must_be_given() -> None:
    with pytest.raises(TypeError, match="factor"):
        call_function(Scaled, torch.ones(1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast_it_computes_in_float32(dtype: torch.dtype) -> None:
    x = torch.ones(2, dtype=dtype, requires_grad=True)
    with torch.autocast("cpu", dtype):
        out = call_function(Scaled, x, 3.0)
    assert out.dtype == torch.float32
    assert torch.autograd.grad(out.sum(), x)[0].dtype == dtype
