"""GCN-SVD (Entezari et al. 2020): a GCN on the low-rank approximation of the graph."""

from functools import partial

import torch
from torch import Tensor, nn

from wtawp.graphs.low_rank import LowRank, low_rank_operator
from wtawp.graphs.operator import Operator
from wtawp.graphs.products import Multiplies
from wtawp.models.adapter import Features, LastCallCache, Truncated, View, features
from wtawp.models.layers import GraphConvolution, checked_widths


class GCNSVD(nn.Module):
    """The layers of a `GCN`, multiplying with the adjacency matrix of rank `rank` in factors.

    Called as PyG models are, with edges; they are decomposed once per graph. In the place of `edge_index` it also takes
    the operator, or one for each layer. Edge weights have no gradient: the singular vectors are constants.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        hidden: tuple[int, ...] = (16,),
        rank: int = 50,
        dropout: float = 0.5,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        widths = checked_widths(d_in, hidden, d_out, dropout)
        if rank < 1:
            raise ValueError(f"rank must be >= 1, got {rank}")
        self.convs = nn.ModuleList(GraphConvolution(a, b, generator=generator) for a, b in widths)
        self.rank = rank
        self._operators = LastCallCache(partial(low_rank_operator, rank=rank))

    def forward(
        self, x: Features, edge_index: Tensor | Multiplies | tuple[Multiplies, ...], edge_weight: Tensor | None = None
    ) -> Tensor:  # [n, d], [2, e] or [n, n], [e] -> [n, c]
        if isinstance(edge_index, Tensor):
            edge_index = self._operator(x, edge_index, edge_weight)
        steps = edge_index if isinstance(edge_index, tuple) else (edge_index,) * len(self.convs)
        for conv, operator in zip(self.convs[:-1], steps, strict=False):
            x = conv(x, operator, relu_and_drop=self.dropout)
        logits: Tensor = self.convs[-1](x, steps[-1])
        return logits

    def _operator(self, x: Features, edge_index: Tensor, edge_weight: Tensor | None) -> LowRank:
        dtype = x.values.dtype if isinstance(x, Operator) else x.dtype
        return self._operators(edge_index, edge_weight, x.shape[0], dtype)

    def prepare(self, x: Tensor, edge_index: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """See `StackAware`: every node sees every other, so only the last layer is cut down to `rows`."""
        operator = self._operator(x, edge_index, None)
        if rows is None:
            return features(x), operator
        whole = (operator,) * (len(self.convs) - 1)
        return features(x), (*whole, operator.select(rows))

    def views(self) -> tuple[View, ...]:
        """See `SupportsFactoredGradient`."""
        return (Truncated(self.rank),)

    def through(self, x: Features, views: tuple[Multiplies, ...]) -> tuple[object, ...]:
        """See `SupportsFactoredGradient`."""
        return x, views[0]
