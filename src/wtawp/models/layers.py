"""Layers that take their randomness from a generator and their graph as a sparse operator."""

import math

import torch
from torch import Tensor, nn


class GraphConvolution(nn.Module):
    """A_hat (X W) + b (Kipf and Welling), initialised as in the paper's released code: uniform in +-1/sqrt(d_out)."""

    def __init__(self, d_in: int, d_out: int, *, generator: torch.Generator) -> None:
        super().__init__()
        bound = 1 / math.sqrt(d_out)
        self.weight = nn.Parameter(torch.empty(d_out, d_in).uniform_(-bound, bound, generator=generator))
        self.bias = nn.Parameter(torch.empty(d_out).uniform_(-bound, bound, generator=generator))

    def forward(self, x: Tensor, operator: Tensor) -> Tensor:  # [n, d_in], [n, n] -> [n, d_out]
        messages: Tensor = torch.sparse.mm(operator, x @ self.weight.T)
        return messages + self.bias


class Linear(nn.Module):
    """X W + b, initialised as `nn.Linear` is: uniform in +-1/sqrt(d_in)."""

    def __init__(self, d_in: int, d_out: int, *, generator: torch.Generator) -> None:
        super().__init__()
        bound = 1 / math.sqrt(d_in)
        self.weight = nn.Parameter(torch.empty(d_out, d_in).uniform_(-bound, bound, generator=generator))
        self.bias = nn.Parameter(torch.empty(d_out).uniform_(-bound, bound, generator=generator))

    def forward(self, x: Tensor) -> Tensor:  # [n, d_in] -> [n, d_out]
        return x @ self.weight.T + self.bias
