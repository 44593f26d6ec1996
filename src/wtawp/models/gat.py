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
from wtawp.models.layers import GraphAttention, Hop, checked_widths


class GAT(nn.Module, StackAware, RunsByLayer):
    """Graph attention network: two attention layers with ELU between them.

    The model is called as PyG's models are; self-loops are added. Edge weights multiply exp(score) inside the softmax,
    so that an edge of weight 0 has no effect.

    Args:
        d_in: Number of features of a node.
        d_out: Number of classes.
        width: Units of each head of the first layer; the default is the paper's.
        heads: Number of heads of the first layer; the second has one. The default is the paper's.
        dropout: Share of units that are dropped in training on the input of each layer and on the attention, in [0, 1).
        generator: Draws the initial weights.

    Raises:
        ValueError: If a width is below 1, or there is no head, or the dropout is not in [0, 1).

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
        """Build the arguments of `forward` for some nodes, as `StackAware` asks.

        Only the exact receptive field of `rows` is computed.

        Args:
            x: Features of all nodes, [n, d].
            edge_index: Edges of the graph, [2, e].
            rows: The nodes whose logits are wanted, [k]; None for all nodes.

        Returns:
            Positional arguments for `forward`.
        """
        operator = self._operators(edge_index, None, x)
        if rows is None:
            return features(x, dropped=True), (Hop.whole(operator),) * 2
        blocks = receptive_field(operator, rows, 2)
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
        """Build the arguments of `forward` for the seeds of a batch, as `RunsOnBatches` asks.

        Args:
            batch: The batch.

        Returns:
            Positional arguments for `forward`.
        """
        return batch.x, self._hops(batch, len(self.convs))

    def infer_layer(self, number: int, batch: Data) -> Tensor:
        """Compute one layer for the seeds of a batch, as `RunsByLayer` asks.

        Args:
            number: Number of the layer, counted from 0.
            batch: A batch of one hop with all neighbours.

        Returns:
            The output of the layer, [batch_size, h].
        """
        out: Tensor = self.convs[number](batch.x, self._hops(batch, 1)[0], self.dropout)
        return F.elu(out) if number + 1 < len(self.convs) else out

    def _hops(self, batch: Data, num_layers: int) -> tuple[Hop, ...]:
        """The hops of a batch, with the weights of its edges if it has any."""
        hops = Hop.over_blocks(batch_blocks(batch, num_layers, "with loops"), int(batch.n_id.max()) + 1)
        if batch.get("edge_weight") is None:
            return hops
        return tuple(replace(hop, weights=hop.operator.values) for hop in hops)
