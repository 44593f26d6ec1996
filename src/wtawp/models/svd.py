"""GCN-SVD (Entezari et al. 2020): a GCN on the low-rank approximation of the graph."""

from functools import partial

import torch
from torch import Tensor, nn

from wtawp.graphs.low_rank import LowRank, low_rank_operator
from wtawp.graphs.operator import Operator
from wtawp.graphs.products import Multiplies
from wtawp.models.caches import LastCallCache
from wtawp.models.capabilities import Features, GraphOperator, LowRankAdjacency, StackAware, SupportsFactoredGradient
from wtawp.models.inputs import features
from wtawp.models.layers import GraphConvolution, checked_widths


class GCNSVD(nn.Module, StackAware, SupportsFactoredGradient):
    """A `GCN` that multiplies with a low-rank approximation of the adjacency matrix, kept as two thin factors.

    The model is called as PyG's models are; the adjacency matrix is decomposed once per graph. Edge weights get no
    gradient, because the singular vectors count as constants.

    Args:
        d_in: Number of features of a node.
        d_out: Number of classes.
        hidden: Widths of the hidden layers, one number each; the default is one layer of 16 units, as in DeepRobust.
        rank: Number of singular vectors; the default is DeepRobust's.
        dropout: Share of units that are dropped in training after each hidden layer, in [0, 1).
        generator: Draws the initial weights.

    Raises:
        ValueError: If a width is below 1, the rank is below 1, or the dropout is not in [0, 1).

    Example:
        >>> import torch
        >>> from wtawp.graphs import load
        >>> data = load("wine")
        >>> model = GCNSVD(13, 3, rank=10, generator=torch.Generator().manual_seed(0))
        >>> model(data.x, data.edge_index).shape
        torch.Size([178, 3])
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
        """Compute the logits of the nodes.

        Args:
            x: Features of the nodes, [n, d], dense or sparse.
            edge_index: Edges [2, e]; or the operator [n, n]; or one operator for each layer, as `prepare` makes them.
            edge_weight: Weights of the edges, [e]; None if all are 1. Unused unless edges are given.

        Returns:
            Logits [n, c]; with operators, those of the last operator's rows.
        """
        if isinstance(edge_index, Tensor):
            edge_index = self._operator(x, edge_index, edge_weight)
        steps = edge_index if isinstance(edge_index, tuple) else (edge_index,) * len(self.convs)
        for conv, operator in zip(self.convs[:-1], steps, strict=False):
            x = conv(x, operator, relu_and_drop=self.dropout)
        logits: Tensor = self.convs[-1](x, steps[-1])
        return logits

    def _operator(self, x: Features, edge_index: Tensor, edge_weight: Tensor | None) -> LowRank:
        """Decompose the adjacency matrix, or take it from the cache."""
        dtype = x.values.dtype if isinstance(x, Operator) else x.dtype
        return self._operators(edge_index, edge_weight, x.shape[0], dtype)

    def prepare(self, x: Tensor, edge_index: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """See `StackAware.prepare`.

        In a low-rank graph every node is joined to every other, so only the last layer is restricted to `rows`.
        """
        operator = self._operator(x, edge_index, None)
        if rows is None:
            return features(x), operator
        whole = (operator,) * (len(self.convs) - 1)
        return features(x), (*whole, operator.select(rows))

    def graph_operators(self) -> tuple[GraphOperator, ...]:
        """Name the operators through which the model reaches the graph, as `SupportsFactoredGradient` asks.

        Returns:
            The low-rank adjacency matrix.
        """
        return (LowRankAdjacency(self.rank),)

    def forward_args(self, x: Features, operators: tuple[Multiplies, ...]) -> tuple[object, ...]:
        """See `SupportsFactoredGradient.forward_args`."""
        return x, operators[0]
