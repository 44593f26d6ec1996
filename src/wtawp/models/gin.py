"""Graph isomorphism network (Xu et al. 2019), for nodes: the layers without the readout over graphs."""

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.graphs.blocks import Blocks, receptive_field
from wtawp.graphs.normalisation import sum_operator
from wtawp.graphs.operator import Operator
from wtawp.models.batch_blocks import batch_blocks
from wtawp.models.caches import OperatorCache
from wtawp.models.capabilities import Features, RunsByLayer, StackAware
from wtawp.models.dropout import dropout
from wtawp.models.inputs import features, operators_by_layer
from wtawp.models.layers import GinConvolution, checked_flag, checked_widths


class GIN(nn.Module, StackAware, RunsByLayer):
    """Graph isomorphism network: convolutions with ReLU and dropout between them, each PyG's `GINConv` with an MLP.

    The MLP of a convolution has one hidden layer, as wide as its output; in the last convolution it is as wide as the
    input, because a ReLU on as many units as there are classes dies too easily. The model is called as PyG's models
    are; edge weights make the sum over neighbours a weighted sum.

    Args:
        d_in: Number of features of a node.
        d_out: Number of classes.
        hidden: Widths of the hidden layers, one number each; the default is one layer of 64 units, the same as the
            other models.
        eps: A node's own features are weighted with 1 + eps; 0 as in PyG.
        train_eps: Whether `eps` is a parameter of each layer and is learned; not by default, as in PyG.
        dropout: Share of units that are dropped in training after each hidden layer, in [0, 1).
        generator: Draws the initial weights.

    Raises:
        ValueError: If a width is below 1, `hidden` is a single number, or the dropout is not in [0, 1).

    Example:
        >>> import torch
        >>> from wtawp.graphs import load
        >>> data = load("wine")
        >>> model = GIN(13, 3, generator=torch.Generator().manual_seed(0))
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
        eps: float = 0.0,
        train_eps: bool = False,
        dropout: float = 0.5,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        widths = checked_widths(d_in, hidden, d_out, dropout)
        mlp_widths = (*hidden, hidden[-1] if hidden else d_out)
        self.convs = nn.ModuleList(
            GinConvolution(a, width, b, eps=eps, train_eps=checked_flag("train_eps", train_eps), generator=generator)
            for (a, b), width in zip(widths, mlp_widths, strict=True)
        )
        self._operators = OperatorCache(sum_operator)

    def forward(
        self, x: Features, edge_index: Tensor | Operator | Blocks, edge_weight: Tensor | None = None
    ) -> Tensor:  # [n, d], [2, e] or [n, n], [e] -> [n, c]
        """Compute the logits of the nodes.

        Args:
            x: Features of the nodes, [n, d], dense or sparse.
            edge_index: Edges [2, e]; or the adjacency matrix as an operator [n, n]; or blocks of operators that lead to
                some rows, as `prepare` makes them.
            edge_weight: Weights of the edges, [e]; None if all are 1. Unused unless edges are given.

        Returns:
            Logits [n, c]; with blocks, those of the last block's rows.
        """
        layers = operators_by_layer(edge_index, edge_weight, x, self._operators, len(self.convs))
        for conv, (operator, rows) in zip(self.convs[:-1], layers, strict=False):
            x = dropout(conv(x, operator).relu(), self.dropout, self.training, positions=rows)
        logits: Tensor = self.convs[-1](x, layers[-1][0])
        return logits

    def prepare(self, x: Tensor, edge_index: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """See `StackAware.prepare`. Only the exact receptive field of `rows` is computed."""
        operator = self._operators(edge_index, None, x)
        if rows is None:
            return features(x), operator
        blocks = receptive_field(operator, rows, len(self.convs))
        return features(x, blocks.nodes[0]), blocks

    @property
    def num_hops(self) -> int:
        """The number of convolutions."""
        return len(self.convs)

    @property
    def needs_gcn_weights(self) -> bool:
        """False: the sum over neighbours is not normalised."""
        return False

    def batch_arguments(self, batch: Data) -> tuple[object, ...]:
        """See `RunsOnBatches.batch_arguments`."""
        return batch.x, batch_blocks(batch, len(self.convs), "sum")

    def infer_layer(self, number: int, batch: Data) -> Tensor:
        """See `RunsByLayer.infer_layer`."""
        out: Tensor = self.convs[number](batch.x, batch_blocks(batch, 1, "sum").operators[0])
        return out.relu() if number + 1 < len(self.convs) else out
