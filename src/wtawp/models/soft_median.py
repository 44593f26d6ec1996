"""Soft-Median GCN (Geisler et al. 2021): neighbours far from the median of a neighbourhood hardly count."""

import math
from functools import partial

import torch
from torch import Tensor, nn

from wtawp.graphs.blocks import Blocks, receptive_field
from wtawp.graphs.normalisation import gcn_operator
from wtawp.graphs.operator import Operator
from wtawp.graphs.row_norms import row_norms
from wtawp.models.caches import OperatorCache
from wtawp.models.capabilities import Features, StackAware
from wtawp.models.dropout import dropout
from wtawp.models.inputs import features, operators_by_layer
from wtawp.models.layers import GraphConvolution, checked_widths

SLACK = 1e-9  # of half a weight, so that ties do not depend on how sums are rounded


class SoftMedianGCN(nn.Module, StackAware):
    """A `GCN` that aggregates robustly: neighbours far from the median of the neighbourhood get small weights.

    Entry (i, j) of the normalised graph is multiplied by softmax_j(-|h_j - m_i| / (T sqrt(d))), where h = X W and m_i
    is the weighted median, dimension by dimension, of the neighbourhood of i. Each row is then rescaled to the sum it
    had. Gradients pass through the weights, the distances and the values of the median, but not through the choice of
    the node whose value is the median. The model is called as PyG's models are.

    Args:
        d_in: Number of features of a node.
        d_out: Number of classes.
        hidden: Widths of the hidden layers, one number each; the default is one layer of 64 units, the same as GCN.
        temperature: T above, positive. A large one gives a GCN, a small one takes the neighbour nearest to the median.
        dropout: Share of units that are dropped in training after each hidden layer, in [0, 1).
        generator: Draws the initial weights.

    Raises:
        ValueError: If a width is below 1, the temperature is not positive, or the dropout is not in [0, 1).

    Example:
        >>> import torch
        >>> from wtawp.graphs import load
        >>> data = load("wine")
        >>> model = SoftMedianGCN(13, 3, generator=torch.Generator().manual_seed(0))
        >>> model(data.x, data.edge_index).shape
        torch.Size([178, 3])
    """

    reads_rows = True

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
        """Compute the logits of the nodes.

        Args:
            x: Features of the nodes, [n, d], dense or sparse.
            edge_index: Edges [2, e]; or the normalised operator [n, n]; or blocks of operators that lead to some rows,
                as `prepare` makes them.
            edge_weight: Weights of the edges, [e]; None if all are 1. Unused unless edges are given.

        Returns:
            Logits [n, c]; with blocks, those of the last block's rows.
        """
        layers = operators_by_layer(edge_index, edge_weight, x, self._operators, len(self.convs))
        entries = partial(soft_median_entries, temperature=self.temperature)
        for conv, (operator, rows) in zip(self.convs[:-1], layers, strict=False):
            out: Tensor = conv(x, operator, entries=partial(entries, operator)).relu()
            x = dropout(out, self.dropout, self.training, positions=rows)
        operator = layers[-1][0]
        logits: Tensor = self.convs[-1](x, operator, entries=partial(entries, operator))
        return logits

    def prepare(self, x: Tensor, edge_index: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """See `StackAware.prepare`. Only the exact receptive field of `rows` is computed."""
        operator = self._operators(edge_index, None, x)
        if rows is None:
            return features(x), operator
        blocks = receptive_field(operator, rows, len(self.convs))
        return features(x, blocks.nodes[0]), blocks


def soft_median_entries(
    operator: Operator, dense: Tensor, *, temperature: float
) -> Tensor:  # [n, m], [..., m, h] -> [..., e]
    """Compute the entries of the operator, weighted by the distance of each column to the median of the row."""
    rows, cols, values = operator.rows, operator.indices.long(), operator.values
    median = dense.take_along_dim(median_columns(operator, dense), -2)  # [..., n, h]
    distance = row_norms(dense[..., cols, :] - median[..., rows, :])
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
    """Find the column that holds the weighted median of `dense`, for each row and dimension: the lower one of two.

    In the order of their values, this is the first column at which the entries up to it sum to half of the row's sum.
    Entries must not be negative. A row without entries has no median, and its result is meaningless.
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
    middle = (start + below).clamp_max(max(len(rows) - 1, 0))
    return cols[entry.gather(-1, middle)].mT
