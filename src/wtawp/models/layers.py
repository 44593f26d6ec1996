"""Layers that take their randomness from a generator and their graph as an operator."""

import math

import torch
from torch import Tensor, nn

from wtawp.graphs.operators import Operator, spmm


class Linear(nn.Module):
    """X W + b, uniform in +-`bound` at first. X may be an operator: sparse features.

    The weight is [d_in, d_out], so that a sparse X gathers rows that lie together in memory.
    """

    def __init__(
        self, d_in: int, d_out: int, *, bound: float | None = None, bias: bool = True, generator: torch.Generator
    ):
        super().__init__()
        bound = 1 / math.sqrt(d_in) if bound is None else bound  # nn.Linear's
        self.weight = nn.Parameter(torch.empty(d_in, d_out).uniform_(-bound, bound, generator=generator))
        self.bias = nn.Parameter(torch.empty(d_out).uniform_(-bound, bound, generator=generator)) if bias else None

    def forward(self, x: Tensor | Operator, values: Tensor | None = None) -> Tensor:  # [n, d_in] -> [n, d_out]
        """`values` may stand in for a sparse X's own entries: dropped-out features."""
        product = spmm(x, self.weight, values) if isinstance(x, Operator) else x @ self.weight
        return product if self.bias is None else product + self.bias


class GraphConvolution(nn.Module):
    """A_hat (X W) + b (Kipf and Welling), initialised as in the paper's released code: uniform in +-1/sqrt(d_out)."""

    def __init__(self, d_in: int, d_out: int, *, generator: torch.Generator) -> None:
        super().__init__()
        bound = 1 / math.sqrt(d_out)
        self.weight = nn.Parameter(torch.empty(d_in, d_out).uniform_(-bound, bound, generator=generator))
        self.bias = nn.Parameter(torch.empty(d_out).uniform_(-bound, bound, generator=generator))

    def forward(self, x: Tensor | Operator, operator: Operator) -> Tensor:  # [n, d_in], [m, n] -> [m, d_out]
        product = spmm(x, self.weight) if isinstance(x, Operator) else x @ self.weight
        return spmm(operator, product) + self.bias
