"""Graph convolutional network (Kipf and Welling 2017), in the preset of the paper."""

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.graphs.blocks import Blocks, receptive_field
from wtawp.graphs.normalisation import gcn_operator
from wtawp.graphs.operator import Operator
from wtawp.graphs.products import Multiplies, aligned, multiply
from wtawp.models.batch_blocks import batch_blocks
from wtawp.models.caches import OperatorCache
from wtawp.models.capabilities import (
    Features,
    GraphOperator,
    IsConvolutionStack,
    NormalisedAdjacency,
    RunsByLayer,
    StackAware,
    SupportsFactoredGradient,
)
from wtawp.models.dropout import dropout as drop
from wtawp.models.inputs import features, first_product, operators_by_layer
from wtawp.models.layers import GraphConvolution, check_width, checked_flag, checked_widths
from wtawp.models.norms import Norm, hidden_norms


class GCN(nn.Module, StackAware, RunsByLayer, SupportsFactoredGradient, IsConvolutionStack):
    """Graph convolutional network: graph convolutions with ReLU and dropout between them.

    There is no dropout on the input, as in the paper's released code. The model is called as PyG's models are, with
    edges; the normalised operator is built once per graph.

    Args:
        d_in: Number of features of a node.
        d_out: Number of classes.
        hidden: Widths of the hidden layers, one number each; the default is one layer of 64 units, as in the paper.
        dropout: Share of units that are dropped in training after each hidden layer, in [0, 1).
        norm: Normalises the hidden features after each convolution, before the activation: "layer" each node over its
            features, "batch" each feature over all nodes, which freezes the biases that it makes superfluous. None, the
            default, does not.
        residual: Whether each hidden layer has a linear skip connection, which adds its input, times a weight, to the
            output of its convolution.
        linear: Whether the logits are linear in the features: no ReLU, and biases that stay 0.
        generator: Draws the initial weights.

    Raises:
        ValueError: If a width is below 1, `hidden` is a single number, the dropout is not in [0, 1), or `norm` or
            `residual` has another value than those named above.

    Example:
        >>> import torch
        >>> from wtawp.graphs import load
        >>> data = load("wine")
        >>> model = GCN(13, 3, generator=torch.Generator().manual_seed(0))
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
        linear: bool = False,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.dropout, self.norm = dropout, norm
        self.residual, self.linear = checked_flag("residual", residual), checked_flag("linear", linear)
        *widths, last = checked_widths(d_in, hidden, d_out, dropout)
        self.convs = nn.ModuleList(GraphConvolution(a, b, residual=residual, generator=generator) for a, b in widths)
        self.convs.append(GraphConvolution(*last, generator=generator))
        self.norms = hidden_norms(norm, self.convs[:-1])
        if linear:
            for conv in self.convs:
                nn.init.zeros_(cast(Tensor, conv.bias)).requires_grad_(False)
        self._operators = OperatorCache(gcn_operator)

    def forward(
        self,
        x: Features,
        edge_index: Tensor | Operator | Multiplies | Blocks,
        edge_weight: Tensor | None = None,
        own: Features | None = None,
    ) -> Tensor:  # [n, d], [2, e] or [n, n], [e] -> [n, c]
        """Compute the logits of the nodes.

        Args:
            x: Features of the nodes, [n, d], dense or sparse.
            edge_index: Edges [2, e]; or the operator [n, n] that the model would build from them; or blocks of
                operators that lead to some rows, as `prepare` makes them.
            edge_weight: Weights of the edges, [e]; None if all are 1. Unused unless edges are given.
            own: With blocks and skip connections, the features of the nodes that remain after the first hop, [m, d];
                None if these are the first rows of `x`.

        Returns:
            Logits [n, c]; with blocks, those of the last block's rows.
        """
        layers = operators_by_layer(edge_index, edge_weight, x, self._operators, len(self.convs))
        is_padded = isinstance(edge_index, Blocks)  # by `prepare`, which checked the width
        fused = self.dropout if self.norm is None and not self.linear else None
        for conv, norm, (operator, rows) in zip(self.convs[:-1], self.norms, layers, strict=False):
            x = conv(x, operator, relu_and_drop=fused, positions=rows, is_padded=is_padded, own=own)
            if fused is None:
                x = drop(self._activated(norm(x)), self.dropout, self.training, positions=rows)
            own = None
        logits: Tensor = self.convs[-1](x, layers[-1][0], is_padded=is_padded)
        return logits

    def prepare(self, x: Tensor, edge_index: Tensor | Operator, rows: Tensor | None) -> tuple[object, ...]:
        """See `StackAware.prepare`.

        `edge_index` may also be the normalised operator, [n, n]. Only the exact receptive field of `rows` is computed.
        As nothing is dropped from the input, A_hat X is computed here, once, if the features are dense. (For bags of
        words, A_hat X would have many more non-zeros than X.)
        """
        check_width(x, cast(Tensor, self.convs[0].weight))
        operator, depth = self._operators(edge_index, None, x), len(self.convs)
        if rows is None:
            all_nodes = torch.arange(operator.shape[0], device=operator.values.device)
            blocks, inputs = Blocks((all_nodes,) * (depth + 1), (operator,) * depth), features(x)
            more: tuple[object, ...] = (None, inputs) if self.residual else ()
        else:
            blocks = receptive_field(operator, rows, depth, with_first=False)
            before, after = blocks.nodes[:2]
            more = (None, features(x, after)) if self.residual else ()
            product = first_product(operator, after, before, x)
            if product is not None:
                return *_after_first_product(product, blocks.nodes, blocks.operators), *more
            blocks = replace(blocks, operators=(operator.select(after, before), *blocks.operators))
            inputs = features(x, before)
        if isinstance(inputs, Operator):
            return inputs, blocks, *more
        product = multiply(blocks.operators[0], inputs)
        return *_after_first_product(product, blocks.nodes, blocks.operators[1:]), *more

    @property
    def num_hops(self) -> int:
        """The number of convolutions."""
        return len(self.convs)

    @property
    def needs_gcn_weights(self) -> bool:
        """True: the degrees in a batch are not those of the graph."""
        return True

    def batch_arguments(self, batch: Data) -> tuple[object, ...]:
        """See `RunsOnBatches.batch_arguments`."""
        check_width(batch.x, cast(Tensor, self.convs[0].weight))
        return batch.x, batch_blocks(batch, len(self.convs), "sum")

    def infer_layer(self, number: int, batch: Data) -> Tensor:
        """See `RunsByLayer.infer_layer`."""
        out: Tensor = self.convs[number](batch.x, batch_blocks(batch, 1, "sum").operators[0])
        return self._activated(self.norms[number](out)) if number + 1 < len(self.convs) else out

    def _activated(self, x: Tensor) -> Tensor:
        """Apply the activation, if there is one."""
        return x if self.linear else x.relu()

    def convolution_weights(self) -> list[tuple[Tensor, Tensor]]:
        """List the parameters of the convolutions, as `IsConvolutionStack` asks.

        Returns:
            Weight [d_in, d_out] and bias [d_out] of each convolution, detached, first to last; nothing if the model has
            a norm or skip connections, or no ReLU.
        """
        if self.norm is not None or self.residual or self.linear:
            return []
        return [(cast(Tensor, conv.weight).detach(), cast(Tensor, conv.bias).detach()) for conv in self.convs]

    def graph_operators(self) -> tuple[GraphOperator, ...]:
        """Name the operators through which the model reaches the graph, as `SupportsFactoredGradient` asks.

        Returns:
            The normalised adjacency matrix.
        """
        return (NormalisedAdjacency(),)

    def forward_args(self, x: Features, operators: tuple[Multiplies, ...]) -> tuple[object, ...]:
        """See `SupportsFactoredGradient.forward_args`."""
        return x, operators[0]


def linear_gcn(d_in: int, d_out: int, *, hidden: tuple[int, ...] = (16,), generator: torch.Generator) -> GCN:
    """Build the linear GCN on which Metattack's released code guesses labels: no ReLU, no biases, no dropout.

    Args:
        d_in: Number of features of a node.
        d_out: Number of classes.
        hidden: Widths of the hidden layers.
        generator: Draws the initial weights.

    Returns:
        The model. Train it without weight decay.

    Example:
        >>> model = linear_gcn(13, 3, generator=torch.Generator().manual_seed(0))
        >>> model.linear, model.dropout
        (True, 0.0)
    """
    return GCN(d_in, d_out, hidden=hidden, dropout=0.0, linear=True, generator=generator)


def _after_first_product(
    product: Tensor, nodes: tuple[Tensor, ...], operators: tuple[Operator, ...]
) -> tuple[Tensor, Blocks]:
    """The arguments of `forward` once A_hat X is computed; an identity takes the place of the first operator."""
    gathered = aligned(product)
    stay = Operator.identity(len(gathered), gathered.dtype, gathered.device)
    return gathered, Blocks(nodes, (stay, *operators))
