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
from wtawp.models.adapter import Features, LastCallCache, StackAware
from wtawp.models.gcn import GCN
from wtawp.models.gin import GIN
from wtawp.models.layers import Linear
from wtawp.models.sage import GraphSAGE


class Pooled(nn.Module):
    """A node-level module of ours, the mean over the nodes of each graph, and a linear read-out.

    Called as PyG models are, `model(x, edge_index, batch)`; `batch` [n] tells the graph of each node. In its place the
    operator that averages may stand, or None where the node-level module is handed blocks that end in graphs.
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
        """`more` are further arguments of the node-level module."""
        hidden = self.encoder(x, edge_index, *more)
        if batch is not None:
            pool = batch if isinstance(batch, Operator) else self._pooling(batch, hidden.dtype)
            hidden = multiply(pool, hidden)
        logits: Tensor = self.readout(hidden)
        return logits

    def prepare_graphs(self, x: Tensor, edge_index: Tensor, batch: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """See `StackAwareOnGraphs`: the nodes of the graphs `rows`, which are their own receptive field.

        A GCN ends in a product with A_hat, and P A_hat is as sparse as A_hat and has a row a graph: its last layer
        then works on graphs, not nodes. (The mean leaves the bias as it is.)
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
            return first, replace(graph, operators=(*graph.operators[:-1], last)), None
        return first, graph, pool, *more


def _averaged(pool: Operator, operator: Operator) -> Operator:  # [g, n], [n, m] -> [g, m]
    """P A for a P with one entry a column: the entries of A, each in the row of its graph."""
    graph_of, weight = pool.t_indices.long()[operator.rows], pool.t_values[operator.rows]
    values = weight * operator.values
    return Operator.from_entries(graph_of, operator.indices.long(), values, (pool.shape[0], operator.shape[1]))


def _pooled(
    kind: Callable[..., nn.Module], d_in: int, d_out: int, hidden: tuple[int, ...], dropout: float,
    generator: torch.Generator,
) -> Pooled:  # fmt: skip
    if not hidden:
        raise ValueError("hidden must hold the width of one convolution or more, got ()")
    encoder = kind(d_in, hidden[-1], hidden=hidden[:-1], dropout=dropout, generator=generator)
    return Pooled(encoder, hidden[-1], d_out, generator=generator)


def PooledGCN(
    d_in: int, d_out: int, *, hidden: tuple[int, ...] = (16, 16), dropout: float = 0.5, generator: torch.Generator
) -> Pooled:
    """The paper's: two graph convolutions of 16 units, dropout between them, and the rest of `Pooled`."""
    return _pooled(GCN, d_in, d_out, hidden, dropout, generator)


def PooledGIN(
    d_in: int, d_out: int, *, hidden: tuple[int, ...] = (16, 16), dropout: float = 0.5, generator: torch.Generator
) -> Pooled:
    """The same with the convolutions of a GIN; the mean over nodes, not the sum of Xu et al."""
    return _pooled(GIN, d_in, d_out, hidden, dropout, generator)


def PooledSAGE(
    d_in: int, d_out: int, *, hidden: tuple[int, ...] = (16, 16), dropout: float = 0.5, generator: torch.Generator
) -> Pooled:
    """The same with the convolutions of GraphSAGE."""
    return _pooled(GraphSAGE, d_in, d_out, hidden, dropout, generator)
