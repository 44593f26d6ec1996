"""GraphSAGE with the mean aggregator (Hamilton et al. 2017), over the whole graph."""

import torch
from torch import Tensor, nn

from wtawp.graphs.blocks import Blocks, receptive_field
from wtawp.graphs.normalisation import mean_operator
from wtawp.graphs.operator import Operator
from wtawp.models.adapter import Features, OperatorCache, features, operators_by_layer
from wtawp.models.dropout import dropout
from wtawp.models.layers import SageConvolution, checked_widths


class GraphSAGE(nn.Module):
    """Two convolutions by default, ReLU and dropout between them; PyG's `GraphSAGE`, layer for layer.

    Called as PyG models are, with edges; a node without any has the mean 0, and weights make it a weighted mean. In the
    place of `edge_index` it also takes the operator that averages, or the blocks that lead to some rows.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        hidden: tuple[int, ...] = (64,),
        dropout: float = 0.5,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        widths = checked_widths(d_in, hidden, d_out, dropout)
        self.convs = nn.ModuleList(SageConvolution(a, b, generator=generator) for a, b in widths)
        self._operators = OperatorCache(mean_operator)

    def forward(
        self,
        x: Features,
        edge_index: Tensor | Operator | Blocks,
        edge_weight: Tensor | None = None,
        own: Features | None = None,
    ) -> Tensor:  # [n, d], [2, e] or [n, n], [e] -> [n, c]
        """`own` are the features of the nodes after the first hop, in blocks; None takes them from x."""
        layers = operators_by_layer(edge_index, edge_weight, x, self._operators, len(self.convs))
        for conv, (operator, rows) in zip(self.convs[:-1], layers, strict=False):
            x = dropout(conv(x, operator, own).relu(), self.dropout, self.training, positions=rows)
            own = None
        logits: Tensor = self.convs[-1](x, layers[-1][0], own)
        return logits

    def prepare(self, x: Tensor, edge_index: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """See `StackAware`: the exact receptive field of `rows`."""
        operator = self._operators(edge_index, None, x)
        if rows is None:
            return features(x), operator
        blocks = receptive_field(operator, rows, len(self.convs))
        first = features(x, blocks.nodes[0])
        # Dense features have their first rows for nothing; of sparse ones the transpose must be cut as well, once.
        own = features(x, blocks.nodes[1]) if isinstance(first, Operator) else None
        return first, blocks, None, own
