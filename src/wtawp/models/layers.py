"""Layers that take their randomness from a generator and their graph as an operator."""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from wtawp.graphs.operators import Blocks, Operator, multiply, spmm
from wtawp.models.dropout import dropout
from wtawp.models.fused import attend, propagate


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
        product = multiply(x, self.weight, values)
        return product if self.bias is None else product + self.bias[..., None, :]


class GraphConvolution(nn.Module):
    """A_hat (X W) + b (Kipf and Welling), initialised as in the paper's released code: uniform in +-1/sqrt(d_out)."""

    def __init__(self, d_in: int, d_out: int, *, generator: torch.Generator) -> None:
        super().__init__()
        bound = 1 / math.sqrt(d_out)
        self.weight = nn.Parameter(torch.empty(d_in, d_out).uniform_(-bound, bound, generator=generator))
        self.bias = nn.Parameter(torch.empty(d_out).uniform_(-bound, bound, generator=generator))

    def forward(
        self,
        x: Tensor | Operator,
        operator: Operator,
        *,
        relu_and_drop: float | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:  # [n, d_in], [m, n] -> [m, d_out]
        """`relu_and_drop`: the rate of dropout after a ReLU, both done in passing; `positions` as in `dropout`."""
        product = multiply(x, self.weight)
        if relu_and_drop is None:
            return spmm(operator, product) + self.bias[..., None, :]
        return propagate(operator, product, self.bias, p=relu_and_drop, training=self.training, positions=positions)


def drop_and_multiply(
    lin: Linear, x: Tensor | Operator, p: float, training: bool, positions: Tensor | None = None
) -> Tensor:
    """Dropout on the input, then a linear layer. Of sparse features only the non-zeros need a mask."""
    if not training or p == 0:
        return lin(x)  # type: ignore[no-any-return]
    if not isinstance(x, Operator):
        return lin(dropout(x, p, training, positions=positions))  # type: ignore[no-any-return]
    rows = x.rows if positions is None else positions[x.rows]
    kept = dropout(x.values[:, None], p, training, positions=rows * x.shape[1] + x.indices.long())
    return lin(x, kept[..., 0])  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class Hop:
    """One step over a graph, or over a block of it, for layers whose masks and targets need to know where they are."""

    operator: Operator  # [n, m]
    columns: Tensor | None  # [m], the columns' places in the whole graph; None if it is the whole graph
    own: Tensor | None  # [n], where among the columns the rows' own nodes are; None if they are the same
    entries: Tensor  # [e], the entries' places in the whole graph, for masks

    @staticmethod
    def whole(operator: Operator) -> "Hop":
        """Over all nodes."""
        return Hop(operator, None, None, operator.rows * operator.shape[1] + operator.indices.long())

    @staticmethod
    def through(blocks: Blocks, size: int) -> "tuple[Hop, ...]":
        """Over each of the blocks, cut out of a graph of `size` nodes with self-loops."""
        hops = []
        for operator, (columns, rows) in zip(blocks.operators, pairwise(blocks.nodes), strict=True):
            place = torch.full((size,), -1, device=columns.device)
            place[columns] = torch.arange(len(columns), device=columns.device)
            entries = rows[operator.rows] * size + columns[operator.indices.long()]
            hops.append(Hop(operator, columns, place[rows], entries))
        return tuple(hops)


class GraphAttention(nn.Module):
    """One layer of GAT (Velickovic et al. 2018): heads side by side, or their mean; Glorot initialisation."""

    def __init__(self, d_in: int, width: int, *, heads: int, concat: bool, generator: torch.Generator) -> None:
        super().__init__()
        self.heads, self.concat = heads, concat
        self.lin = Linear(
            d_in, heads * width, bound=math.sqrt(6 / (d_in + heads * width)), bias=False, generator=generator
        )
        bound = math.sqrt(6 / (heads + width))
        self.att_src = nn.Parameter(torch.empty(heads, width).uniform_(-bound, bound, generator=generator))
        self.att_dst = nn.Parameter(torch.empty(heads, width).uniform_(-bound, bound, generator=generator))
        self.bias = nn.Parameter(torch.zeros(heads * width if concat else width))

    def forward(self, x: Tensor | Operator, hop: Hop, p: float) -> Tensor:  # [m, d] -> [n, heads * width]
        """Dropout with rate p on the input and on the attention."""
        projected = drop_and_multiply(self.lin, x, p, self.training, hop.columns)
        projected = projected.view(*projected.shape[:-1], self.heads, -1)  # [m, heads, width]
        own = projected if hop.own is None else projected[..., hop.own, :, :]
        source = (projected * self.att_src[..., None, :, :]).sum(-1)  # [m, heads]
        target = (own * self.att_dst[..., None, :, :]).sum(-1)  # [n, heads]
        out = attend(hop.operator, projected, source, target, p=p, training=self.training, entries=hop.entries)
        return (out.flatten(-2) if self.concat else out.mean(-2)) + self.bias[..., None, :]
