"""GNNGuard (Zhang and Zitnik 2020) on a GCN: a node listens to its neighbours as far as they resemble it."""

from functools import partial

import torch
from torch import Tensor, nn

from wtawp.base import DataError
from wtawp.graphs.normalisation import gcn_operator
from wtawp.graphs.operator import Operator
from wtawp.graphs.similarity import cosine
from wtawp.models.adapter import Features, LastCallCache, OperatorCache, features
from wtawp.models.dropout import dropout
from wtawp.models.layers import GraphConvolution, checked_widths


class GNNGuard(nn.Module):
    """The layers of a `GCN`, each over edge weights of its own, made from the cosine similarity of the layer's input.

    Edges below `threshold` are pruned, for this layer and all that follow; the similarities of the others, divided by
    their sum over a node's edges, are its trust a. An edge then weighs exp(a), a self-loop exp(1 / (degree + 1)), and
    the whole is normalised as a GCN's graph is: so in the authors' code, where the memory between layers is switched
    off, which is left out here. Unlike there, gradients pass through the similarities of hidden layers, so that an
    attack by gradients sees the defence. Edge weights multiply both similarity and exp(a): one of 0 is no edge.

    Called as PyG models are, with edges. In the place of `edge_index` it also takes A + I as an operator.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        hidden: tuple[int, ...] = (16,),
        threshold: float = 0.1,
        dropout: float = 0.5,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        widths = checked_widths(d_in, hidden, d_out, dropout)
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold must lie in [0, 1], got {threshold}")
        self.dropout, self.threshold = dropout, threshold
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
        """`rows` asks for the logits of some nodes."""
        operator = self._operators(edge_index, edge_weight, x)
        similarity = self._first(operator, x)
        kept = similarity >= self.threshold
        for conv in self.convs[:-1]:
            entries = guarded(operator, similarity, kept)
            out: Tensor = conv(x, operator, entries=lambda _, values=entries: values).relu()
            similarity = cosine(operator.rows, operator.indices.long(), out)
            kept = kept & (similarity >= self.threshold)
            x = dropout(out, self.dropout, self.training)
        entries = guarded(operator, similarity, kept)
        logits: Tensor = self.convs[-1](x, operator, entries=lambda _: entries)
        return logits if rows is None else logits[..., rows, :]

    def prepare(self, x: Tensor, edge_index: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """See `StackAware`: the weights of all neighbours' edges count, so every layer is over the whole graph."""
        return features(x), self._operators(edge_index, None, x), None, rows


def guarded(operator: Operator, similarity: Tensor, kept: Tensor) -> Tensor:  # [n, n], [..., e], [..., e] -> [..., e]
    """The entries that a layer multiplies with, in the place of those of A + I."""
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
    return values.new_zeros(*values.shape[:-1], operator.shape[0]).index_add(-1, operator.rows, values)


def _similarities(operator: Operator, x: Features, threshold: float) -> Tensor:
    found = cosine(operator.rows, operator.indices.long(), x)
    edges = operator.rows != operator.indices
    if bool(edges.any()) and not bool((found[edges] >= threshold).any()):
        raise DataError(
            f"all edges join nodes with a cosine similarity below {threshold}: GNNGuard needs features that neighbours"
            " share, which identity features (PolBlogs) are not; lower the threshold or take a GCN"
        )
    return found
