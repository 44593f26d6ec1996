"""Personalised propagation of neural predictions (Klicpera et al. 2019): PPNP, and its approximation APPNP."""

import torch
from torch import Tensor, nn

from wtawp.graphs.normalisation import gcn_operator
from wtawp.graphs.operator import Operator
from wtawp.graphs.pagerank import ppr_rows
from wtawp.graphs.products import Multiplies, multiply
from wtawp.models.caches import OperatorCache
from wtawp.models.capabilities import Features, GraphOperator, NormalisedAdjacency, StackAware, SupportsFactoredGradient
from wtawp.models.dropout import dropout
from wtawp.models.inputs import features
from wtawp.models.layers import Linear, checked_widths, drop_and_multiply

MANY = 0.5  # share of the nodes above which rows of PageRank are not built for them


class PPNP(nn.Module, StackAware, SupportsFactoredGradient):
    """Two linear layers with dropout before each, whose logits are then spread by personalised PageRank.

    By default PageRank is approximated by ten power iterations, which its authors call APPNP; `steps=None` computes
    the exact limit, PPNP. The model is called as PyG's models are.

    Args:
        d_in: Number of features of a node.
        d_out: Number of classes.
        hidden: Width of the hidden layer; the default is the paper's.
        steps: Number of power iterations, 10 as in the paper; None for the exact limit, which needs a dense n x n
            matrix.
        alpha: Probability in (0, 1] of returning to the start of the random walk; the default is the paper's.
        dropout: Share of units that are dropped in training before each linear layer, in [0, 1).
        generator: Draws the initial weights.

    Raises:
        ValueError: If a width is below 1, or the dropout is not in [0, 1).

    Example:
        >>> import torch
        >>> from wtawp.graphs import load
        >>> data = load("wine")
        >>> model = PPNP(13, 3, generator=torch.Generator().manual_seed(0))
        >>> model(data.x, data.edge_index).shape
        torch.Size([178, 3])
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
        self,
        x: Features,
        edge_index: Tensor | Operator | Multiplies,
        edge_weight: Tensor | None = None,
        rows: Tensor | None = None,
    ) -> Tensor:  # [n, d], [2, e] or [n, n] or [k, n], [e], [k] -> [n, c] or [k, c]
        """Compute the logits of the nodes.

        Args:
            x: Features of the nodes, [n, d], dense or sparse.
            edge_index: Edges [2, e]; or the normalised operator [n, n]; or k rows of the PageRank matrix [k, n], dense,
                which are cheaper than the iterations where few rows are wanted.
            edge_weight: Weights of the edges, [e]; None if all are 1. Unused unless edges are given.
            rows: The nodes whose logits are wanted, [k]; None for all, and for rows of the PageRank matrix.

        Returns:
            Logits [n, c], or [k, c] for some rows.
        """
        hidden = drop_and_multiply(self.lin1, x, self.dropout, self.training).relu()
        local: Tensor = self.lin2(dropout(hidden, self.dropout, self.training))
        if isinstance(edge_index, Tensor) and edge_index.is_floating_point():
            return multiply(edge_index, local)
        edges = edge_index
        operator = self._operators(edges, edge_weight, x) if isinstance(edges, Tensor | Operator) else edges
        if self.steps is None:
            assert isinstance(operator, Operator), "the exact limit needs the operator itself"
            all_nodes = torch.arange(operator.shape[0], device=local.device)
            return multiply(ppr_rows(operator, all_nodes, alpha=self.alpha, steps=None), local)
        out = local
        for _ in range(self.steps):
            out = (1 - self.alpha) * multiply(operator, out) + self.alpha * local
        return out if rows is None else out[..., rows, :]

    def prepare(self, x: Tensor, edge_index: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """See `StackAware.prepare`.

        Ten hops reach nearly every node, so the linear layers see all nodes, and `rows` select rows of PageRank. These
        are dense, and take as many steps to build as the model has. Where most rows are wanted, iterations cost less.
        """
        operator = self._operators(edge_index, None, x)
        if rows is None:
            return features(x, dropped=True), operator
        takes_rows = type(self).forward is PPNP.forward  # a subclass may have a `forward` of its own
        if takes_rows and self.steps is not None and len(rows) > MANY * operator.shape[0]:
            return features(x, dropped=True), operator, None, rows
        return features(x, dropped=True), ppr_rows(operator, rows, alpha=self.alpha, steps=self.steps)

    def graph_operators(self) -> tuple[GraphOperator, ...]:
        """Name the operators through which the model reaches the graph, as `SupportsFactoredGradient` asks.

        Returns:
            The normalised adjacency matrix; nothing for `steps=None`, which has no products to differentiate.
        """
        return () if self.steps is None else (NormalisedAdjacency(),)

    def forward_args(self, x: Features, operators: tuple[Multiplies, ...]) -> tuple[object, ...]:
        """See `SupportsFactoredGradient.forward_args`."""
        return x, operators[0]
