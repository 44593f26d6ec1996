"""Graph convolutional network (Kipf and Welling 2017), in the preset of the paper."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wtawp.graphs.operators import gcn_operator
from wtawp.models.adapter import OperatorCache
from wtawp.models.layers import GraphConvolution


class GCN(nn.Module):
    """Two graph convolutions by default, ReLU and dropout between them (not on the input, as in the released code).

    Called as PyG models are, with edges; the normalised operator is built once per graph. A sparse [n, n] tensor in
    the place of `edge_index` is taken as the operator itself.
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
        widths = pairwise((d_in, *hidden, d_out))
        self.convs = nn.ModuleList(GraphConvolution(a, b, generator=generator) for a, b in widths)
        self._operators = OperatorCache(gcn_operator)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        # [n, d], [2, e] or [n, n], [e] -> [n, c]
        operator = self._operators(edge_index, edge_weight, x)
        for conv in self.convs[:-1]:
            x = F.dropout(conv(x, operator).relu(), self.dropout, self.training)
        logits: Tensor = self.convs[-1](x, operator)
        return logits
