"""Graph attention network (Velickovic et al. 2018), in the preset of the paper: 8 heads of 8, then one."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.graphs.blocks import receptive_field
from wtawp.graphs.normalisation import gcn_operator
from wtawp.graphs.operator import Operator
from wtawp.models.batch_blocks import batch_blocks
from wtawp.models.caches import OperatorCache
from wtawp.models.capabilities import Features, RunsByLayer, StackAware
from wtawp.models.inputs import features
from wtawp.models.layers import GraphAttention, Hop, checked_flag, checked_widths
from wtawp.models.norms import Norm, hidden_norms


class GAT(nn.Module, StackAware, RunsByLayer):
    """Graph attention network: attention layers, two by default, with ELU between them.

    The model is called as PyG's models are; self-loops are added. Edge weights multiply exp(score) inside the softmax,
    so that an edge of weight 0 has no effect.

    Args:
        d_in: Number of features of a node.
        d_out: Number of classes.
        width: Units of each head of the hidden layers; the default is the paper's.
        heads: Number of heads of the hidden layers; the last layer has one. The default is the paper's.
        dropout: Share of units that are dropped in training on the input of each layer and on the attention, in [0, 1).
        num_layers: Number of attention layers, at least 1; the default is the paper's.
        norm: Normalises the hidden features after the attention, before the activation: "layer" each node over its
            features, "batch" each feature over all nodes, which freezes the biases that it makes superfluous. None, the
            default, does not.
        residual: Whether each hidden layer has a linear skip connection, which adds its input, times a weight, to the
            output of its attention.
        generator: Draws the initial weights.

    Raises:
        ValueError: If a width is below 1, there is no head or no layer, the dropout is not in [0, 1), or `norm` or
            `residual` has another value than those named above.

    Example:
        >>> import torch
        >>> from wtawp.graphs import load
        >>> data = load("wine")
        >>> model = GAT(13, 3, generator=torch.Generator().manual_seed(0))
        >>> model(data.x, data.edge_index).shape
        torch.Size([178, 3])
    """

    reads_rows = True

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        width: int = 8,
        heads: int = 8,
        dropout: float = 0.5,
        num_layers: int = 2,
        norm: Norm | None = None,
        residual: bool = False,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        checked_widths(d_in, (width, heads), d_out, dropout)
        if num_layers < 1:
            raise ValueError(f"num_layers must be >= 1, got {num_layers}")
        self.dropout, residual = dropout, checked_flag("residual", residual)
        hidden = (heads * width,) * (num_layers - 1)
        *inputs, last_input = (d_in, *hidden)
        self.convs = nn.ModuleList(
            GraphAttention(a, width, heads=heads, concat=True, residual=residual, generator=generator) for a in inputs
        )
        self.convs.append(GraphAttention(last_input, d_out, heads=1, concat=False, generator=generator))
        self.norms = hidden_norms(norm, self.convs[:-1])
        self._operators = OperatorCache(gcn_operator)
        self._weighted = OperatorCache(partial(gcn_operator, power=0.0))  # A + I, not normalised

    def forward(
        self, x: Features, edge_index: Tensor | Operator | tuple[Hop, ...], edge_weight: Tensor | None = None
    ) -> Tensor:  # [n, d], [2, e] or [n, n], [e] -> [n, c]
        """Compute the logits of the nodes.

        Args:
            x: Features of the nodes, [n, d], dense or sparse.
            edge_index: Edges [2, e]; or an operator [n, n], whose structure is used and whose values are not; or one
                `Hop` for each layer, as `prepare` makes them.
            edge_weight: Weights of the edges, [e]; None if all are 1. Unused unless edges are given.

        Returns:
            Logits [n, c]; with hops, those of the last hop's rows.
        """
        if isinstance(edge_index, tuple):
            hops = edge_index
        elif edge_weight is not None:
            operator = self._weighted(edge_index, edge_weight, x)
            hops = (replace(Hop.whole(operator), weights=operator.values),) * len(self.convs)
        else:
            hops = (Hop.whole(self._operators(edge_index, None, x)),) * len(self.convs)
        for conv, norm, hop in zip(self.convs[:-1], self.norms, hops[:-1], strict=True):
            x = F.elu(norm(conv(x, hop, self.dropout)))
        logits: Tensor = self.convs[-1](x, hops[-1], self.dropout)
        return logits

    def prepare(self, x: Tensor, edge_index: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """See `StackAware.prepare`. Only the exact receptive field of `rows` is computed."""
        operator = self._operators(edge_index, None, x)
        if rows is None:
            return features(x, dropped=True), (Hop.whole(operator),) * len(self.convs)
        blocks = receptive_field(operator, rows, len(self.convs))
        return features(x, blocks.nodes[0], dropped=True), Hop.over_blocks(blocks, operator.shape[0])

    @property
    def num_hops(self) -> int:
        """The number of attention layers."""
        return len(self.convs)

    @property
    def needs_gcn_weights(self) -> bool:
        """False: attention is normalised over the sampled neighbours."""
        return False

    def batch_arguments(self, batch: Data) -> tuple[object, ...]:
        """See `RunsOnBatches.batch_arguments`."""
        return batch.x, self._hops(batch, len(self.convs))

    def infer_layer(self, number: int, batch: Data) -> Tensor:
        """See `RunsByLayer.infer_layer`."""
        out: Tensor = self.convs[number](batch.x, self._hops(batch, 1)[0], self.dropout)
        return F.elu(self.norms[number](out)) if number + 1 < len(self.convs) else out

    def _hops(self, batch: Data, num_layers: int) -> tuple[Hop, ...]:
        """The hops of a batch, with the weights of its edges if it has any."""
        hops = Hop.over_blocks(batch_blocks(batch, num_layers, "with loops"), int(batch.n_id.max()) + 1)
        if batch.get("edge_weight") is None:
            return hops
        return tuple(replace(hop, weights=hop.operator.values) for hop in hops)
