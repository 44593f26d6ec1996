"""Predict, then propagate (Klicpera et al. 2019): an MLP whose logits spread by personalised PageRank."""

import torch
from torch import Tensor, nn

from wtawp.graphs.normalisation import gcn_operator
from wtawp.graphs.operator import Operator
from wtawp.graphs.pagerank import ppr_rows
from wtawp.graphs.products import Multiplies, multiply
from wtawp.models.adapter import Features, Normalised, OperatorCache, View, features
from wtawp.models.dropout import dropout
from wtawp.models.layers import Linear, checked_widths, drop_and_multiply


class APPNP(nn.Module):
    """Two linear layers with dropout before each, then `steps` power iterations (None: the exact limit, PPNP).

    Called as PyG models are. In the place of `edge_index` it also takes the normalised operator, or dense rows of the
    PageRank matrix; both give the same logits, the rows being cheaper where few are asked for.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        hidden: int = 64,
        steps: int | None = 10,
        alpha: float = 0.1,
        dropout: float = 0.5,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        checked_widths(d_in, (hidden,), d_out, dropout)
        self.steps, self.alpha, self.dropout = steps, alpha, dropout
        self.lin1, self.lin2 = Linear(d_in, hidden, generator=generator), Linear(hidden, d_out, generator=generator)
        self._operators = OperatorCache(gcn_operator)

    def forward(
        self, x: Features, edge_index: Tensor | Operator | Multiplies, edge_weight: Tensor | None = None
    ) -> Tensor:  # [n, d], [2, e] or [n, n] or [k, n], [e] -> [n, c] or [k, c]
        hidden = drop_and_multiply(self.lin1, x, self.dropout, self.training).relu()
        local: Tensor = self.lin2(dropout(hidden, self.dropout, self.training))
        if isinstance(edge_index, Tensor) and edge_index.is_floating_point():
            return multiply(edge_index, local)
        edges = edge_index
        operator = self._operators(edges, edge_weight, x) if isinstance(edges, Tensor | Operator) else edges
        if self.steps is None:
            assert isinstance(operator, Operator), "without steps there are no products to show"
            everybody = torch.arange(operator.shape[0], device=local.device)
            return multiply(ppr_rows(operator, everybody, alpha=self.alpha, steps=None), local)
        out = local
        for _ in range(self.steps):
            out = (1 - self.alpha) * multiply(operator, out) + self.alpha * local
        return out

    def prepare(self, x: Tensor, edge_index: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """See `StackAware`: ten hops reach nearly every node, so only the last step is cut down to `rows`."""
        operator = self._operators(edge_index, None, x)
        if rows is None:
            return features(x, dropped=True), operator
        return features(x, dropped=True), ppr_rows(operator, rows, alpha=self.alpha, steps=self.steps)

    def views(self) -> tuple[View, ...]:
        """See `SupportsFactoredGradient`: of the steps; their limit has none to show."""
        return () if self.steps is None else (Normalised(),)

    def through(self, x: Features, views: tuple[Multiplies, ...]) -> tuple[object, ...]:
        """See `SupportsFactoredGradient`."""
        return x, views[0]
