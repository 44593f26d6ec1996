"""GNNGuard (Zhang and Zitnik 2020) on a GCN: edges count by how similar the two nodes are."""

from functools import partial

import torch
from torch import Tensor, nn

from wtawp.base import DataError
from wtawp.graphs.normalisation import gcn_operator
from wtawp.graphs.operator import Operator
from wtawp.graphs.similarity import cosine
from wtawp.models.caches import LastCallCache, OperatorCache
from wtawp.models.capabilities import Features, StackAware
from wtawp.models.dropout import dropout
from wtawp.models.inputs import features
from wtawp.models.layers import GraphConvolution, checked_flag, checked_widths


class GNNGuard(nn.Module, StackAware):
    """A `GCN` in which each layer weights the edges by the cosine similarity of its input at the two nodes.

    Edges with a similarity below `threshold` are pruned, for this layer and, by default, all that follow. The
    similarities of a node's remaining edges, divided by their sum, are the trust a of each edge. An edge then has
    weight exp(a), a self-loop exp(1 / (degree + 1)), and the result is normalised like a GCN's graph. This is what the
    authors' code computes, in which the memory between layers is switched off (it is left out here). Unlike there,
    gradients pass through the similarities of hidden layers, so that a gradient-based attack takes the defence into
    account. Edge weights multiply both the similarity and exp(a), so that an edge of weight 0 has no effect.

    Args:
        d_in: Number of features of a node.
        d_out: Number of classes.
        hidden: Widths of the hidden layers, one number each; the default is one layer of 16 units, as in the authors'
            code.
        threshold: Similarity in [0, 1] below which an edge is pruned; the default is the authors'.
        dropout: Share of units that are dropped in training after each hidden layer, in [0, 1).
        reuses_pruned: Whether a layer starts from the edges that the layer before it has left, as in the authors' code.
            Otherwise each layer prunes the edges of the graph anew, as their paper says.
        generator: Draws the initial weights.

    Raises:
        ValueError: If a width is below 1, the threshold is not in [0, 1], the dropout is not in [0, 1), or
            `reuses_pruned` is neither True nor False.

    Example:
        >>> import torch
        >>> from wtawp.graphs import load
        >>> data = load("wine")
        >>> model = GNNGuard(13, 3, generator=torch.Generator().manual_seed(0))
        >>> model(data.x, data.edge_index).shape
        torch.Size([178, 3])
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        hidden: tuple[int, ...] = (16,),
        threshold: float = 0.1,
        dropout: float = 0.5,
        reuses_pruned: bool = True,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        widths = checked_widths(d_in, hidden, d_out, dropout)
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold must lie in [0, 1], got {threshold}")
        self.dropout, self.threshold = dropout, threshold
        self.reuses_pruned = checked_flag("reuses_pruned", reuses_pruned)
        self.convs = nn.ModuleList(GraphConvolution(a, b, generator=generator) for a, b in widths)
        self._operators = OperatorCache(partial(gcn_operator, power=0.0))  # A + I, not normalised
        self._first = LastCallCache(partial(_similarities, threshold=threshold))

    def forward(
        self,
        x: Features,
        edge_index: Tensor | Operator,
        edge_weight: Tensor | None = None,
        rows: Tensor | None = None,
    ) -> Tensor:  # [n, d], [2, e] or [n, n], [e] -> [n, c]
        """Compute the logits of the nodes.

        Args:
            x: Features of the nodes, [n, d], dense or sparse.
            edge_index: Edges [2, e], or A + I as an operator [n, n].
            edge_weight: Weights of the edges, [e]; None if all are 1. Unused unless edges are given.
            rows: The nodes whose logits are wanted, [k]; None for all nodes.

        Returns:
            Logits [n, c], or [k, c].

        Raises:
            DataError: If no edge joins nodes with a similarity of at least the threshold.
        """
        operator = self._operators(edge_index, edge_weight, x)
        similarity = self._first(operator, x)
        kept = similarity >= self.threshold
        for conv in self.convs[:-1]:
            entries = guarded(operator, similarity, kept)
            out: Tensor = conv(x, operator, entries=lambda _, values=entries: values).relu()
            similarity = cosine(operator.rows, operator.indices.long(), out)
            is_similar = similarity >= self.threshold
            kept = kept & is_similar if self.reuses_pruned else is_similar
            x = dropout(out, self.dropout, self.training)
        entries = guarded(operator, similarity, kept)
        logits: Tensor = self.convs[-1](x, operator, entries=lambda _: entries)
        return logits if rows is None else logits[..., rows, :]

    def prepare(self, x: Tensor, edge_index: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """See `StackAware.prepare`.

        An edge's weight depends on all edges of both nodes, so every layer is computed for the whole graph.
        """
        return features(x), self._operators(edge_index, None, x), None, rows


def guarded(operator: Operator, similarity: Tensor, kept: Tensor) -> Tensor:  # [n, n], [..., e], [..., e] -> [..., e]
    """Compute the entries that a layer multiplies with, instead of those of A + I, from its similarities."""
    rows, cols = operator.rows, operator.indices.long()
    is_loop = rows == cols
    weight = operator.values * (kept & ~is_loop)
    trust = weight * similarity
    total = _row_sums(trust, operator)
    trust = trust / torch.where(total > 0, total, 1)[..., rows]
    loop = (1 / (_row_sums(weight, operator) + 1)).exp()
    weight = torch.where(is_loop, loop[..., rows], weight * trust.exp())
    scale = _row_sums(weight, operator).rsqrt()  # the self-loop alone weighs 1 or more
    return scale[..., rows] * weight * scale[..., cols]


def _row_sums(values: Tensor, operator: Operator) -> Tensor:  # [..., e] -> [..., n]
    """Sum the entries of each row."""
    return values.new_zeros(*values.shape[:-1], operator.shape[0]).index_add(-1, operator.rows, values)


def _similarities(operator: Operator, x: Features, threshold: float) -> Tensor:
    """Compute the similarities of the input; refuse features that would prune every edge."""
    similarity = cosine(operator.rows, operator.indices.long(), x)
    edges = operator.rows != operator.indices
    if bool(edges.any()) and not bool((similarity[edges] >= threshold).any()):
        raise DataError(
            f"all edges join nodes with a cosine similarity below {threshold}: GNNGuard needs features that neighbours"
            " share, which identity features (PolBlogs) are not; lower the threshold or take a GCN"
        )
    return similarity
