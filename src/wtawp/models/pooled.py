"""Classifiers of whole graphs (sec:graph_classification): convolutions, the mean over each graph, a linear map."""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from wtawp.graphs.blocks import Blocks
from wtawp.graphs.collection import mean_pooling
from wtawp.graphs.operator import Operator
from wtawp.graphs.products import multiply
from wtawp.models.caches import LastCallCache
from wtawp.models.capabilities import Features, StackAware, StackAwareOnGraphs
from wtawp.models.gcn import GCN
from wtawp.models.gin import GIN
from wtawp.models.layers import Linear
from wtawp.models.sage import GraphSAGE


class Pooled(nn.Module, StackAwareOnGraphs):
    """A classifier of whole graphs: a node-level model of ours, the mean over each graph's nodes, a linear read-out.

    The model is called as PyG's models of graphs are, `model(x, edge_index, batch)`.

    Args:
        encoder: A node-level model of `wtawp.models`; its outputs are the hidden features of the nodes.
        width: Number of outputs of the encoder.
        d_out: Number of classes.
        generator: Draws the initial weights of the read-out.

    Raises:
        ValueError: If the encoder is not a node-level model of `wtawp.models`.

    Example:
        >>> import torch
        >>> from wtawp.models import GIN
        >>> draw = torch.Generator().manual_seed(0)
        >>> model = Pooled(GIN(4, 8, hidden=(), generator=draw), 8, 2, generator=draw)
        >>> model(torch.ones(3, 4), torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 0, 1])).shape
        torch.Size([2, 2])
    """

    def __init__(self, encoder: nn.Module, width: int, d_out: int, *, generator: torch.Generator) -> None:
        super().__init__()
        if not isinstance(encoder, StackAware):
            raise ValueError(f"the encoder must be a node-level model of wtawp.models, got {type(encoder).__name__}")
        self.encoder: nn.Module = encoder
        self.readout = Linear(width, d_out, generator=generator)
        self._pooling = LastCallCache(mean_pooling)

    def forward(
        self, x: Features, edge_index: object, batch: Tensor | Operator | None, *more: object
    ) -> Tensor:  # [n, d], [2, e], [n] or [g, n] -> [g, c]
        """Compute the logits of the graphs.

        Args:
            x: Features of the nodes of all graphs, [n, d], dense or sparse.
            edge_index: Edges of all graphs, [2, e], or whatever else the encoder takes.
            batch: The graph that each node belongs to, [n]; or the operator [g, n] that averages over each graph; or
                None if the encoder's operators already end in graphs, as `prepare_graphs` makes them for a GCN.
            *more: Further positional arguments of the encoder.

        Returns:
            Logits [g, c].
        """
        hidden = self.encoder(x, edge_index, *more)
        if batch is not None:
            pool = batch if isinstance(batch, Operator) else self._pooling(batch, hidden.dtype)
            hidden = multiply(pool, hidden)
        logits: Tensor = self.readout(hidden)
        return logits

    def prepare_graphs(self, x: Tensor, edge_index: Tensor, batch: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """Build the arguments of `forward` for some graphs, as `StackAwareOnGraphs` asks.

        Only the nodes of these graphs are needed. A GCN ends in a product with A_hat, and the product P A_hat with the
        averaging operator P is as sparse as A_hat and has one row for each graph: the last layer of a GCN therefore
        computes graphs, not nodes. (The mean does not change the bias.)

        Args:
            x: Features of the nodes of all graphs, [n, d].
            edge_index: Edges of all graphs, [2, e].
            batch: The graph that each node belongs to, [n].
            rows: The graphs whose logits are wanted, [k]; None for all graphs.

        Returns:
            Positional arguments for `forward`.
        """
        encoder, nodes = cast(StackAware, self.encoder), None
        pool = self._pooling(batch, x.dtype)
        if rows is not None:
            place = torch.full((pool.shape[0],), -1, device=batch.device)
            place[rows] = torch.arange(len(rows), device=rows.device)
            nodes = (place[batch] >= 0).nonzero()[:, 0]
            pool = mean_pooling(place[batch[nodes]], x.dtype)
        first, graph, *more = encoder.prepare(x, edge_index, nodes)
        if isinstance(self.encoder, GCN) and isinstance(graph, Blocks):
            last = _averaged(pool, graph.operators[-1])
            return first, replace(graph, operators=(*graph.operators[:-1], last)), None, *more
        return first, graph, pool, *more


def _averaged(pool: Operator, operator: Operator) -> Operator:  # [g, n], [n, m] -> [g, m]
    """Compute P A for a P with one entry in each column: the entries of A, moved to the row of their graph."""
    graph_of, weight = pool.t_indices.long()[operator.rows], pool.t_values[operator.rows]
    values = weight * operator.values
    return Operator.from_entries(graph_of, operator.indices.long(), values, (pool.shape[0], operator.shape[1]))


def _pooled(
    kind: Callable[..., nn.Module], d_in: int, d_out: int, hidden: tuple[int, ...], dropout: float,
    generator: torch.Generator,
) -> Pooled:  # fmt: skip
    """Build the classifier whose node-level model is of the class `kind`."""
    if not hidden:
        raise ValueError("hidden must hold the width of one convolution or more, got ()")
    encoder = kind(d_in, hidden[-1], hidden=hidden[:-1], dropout=dropout, generator=generator)
    return Pooled(encoder, hidden[-1], d_out, generator=generator)


def PooledGCN(
    d_in: int, d_out: int, *, hidden: tuple[int, ...] = (16, 16), dropout: float = 0.5, generator: torch.Generator
) -> Pooled:
    """Build the paper's classifier of graphs: two graph convolutions of 16 units, the mean over nodes, a read-out.

    Args:
        d_in: Number of features of a node.
        d_out: Number of classes.
        hidden: Widths of the convolutions, one number each; the default is the paper's.
        dropout: Share of units that are dropped in training between the convolutions, in [0, 1).
        generator: Draws the initial weights.

    Returns:
        The model, called as `model(x, edge_index, batch)`.

    Raises:
        ValueError: If `hidden` is empty, a width is below 1, or the dropout is not in [0, 1).

    Example:
        >>> import torch
        >>> model = PooledGCN(4, 2, generator=torch.Generator().manual_seed(0))
        >>> model(torch.ones(3, 4), torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 0, 1])).shape
        torch.Size([2, 2])
    """
    return _pooled(GCN, d_in, d_out, hidden, dropout, generator)


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
