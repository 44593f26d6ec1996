from collections.abc import Sequence

import torch
from torch import Tensor

from wtawp.base import rng
from wtawp.models.recording_operator import RecordingOperator


class Matrix(RecordingOperator):
    """A matrix that is given, and its gradient as it is."""

    def __init__(self, v: Tensor) -> None:
        super().__init__()
        self.v = v

    def times(self, factor: Tensor) -> Tensor:
        return self.v @ factor

    def transposed_times(self, factor: Tensor) -> Tensor:
        return self.v.mT @ factor

    def adjacency_gradient_factors(self, grads: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        return self.gathered(grads)


def test_the_gradient_by_a_matrix_is_the_product_of_the_factors_that_the_operator_records() -> None:
    g = rng("traced")
    v, x, w = (torch.randn(*shape, generator=g, dtype=torch.float64) for shape in ((6, 6), (1, 6, 3), (3, 2)))

    def loss(matrix: Tensor | RecordingOperator) -> Tensor:
        return (matrix @ ((matrix @ x).tanh() @ w)).square().sum()

    leaf = v.clone().requires_grad_()
    (truth,) = torch.autograd.grad(loss(leaf), leaf)
    operator = Matrix(v)
    grads = torch.autograd.grad(loss(operator), operator.products)
    u, factors, sums = operator.adjacency_gradient_factors(grads)
    torch.testing.assert_close((u @ factors.mT)[0], truth)
    both = (truth * v).sum(1) + (truth * v).sum(0)
    torch.testing.assert_close(sums[0, :, 0], both)
