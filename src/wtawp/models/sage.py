"""GraphSAGE with the mean aggregator (Hamilton et al. 2017), over the whole graph."""

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.graphs.blocks import Blocks, receptive_field
from wtawp.graphs.normalisation import mean_operator
from wtawp.graphs.operator import Operator
from wtawp.models.batch_blocks import batch_blocks
from wtawp.models.caches import OperatorCache
from wtawp.models.capabilities import Features, RunsByLayer, StackAware
from wtawp.models.dropout import dropout
from wtawp.models.inputs import features, operators_by_layer
from wtawp.models.layers import SageConvolution, checked_flag, checked_widths
from wtawp.models.norms import Norm, hidden_norms


class GraphSAGE(nn.Module, StackAware, RunsByLayer):
    """GraphSAGE with the mean aggregator: convolutions with ReLU and dropout between them, as in PyG's `GraphSAGE`.

    The model is called as PyG's models are. A node without edges has the mean 0; edge weights make the mean over
    neighbours a weighted mean.

    Args:
        d_in: Number of features of a node.
        d_out: Number of classes.
        hidden: Widths of the hidden layers, one number each; the default is one layer of 64 units, the same as the
            other models.
        dropout: Share of units that are dropped in training after each hidden layer, in [0, 1).
        norm: Normalises the hidden features after each convolution, before the activation: "layer" each node over its
            features, "batch" each feature over all nodes, which freezes the biases that it makes superfluous. None, the
            default, does not.
        residual: Whether each hidden layer has a linear skip connection, which adds its input, times a weight, to the
            output of its convolution.
        generator: Draws the initial weights.

    Raises:
        ValueError: If a width is below 1, `hidden` is a single number, the dropout is not in [0, 1), or `norm` or
            `residual` has another value than those named above.

    Example:
        >>> import torch
        >>> from wtawp.graphs import load
        >>> data = load("wine")
        >>> model = GraphSAGE(13, 3, generator=torch.Generator().manual_seed(0))
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
        dropout: float = 0.5,
        norm: Norm | None = None,
        residual: bool = False,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.dropout, residual = dropout, checked_flag("residual", residual)
        *widths, last = checked_widths(d_in, hidden, d_out, dropout)
        self.convs = nn.ModuleList(SageConvolution(a, b, residual=residual, generator=generator) for a, b in widths)
        self.convs.append(SageConvolution(*last, generator=generator))
        self.norms = hidden_norms(norm, self.convs[:-1])
        self._operators = OperatorCache(mean_operator)

    def forward(
        self,
        x: Features,
        edge_index: Tensor | Operator | Blocks,
        edge_weight: Tensor | None = None,
        own: Features | None = None,
    ) -> Tensor:  # [n, d], [2, e] or [n, n], [e] -> [n, c]
        """Compute the logits of the nodes.

        Args:
            x: Features of the nodes, [n, d], dense or sparse.
            edge_index: Edges [2, e]; or the operator [n, n] that averages over neighbours; or blocks of operators that
                lead to some rows, as `prepare` makes them.
            edge_weight: Weights of the edges, [e]; None if all are 1. Unused unless edges are given.
            own: With blocks, the features of the nodes that remain after the first hop, [m, d]; None if these are the
                first rows of `x`.

        Returns:
            Logits [n, c]; with blocks, those of the last block's rows.
        """
        layers = operators_by_layer(edge_index, edge_weight, x, self._operators, len(self.convs))
        for conv, norm, (operator, rows) in zip(self.convs[:-1], self.norms, layers, strict=False):
            x = dropout(norm(conv(x, operator, own)).relu(), self.dropout, self.training, positions=rows)
            own = None
        logits: Tensor = self.convs[-1](x, layers[-1][0], own)
        return logits

    def prepare(self, x: Tensor, edge_index: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """See `StackAware.prepare`. Only the exact receptive field of `rows` is computed."""
        operator = self._operators(edge_index, None, x)
        if rows is None:
            return features(x), operator
        blocks = receptive_field(operator, rows, len(self.convs))
        first = features(x, blocks.nodes[0])
        # A slice of dense features is free; sparse ones need a transpose of the slice as well, so it is cut here, once.
        own = features(x, blocks.nodes[1]) if isinstance(first, Operator) else None
        return first, blocks, None, own

    @property
    def num_hops(self) -> int:
        """The number of convolutions."""
        return len(self.convs)

    @property
    def needs_gcn_weights(self) -> bool:
        """False: the mean over sampled neighbours needs no weights."""
        return False

    def batch_arguments(self, batch: Data) -> tuple[object, ...]:
        """See `RunsOnBatches.batch_arguments`."""
        return batch.x, batch_blocks(batch, len(self.convs), "mean")

    def infer_layer(self, number: int, batch: Data) -> Tensor:
        """See `RunsByLayer.infer_layer`."""
        out: Tensor = self.convs[number](batch.x, batch_blocks(batch, 1, "mean").operators[0])
        return self.norms[number](out).relu() if number + 1 < len(self.convs) else out
