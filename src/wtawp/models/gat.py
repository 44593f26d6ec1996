"""Graph attention network (Velickovic et al. 2018), in the preset of the paper: 8 heads of 8, then one."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wtawp.graphs.blocks import receptive_field
from wtawp.graphs.normalisation import gcn_operator
from wtawp.graphs.operator import Operator
from wtawp.models.adapter import Features, OperatorCache, features
from wtawp.models.layers import GraphAttention, Hop, checked_widths


class GAT(nn.Module):
    """Two attention layers with ELU between them; dropout on the input of each and on the attention.

    Called as PyG models are; self-loops are added. Edge weights multiply exp(score) inside the softmax, so that one of
    0 is an edge that is not there. In the place of `edge_index` it also takes an operator, of which the structure
    counts and the values do not.
    """

    def __init__(
        self, d_in: int, d_out: int, *, width: int = 8, heads: int = 8, dropout: float = 0.5, generator: torch.Generator
    ) -> None:
        super().__init__()
        checked_widths(d_in, (width, heads), d_out, dropout)
        self.dropout = dropout
        first = GraphAttention(d_in, width, heads=heads, concat=True, generator=generator)
        last = GraphAttention(heads * width, d_out, heads=1, concat=False, generator=generator)
        self.convs = nn.ModuleList([first, last])
        self._operators = OperatorCache(gcn_operator)
        self._weighted = OperatorCache(partial(gcn_operator, power=0.0))  # A + I, not normalised

    def forward(
        self, x: Features, edge_index: Tensor | Operator | tuple[Hop, ...], edge_weight: Tensor | None = None
    ) -> Tensor:  # [n, d], [2, e] or [n, n], [e] -> [n, c]
        if isinstance(edge_index, tuple):
            first, last = edge_index
        elif edge_weight is not None:
            operator = self._weighted(edge_index, edge_weight, x)
            first = last = replace(Hop.whole(operator), weights=operator.values)
        else:
            first = last = Hop.whole(self._operators(edge_index, None, x))
        hidden = F.elu(self.convs[0](x, first, self.dropout))
        logits: Tensor = self.convs[1](hidden, last, self.dropout)
        return logits

    def prepare(self, x: Tensor, edge_index: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """See `StackAware`: the exact receptive field of `rows`."""
        operator = self._operators(edge_index, None, x)
        if rows is None:
            return features(x, dropped=True), (Hop.whole(operator),) * 2
        blocks = receptive_field(operator, rows, 2)
        return features(x, blocks.nodes[0], dropped=True), Hop.through(blocks, operator.shape[0])
