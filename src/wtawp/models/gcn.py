"""Graph convolutional network (Kipf and Welling 2017), in the preset of the paper."""

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from wtawp.graphs.blocks import Blocks, receptive_field
from wtawp.graphs.normalisation import gcn_operator
from wtawp.graphs.operator import Operator
from wtawp.graphs.products import Multiplies, aligned, multiply
from wtawp.models.adapter import Features, Normalised, OperatorCache, View, features, operators_by_layer
from wtawp.models.layers import GraphConvolution, checked_widths


class GCN(nn.Module):
    """Two graph convolutions by default, ReLU and dropout between them (not on the input, as in the released code).

    Called as PyG models are, with edges; the normalised operator is built once per graph. In the place of
    `edge_index` it also takes that operator, or the blocks that lead to some rows.
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
        self.convs = nn.ModuleList(GraphConvolution(a, b, generator=generator) for a, b in widths)
        self._operators = OperatorCache(gcn_operator)

    def forward(
        self, x: Features, edge_index: Tensor | Operator | Multiplies | Blocks, edge_weight: Tensor | None = None
    ) -> Tensor:  # [n, d], [2, e] or [n, n], [e] -> [n, c]
        layers = operators_by_layer(edge_index, edge_weight, x, self._operators, len(self.convs))
        for conv, (operator, rows) in zip(self.convs[:-1], layers, strict=False):
            x = conv(x, operator, relu_and_drop=self.dropout, positions=rows)
        logits: Tensor = self.convs[-1](x, layers[-1][0])
        return logits

    def prepare(self, x: Tensor, edge_index: Tensor | Operator, rows: Tensor | None) -> tuple[object, ...]:
        """See `StackAware`: the exact receptive field of `rows`. An operator may stand in for the edges here as well.

        Nothing is dropped from the input, so A_hat X of dense features is computed here, once. (Of bags of words it
        would have many more non-zeros than X.)
        """
        operator = self._operators(edge_index, None, x)
        if rows is None:
            everybody = torch.arange(operator.shape[0], device=operator.values.device)
            blocks = Blocks((everybody,) * (len(self.convs) + 1), (operator,) * len(self.convs))
            given = features(x)
        else:
            blocks = receptive_field(operator, rows, len(self.convs))
            given = features(x, blocks.nodes[0])
        if isinstance(given, Operator):
            return given, blocks
        gathered = aligned(multiply(blocks.operators[0], given))
        stay = Operator.identity(len(gathered), gathered.dtype, gathered.device)
        return gathered, replace(blocks, operators=(stay, *blocks.operators[1:]))

    def convolutions(self) -> list[tuple[Tensor, Tensor]]:
        """See `StacksConvolutions`."""
        return [(cast(Tensor, conv.weight).detach(), cast(Tensor, conv.bias).detach()) for conv in self.convs]

    def views(self) -> tuple[View, ...]:
        """See `SupportsFactoredGradient`."""
        return (Normalised(),)

    def through(self, x: Features, views: tuple[Multiplies, ...]) -> tuple[object, ...]:
        """See `SupportsFactoredGradient`."""
        return x, views[0]
