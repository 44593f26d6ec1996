"""GCN-Jaccard (Wu et al. 2019): a GCN on the graph without the edges that join dissimilar nodes."""

from functools import partial

import torch
from torch import Tensor, nn

from wtawp.graphs.blocks import Blocks
from wtawp.graphs.operator import Operator
from wtawp.graphs.products import Multiplies
from wtawp.graphs.similarity import jaccard_operator, jaccard_rows
from wtawp.models.caches import LastCallCache
from wtawp.models.capabilities import (
    Features,
    FiltersEdges,
    GraphOperator,
    PairFilter,
    StackAware,
    SupportsFactoredGradient,
)
from wtawp.models.gcn import GCN
from wtawp.models.layers import checked_widths


class GCNJaccard(nn.Module, StackAware, SupportsFactoredGradient, FiltersEdges):
    """A `GCN` on the graph without the edges that join nodes with a low Jaccard similarity of their features.

    The model is called as PyG's models are; edges are filtered once per graph and features.

    Args:
        d_in: Number of features of a node.
        d_out: Number of classes.
        hidden: Widths of the hidden layers, one number each; the default is one layer of 16 units, as in DeepRobust.
        threshold: Similarity in [0, 1] below which an edge is removed; the default, DeepRobust's, removes edges whose
            nodes share (nearly) no feature.
        dropout: Share of units that are dropped in training after each hidden layer, in [0, 1).
        generator: Draws the initial weights.

    Raises:
        ValueError: If a width is below 1, the threshold is not in [0, 1], or the dropout is not in [0, 1).

    Example:
        >>> import torch
        >>> from wtawp.graphs import load
        >>> data = load("wine")
        >>> model = GCNJaccard(13, 3, generator=torch.Generator().manual_seed(0))
        >>> model(data.x, data.edge_index).shape
        torch.Size([178, 3])
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        hidden: tuple[int, ...] = (16,),
        threshold: float = 0.01,
        dropout: float = 0.5,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        checked_widths(d_in, hidden, d_out, dropout)
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold must lie in [0, 1], got {threshold}")
        self.gcn = GCN(d_in, d_out, hidden=hidden, dropout=dropout, generator=generator)
        self.threshold = threshold
        self._operators = LastCallCache(partial(jaccard_operator, threshold=threshold))

    def forward(
        self, x: Features, edge_index: Tensor | Operator | Multiplies | Blocks, edge_weight: Tensor | None = None
    ) -> Tensor:  # [n, d], [2, e] or [n, n], [e] -> [n, c]
        """Compute the logits of the nodes.

        Args:
            x: Features of the nodes, [n, d], dense or sparse.
            edge_index: Edges [2, e], which are filtered; or an operator [n, n] or blocks of operators, which are not.
            edge_weight: Weights of the edges, [e]; None if all are 1. Unused unless edges are given.

        Returns:
            Logits [n, c]; with blocks, those of the last block's rows.
        """
        edges = self._operators(edge_index, edge_weight, x) if isinstance(edge_index, Tensor) else edge_index
        logits: Tensor = self.gcn(x, edges)
        return logits

    def prepare(self, x: Tensor, edge_index: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """See `StackAware.prepare`. Only the exact receptive field of `rows` in the filtered graph is computed."""
        return self.gcn.prepare(x, self._operators(edge_index, None, x), rows)

    def graph_operators(self) -> tuple[GraphOperator, ...]:
        """Name the operators through which the model reaches the graph, as `SupportsFactoredGradient` asks.

        Returns:
            The normalised adjacency matrix of the filtered graph.
        """
        return self.gcn.graph_operators()

    def forward_args(self, x: Features, operators: tuple[Multiplies, ...]) -> tuple[object, ...]:
        """See `SupportsFactoredGradient.forward_args`."""
        return self.gcn.forward_args(x, operators)

    def pair_filter(self, x: Features) -> PairFilter:
        """See `FiltersEdges.pair_filter`."""
        similarity = jaccard_rows(x)
        return lambda first, last: similarity(first, last) >= self.threshold
