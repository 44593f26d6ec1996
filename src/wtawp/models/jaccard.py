"""GCN-Jaccard (Wu et al. 2019): a GCN on the graph without the edges that join dissimilar nodes."""

from functools import partial

import torch
from torch import Tensor, nn

from wtawp.graphs.blocks import Blocks
from wtawp.graphs.operator import Operator
from wtawp.graphs.products import Multiplies
from wtawp.graphs.similarity import jaccard_operator, jaccard_rows
from wtawp.models.adapter import Features, LastCallCache, PairFilter, View
from wtawp.models.gcn import GCN
from wtawp.models.layers import checked_widths


class GCNJaccard(nn.Module):
    """The filter before, then a `GCN`: edges of a Jaccard similarity below `threshold` are not there.

    Called as PyG models are, with edges; they are filtered once per graph and features. In the place of `edge_index`
    it also takes an operator or blocks, which it does not filter.
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
        edges = self._operators(edge_index, edge_weight, x) if isinstance(edge_index, Tensor) else edge_index
        logits: Tensor = self.gcn(x, edges)
        return logits

    def prepare(self, x: Tensor, edge_index: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """See `StackAware`: the exact receptive field of `rows` in the filtered graph."""
        return self.gcn.prepare(x, self._operators(edge_index, None, x), rows)

    def views(self) -> tuple[View, ...]:
        """See `SupportsFactoredGradient`: those of the `GCN`, of the filtered graph."""
        return self.gcn.views()

    def through(self, x: Features, views: tuple[Multiplies, ...]) -> tuple[object, ...]:
        """See `SupportsFactoredGradient`."""
        return self.gcn.through(x, views)

    def pair_filter(self, x: Features) -> PairFilter:
        """See `Filters`."""
        similarity = jaccard_rows(x)
        return lambda first, last: similarity(first, last) >= self.threshold
