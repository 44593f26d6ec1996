"""Graph attention network (Velickovic et al. 2018), in the preset of the paper: 8 heads of 8, then one."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wtawp.graphs.operators import Operator, gcn_operator
from wtawp.models.adapter import Features, OperatorCache, features
from wtawp.models.layers import GraphAttention


class GAT(nn.Module):
    """Two attention layers with ELU between them; dropout on the input of each and on the attention.

    Called as PyG models are; self-loops are added. In the place of `edge_index` it also takes an operator, of which
    the structure counts and the values do not.
    """

    def __init__(
        self, d_in: int, d_out: int, *, width: int = 8, heads: int = 8, dropout: float = 0.5, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.dropout = dropout
        first = GraphAttention(d_in, width, heads=heads, concat=True, generator=generator)
        last = GraphAttention(heads * width, d_out, heads=1, concat=False, generator=generator)
        self.convs = nn.ModuleList([first, last])
        self._operators = OperatorCache(gcn_operator)

    def forward(
        self, x: Features, edge_index: Tensor | Operator, edge_weight: Tensor | None = None, rows: Tensor | None = None
    ) -> Tensor:  # [n, d], [2, e] or [n, n] -> [n, c]
        if edge_weight is not None:
            raise ValueError("attention takes no edge weights; pass edge_weight=None")
        operator = self._operators(edge_index, None, x)
        hidden = F.elu(self.convs[0](x, operator, self.dropout))
        logits: Tensor = self.convs[1](hidden, operator, self.dropout)
        return logits if rows is None else logits[rows]

    def prepare(self, x: Tensor, edge_index: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """See `Prepares`."""
        return features(x), self._operators(edge_index, None, x), None, rows
