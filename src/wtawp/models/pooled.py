"""Classifiers of whole graphs (sec:graph_classification): convolutions, the mean over each graph, a linear map."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn

from wtawp.graphs.blocks import Blocks
from wtawp.graphs.collection import mean_pooling, sum_pooling
from wtawp.graphs.operator import Operator
from wtawp.graphs.products import Multiplies, multiply
from wtawp.models.caches import LastCallCache
from wtawp.models.capabilities import Features, StackAware, StackAwareOnGraphs
from wtawp.models.dropout import dropout as drop
from wtawp.models.gcn import GCN
from wtawp.models.gin import GIN
from wtawp.models.inputs import operators_by_layer
from wtawp.models.layers import Linear, checked_dropout, checked_flag
from wtawp.models.norms import Norm
from wtawp.models.sage import GraphSAGE

Pooling = Literal["mean", "sum"]
_POOLINGS = {"mean": mean_pooling, "sum": sum_pooling}


@dataclass(frozen=True)
class GraphRows:
    """How nodes become graphs, in the arguments that `Pooled.prepare_graphs` makes.

    Attributes:
        operator: The operator [g, n] that pools the nodes of each graph; None if the encoder's last operator does so.
        positions: The positions of the graphs in the whole collection, [g], from which dropout masks are derived; None
            if these are all of its graphs.
    """

    operator: Operator | None
    positions: Tensor | None


class Pooled(nn.Module, StackAwareOnGraphs):
    """A classifier of whole graphs: a node-level model of ours, the mean over each graph's nodes, a linear read-out.

    The model is called as PyG's models of graphs are, `model(x, edge_index, batch)`.

    Args:
        encoder: A node-level model of `wtawp.models`; its outputs are the hidden features of the nodes.
        width: Number of outputs of the encoder.
        d_out: Number of classes.
        pooling: What is taken over the nodes of a graph: their "mean", or their "sum".
        dropout: Share of the pooled features that are dropped in training before the read-out, in [0, 1).
        generator: Draws the initial weights of the read-out.

    Raises:
        ValueError: If the encoder is not a node-level model of `wtawp.models`, the pooling is neither of the two, or
            the dropout is not in [0, 1).

    Example:
        >>> import torch
        >>> from wtawp.models import GIN
        >>> draw = torch.Generator().manual_seed(0)
        >>> model = Pooled(GIN(4, 8, hidden=(), generator=draw), 8, 2, generator=draw)
        >>> model(torch.ones(3, 4), torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 0, 1])).shape
        torch.Size([2, 2])
    """

    def __init__(
        self,
        encoder: nn.Module,
        width: int,
        d_out: int,
        *,
        pooling: Pooling = "mean",
        dropout: float = 0.0,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        if not isinstance(encoder, StackAware):
            raise ValueError(f"the encoder must be a node-level model of wtawp.models, got {type(encoder).__name__}")
        if pooling not in get_args(Pooling):
            raise ValueError(f"pooling must be one of {', '.join(get_args(Pooling))}, got {pooling!r}")
        self.encoder: nn.Module = encoder
        self.pooling, self.dropout = pooling, checked_dropout(dropout)
        self.readout = Linear(width, d_out, generator=generator)
        self._pooling = LastCallCache(_POOLINGS[pooling])

    def forward(
        self, x: Features, edge_index: object, batch: Tensor | GraphRows, *more: object
    ) -> Tensor:  # [n, d], [2, e], [n] -> [g, c]
        """Compute the logits of the graphs.

        Args:
            x: Features of the nodes of all graphs, [n, d], dense or sparse.
            edge_index: Edges of all graphs, [2, e], or whatever else the encoder takes.
            batch: The graph that each node belongs to, [n]; or how nodes become graphs, as `prepare_graphs` says it.
            *more: Further positional arguments of the encoder.

        Returns:
            Logits [g, c].
        """
        hidden = self.encoder(x, edge_index, *more)
        rows = GraphRows(self._pooling(batch, hidden.dtype), None) if isinstance(batch, Tensor) else batch
        if rows.operator is not None:
            hidden = multiply(rows.operator, hidden)
        logits: Tensor = self.readout(drop(hidden, self.dropout, self.training, positions=rows.positions))
        return logits

    def prepare_graphs(self, x: Tensor, edge_index: Tensor, batch: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """See `StackAwareOnGraphs.prepare_graphs`.

        Only the nodes of these graphs are needed. A GCN ends in a product with A_hat, and the product P A_hat with the
        averaging operator P is as sparse as A_hat and has one row for each graph: the last layer of a GCN therefore
        computes graphs, not nodes. (The mean does not change the bias; a sum would.)
        """
        encoder, nodes = cast(StackAware, self.encoder), None
        pool = self._pooling(batch, x.dtype)
        if rows is not None:
            place = torch.full((pool.shape[0],), -1, device=batch.device)
            place[rows] = torch.arange(len(rows), device=rows.device)
            nodes = (place[batch] >= 0).nonzero()[:, 0]
            pool = _POOLINGS[self.pooling](place[batch[nodes]], x.dtype)
        first, graph, *more = encoder.prepare(x, edge_index, nodes)
        ends_in_product = isinstance(self.encoder, GCN) and not isinstance(self.encoder, _ActivatedGCN)
        if ends_in_product and self.pooling == "mean" and isinstance(graph, Blocks):
            last = _averaged(pool, graph.operators[-1])
            return first, replace(graph, operators=(*graph.operators[:-1], last)), GraphRows(None, rows), *more
        return first, graph, GraphRows(pool, rows), *more


class _ActivatedGCN(GCN):
    """Graph convolutions that all end in an activation; the features of a node are those of the last one.

    Args:
        jumps: Whether the features of a node are those of all convolutions, one after another ("jumping knowledge", Xu
            et al. 2018).
        d_in: Number of features of a node.
        d_out: Width of the last convolution.
        **options: Those of `GCN`.
    """

    def __init__(self, jumps: bool, d_in: int, d_out: int, **options: Any) -> None:
        super().__init__(d_in, d_out, **options)
        self.jumps = jumps

    def forward(
        self,
        x: Features,
        edge_index: Tensor | Operator | Multiplies | Blocks,
        edge_weight: Tensor | None = None,
        own: Features | None = None,
    ) -> Tensor:  # [n, d], [2, e] or [n, n], [e] -> [n, h]
        """Compute the features of the nodes. The arguments are those of `GCN.forward`.

        A graph that is classified is whole, so that all its nodes are in the receptive field of each: every
        convolution computes the same nodes.
        """
        layers = operators_by_layer(edge_index, edge_weight, x, self._operators, len(self.convs))
        is_padded, outputs = isinstance(edge_index, Blocks), []
        for number, (conv, (operator, rows)) in enumerate(zip(self.convs, layers, strict=True)):
            out = conv(x, operator, is_padded=is_padded, own=own)
            own, is_last = None, number + 1 == len(self.convs)
            outputs.append(self._activated(out if is_last else self.norms[number](out)))
            x = drop(outputs[-1], self.dropout, self.training, positions=rows)
        return torch.cat(outputs, -1) if self.jumps else outputs[-1]


def _averaged(pool: Operator, operator: Operator) -> Operator:  # [g, n], [n, m] -> [g, m]
    """Compute P A for a P with one entry in each column: the entries of A, moved to the row of their graph."""
    graph_of, weight = pool.t_indices.long()[operator.rows], pool.t_values[operator.rows]
    values = weight * operator.values
    return Operator.from_entries(graph_of, operator.indices.long(), values, (pool.shape[0], operator.shape[1]))


def _check_convolutions(hidden: tuple[int, ...] | int) -> None:
    """Refuse widths of convolutions that are none."""
    if isinstance(hidden, int) or not hidden:
        raise ValueError(f"hidden must hold the width of one convolution or more, such as (16, 16), got {hidden!r}")


def _pooled(
    kind: Callable[..., nn.Module], d_in: int, d_out: int, hidden: tuple[int, ...], dropout: float,
    generator: torch.Generator,
) -> Pooled:  # fmt: skip
    """Build the classifier whose node-level model is of the class `kind`."""
    _check_convolutions(hidden)
    encoder = kind(d_in, hidden[-1], hidden=hidden[:-1], dropout=dropout, generator=generator)
    return Pooled(encoder, hidden[-1], d_out, generator=generator)


def PooledGCN(
    d_in: int,
    d_out: int,
    *,
    hidden: tuple[int, ...] = (16, 16),
    dropout: float = 0.5,
    norm: Norm | None = None,
    last_relu: bool = False,
    jumps: bool = False,
    pooling: Pooling = "mean",
    readout_dropout: float = 0.0,
    generator: torch.Generator,
) -> Pooled:
    """Build the paper's classifier of graphs: two graph convolutions of 16 units, the mean over nodes, a read-out.

    Args:
        d_in: Number of features of a node.
        d_out: Number of classes.
        hidden: Widths of the convolutions, one number each; the default is the paper's.
        dropout: Share of units that are dropped in training between the convolutions, in [0, 1).
        norm: Normalises between the convolutions, as in `GCN`; None, the default, does not.
        last_relu: Whether the last convolution ends in a ReLU, too.
        jumps: Whether the read-out sees the outputs of all convolutions ("jumping knowledge", Xu et al. 2018), each
            with a ReLU.
        pooling: What is taken over the nodes of a graph: their "mean", or their "sum".
        readout_dropout: Share of the pooled features that are dropped in training before the read-out, in [0, 1).
        generator: Draws the initial weights.

    Returns:
        The model, called as `model(x, edge_index, batch)`.

    Raises:
        ValueError: If `hidden` is empty, a width is below 1, a dropout is not in [0, 1), or `norm` or `pooling` has
            another value than those named above.

    Example:
        >>> import torch
        >>> model = PooledGCN(4, 2, generator=torch.Generator().manual_seed(0))
        >>> model(torch.ones(3, 4), torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 0, 1])).shape
        torch.Size([2, 2])
    """
    _check_convolutions(hidden)
    checked_flag("last_relu", last_relu)
    checked_flag("jumps", jumps)
    options: dict[str, Any] = {"hidden": hidden[:-1], "dropout": dropout, "norm": norm, "generator": generator}
    if last_relu or jumps:
        encoder: GCN = _ActivatedGCN(jumps, d_in, hidden[-1], **options)
    else:
        encoder = GCN(d_in, hidden[-1], **options)
    width = sum(hidden) if jumps else hidden[-1]
    return Pooled(encoder, width, d_out, pooling=pooling, dropout=readout_dropout, generator=generator)


def PooledGIN(
    d_in: int, d_out: int, *, hidden: tuple[int, ...] = (16, 16), dropout: float = 0.5, generator: torch.Generator
) -> Pooled:
    """Build a classifier of graphs with the convolutions of a GIN, and the mean over nodes (not Xu et al.'s sum).

    Args:
        d_in: Number of features of a node.
        d_out: Number of classes.
        hidden: Widths of the convolutions, one number each; the default is that of PooledGCN.
        dropout: Share of units that are dropped in training between the convolutions, in [0, 1).
        generator: Draws the initial weights.

    Returns:
        The model, called as `model(x, edge_index, batch)`.

    Raises:
        ValueError: If `hidden` is empty, a width is below 1, or the dropout is not in [0, 1).

    Example:
        >>> import torch
        >>> model = PooledGIN(4, 2, generator=torch.Generator().manual_seed(0))
        >>> model(torch.ones(3, 4), torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 0, 1])).shape
        torch.Size([2, 2])
    """
    return _pooled(GIN, d_in, d_out, hidden, dropout, generator)


def PooledSAGE(
    d_in: int, d_out: int, *, hidden: tuple[int, ...] = (16, 16), dropout: float = 0.5, generator: torch.Generator
) -> Pooled:
    """Build a classifier of graphs with the convolutions of GraphSAGE, and the mean over nodes.

    Args:
        d_in: Number of features of a node.
        d_out: Number of classes.
        hidden: Widths of the convolutions, one number each; the default is that of PooledGCN.
        dropout: Share of units that are dropped in training between the convolutions, in [0, 1).
        generator: Draws the initial weights.

    Returns:
        The model, called as `model(x, edge_index, batch)`.

    Raises:
        ValueError: If `hidden` is empty, a width is below 1, or the dropout is not in [0, 1).

    Example:
        >>> import torch
        >>> model = PooledSAGE(4, 2, generator=torch.Generator().manual_seed(0))
        >>> model(torch.ones(3, 4), torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 0, 1])).shape
        torch.Size([2, 2])
    """
    return _pooled(GraphSAGE, d_in, d_out, hidden, dropout, generator)
