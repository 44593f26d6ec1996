"""Soft-Median GCN (Geisler et al. 2021): neighbours far from the median of a neighbourhood hardly count."""

import math
from functools import partial

import torch
from torch import Tensor, nn

from wtawp.graphs.blocks import Blocks, receptive_field
from wtawp.graphs.normalisation import gcn_operator
from wtawp.graphs.operator import Operator
from wtawp.models.adapter import Features, OperatorCache, features, operators_by_layer
from wtawp.models.dropout import dropout
from wtawp.models.layers import GraphConvolution, checked_widths

SLACK = 1e-9  # of half a weight, so that ties do not depend on how sums are rounded


class SoftMedianGCN(nn.Module):
    """The layers of a `GCN` with another aggregation of X W: entries shrink with the distance to the median.

    Entry (i, j) of the normalised graph is multiplied by softmax_j(-|h_j - m_i| / (T sqrt(d))), m_i being the weighted
    median, dimension by dimension, of i's neighbourhood, and each row is scaled back to the sum it had. A large
    `temperature` T gives a GCN, a small one the neighbour nearest to the median. Gradients pass through weights,
    distances and the values of the median, not through the choice of whose value it is.

    Called as PyG models are, with edges. In the place of `edge_index` it also takes the normalised operator, or the
    blocks that lead to some rows.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        hidden: tuple[int, ...] = (64,),
        temperature: float = 0.5,
        dropout: float = 0.5,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        widths = checked_widths(d_in, hidden, d_out, dropout)
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        self.dropout, self.temperature = dropout, temperature
        self.convs = nn.ModuleList(GraphConvolution(a, b, generator=generator) for a, b in widths)
        self._operators = OperatorCache(gcn_operator)

    def forward(
        self, x: Features, edge_index: Tensor | Operator | Blocks, edge_weight: Tensor | None = None
    ) -> Tensor:  # [n, d], [2, e] or [n, n], [e] -> [n, c]
        layers = operators_by_layer(edge_index, edge_weight, x, self._operators, len(self.convs))
        entries = partial(soft_median_entries, temperature=self.temperature)
        for conv, (operator, rows) in zip(self.convs[:-1], layers, strict=False):
            out: Tensor = conv(x, operator, entries=partial(entries, operator)).relu()
            x = dropout(out, self.dropout, self.training, positions=rows)
        operator = layers[-1][0]
        logits: Tensor = self.convs[-1](x, operator, entries=partial(entries, operator))
        return logits

    def prepare(self, x: Tensor, edge_index: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """See `StackAware`: the exact receptive field of `rows`."""
        operator = self._operators(edge_index, None, x)
        if rows is None:
            return features(x), operator
        blocks = receptive_field(operator, rows, len(self.convs))
        return features(x, blocks.nodes[0]), blocks


def soft_median_entries(
    operator: Operator, dense: Tensor, *, temperature: float
) -> Tensor:  # [n, m], [..., m, h] -> [..., e]
    """The operator's entries after weighing each row's columns by their distance to the row's median."""
    rows, cols, values = operator.rows, operator.indices.long(), operator.values
    median = dense.take_along_dim(median_columns(operator, dense), -2)  # [..., n, h]
    distance = torch.linalg.vector_norm(dense[..., cols, :] - median[..., rows, :], dim=-1)
    distance = distance / (temperature * math.sqrt(dense.shape[-1]))
    # The softmax's own denominator cancels. The nearest column that counts gets exp(0); what does not count stays 0.
    counted = torch.where(values > 0, distance, torch.inf).detach()
    nearest = counted.new_full((*counted.shape[:-1], operator.shape[0]), torch.inf)
    nearest = nearest.scatter_reduce(-1, rows.expand_as(counted), counted, "amin")
    weighed = values * (nearest[..., rows] - distance).clamp_max(0).exp()
    before, after = (t.new_zeros(*t.shape[:-1], operator.shape[0]).index_add(-1, rows, t) for t in (values, weighed))
    scaled: Tensor = weighed * (before / after)[..., rows]
    return scaled


@torch.no_grad()
def median_columns(operator: Operator, dense: Tensor) -> Tensor:  # [n, m], [..., m, h] -> [..., n, h]
    """For each row and dimension the column that holds the weighted median of `dense`: the lower one, if there are two.

    That is the first in order of value at which the entries so far sum to half of the row's sum. Entries must not be
    negative, and a row without any has no median: what stands there means nothing.
    """
    rows, cols, (n, m) = operator.rows, operator.indices.long(), operator.shape
    order = dense.mT.argsort(-1)  # [..., h, m]
    place = torch.empty_like(order)
    rank = place.scatter_(-1, order, torch.arange(m, device=order.device).expand_as(order))
    entry = (rows * m + rank[..., cols]).argsort(-1)  # [..., h, e]: row by row, and in a row by value
    weight = operator.values.double()
    half = weight.new_zeros(n).index_add(0, rows, weight) / 2 * (1 - SLACK)
    so_far = weight[entry].cumsum(-1)
    start = operator.indptr[:-1].long()  # [n]
    before = torch.cat([so_far.new_zeros(*so_far.shape[:-1], 1), so_far], -1)[..., start]  # [..., h, n]
    is_below = (so_far - before[..., rows] < half[rows]).long()
    below = is_below.new_zeros(before.shape).index_add(-1, rows, is_below)
    found = (start + below).clamp_max(max(len(rows) - 1, 0))
    return cols[entry.gather(-1, found)].mT
