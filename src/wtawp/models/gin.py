"""Graph isomorphism network (Xu et al. 2019), for nodes: the layers without the readout over graphs."""

import torch
from torch import Tensor, nn

from wtawp.graphs.blocks import Blocks, receptive_field
from wtawp.graphs.normalisation import sum_operator
from wtawp.graphs.operator import Operator
from wtawp.models.adapter import Features, OperatorCache, features, operators_by_layer
from wtawp.models.dropout import dropout
from wtawp.models.layers import GinConvolution, checked_widths


class GIN(nn.Module):
    """Two convolutions by default, ReLU and dropout between them; each is PyG's `GINConv` around a two-layer MLP.

    `eps` weighs a node's own features with 1 + eps; `train_eps` learns it, layer by layer. An MLP is as wide inside as
    its output, the last one as its input: a ReLU on as many units as there are classes dies too easily.

    Called as PyG models are, with edges, whose weights make the sum a weighted one. In the place of `edge_index` it
    also takes the adjacency matrix, as an operator, or the blocks that lead to some rows.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        hidden: tuple[int, ...] = (64,),
        eps: float = 0.0,
        train_eps: bool = False,
        dropout: float = 0.5,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        widths = checked_widths(d_in, hidden, d_out, dropout)
        inside = (*hidden, hidden[-1] if hidden else d_out)
        self.convs = nn.ModuleList(
            GinConvolution(a, width, b, eps=eps, train_eps=train_eps, generator=generator)
            for (a, b), width in zip(widths, inside, strict=True)
        )
        self._operators = OperatorCache(sum_operator)

    def forward(
        self, x: Features, edge_index: Tensor | Operator | Blocks, edge_weight: Tensor | None = None
    ) -> Tensor:  # [n, d], [2, e] or [n, n], [e] -> [n, c]
        layers = operators_by_layer(edge_index, edge_weight, x, self._operators, len(self.convs))
        for conv, (operator, rows) in zip(self.convs[:-1], layers, strict=False):
            x = dropout(conv(x, operator).relu(), self.dropout, self.training, positions=rows)
        logits: Tensor = self.convs[-1](x, layers[-1][0])
        return logits

    def prepare(self, x: Tensor, edge_index: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """See `StackAware`: the exact receptive field of `rows`."""
        operator = self._operators(edge_index, None, x)
        if rows is None:
            return features(x), operator
        blocks = receptive_field(operator, rows, len(self.convs))
        return features(x, blocks.nodes[0]), blocks
