"""Exact logits of the nodes of a large graph: layer by layer, for some nodes at a time, with all their neighbours."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.graphs import NeighbourLists, sample_neighbours
from wtawp.graphs.node_batches import neighbour_lists_of, rows_of
from wtawp.graphs.row_choices import checked_rows
from wtawp.models.evaluation import evaluating
from wtawp.training.batch_models import BatchModel, check_on_small_graph, features_of

ROWS = 256  # nodes at a time for a model that is not computed layer by layer


def compute_logits(
    model: nn.Module,
    data: Data,
    nodes: Tensor | None = None,
    *,
    neighbours: NeighbourLists | None = None,
    num_hops: int | None = None,
    max_edges: int = 1 << 20,
) -> Tensor:  # [k] -> [k, c]
    """Compute the logits of some nodes exactly, in memory that the size of the graph does not determine.

    Our GCN, GraphSAGE, GAT and GIN, and PyG's `GCN`, `GraphSAGE`, `GAT`, `GIN` and the like, are computed layer by
    layer: each layer for as many nodes at a time as have `max_edges` edges together, and only for nodes on which the
    result depends. Any other module is called on batches with all neighbours within `num_hops`, which is exact too,
    but computes nodes that batches share again and again. The model is not changed; it is evaluated without dropout.

    Args:
        model: A node classifier, called as `model(x, edge_index)`, on any device.
        data: The graph, on the CPU; features may be a NumPy array that is mapped from disk.
        nodes: The nodes whose logits are wanted, as distinct indices [k] or a boolean mask [n]; None for all.
        neighbours: The neighbour lists of the graph, if they are built already; None builds them.
        num_hops: How far the model reaches into the graph; needed for modules other than those named above.
        max_edges: Number of edges that are processed at a time. A node with more edges is processed alone.

    Returns:
        The logits on the CPU, [k, c].

    Raises:
        ValueError: If `max_edges` is below 1, or `num_hops` is missing or is not the number of layers.
        DataError: If nodes occur twice or do not exist, or the model does not run on parts of a graph.
        WtawpError: If the outputs of the model on parts of a graph are not those on the whole graph.

    Example:
        >>> from wtawp.base import rng
        >>> from wtawp.graphs import load
        >>> from wtawp.models import GCN
        >>> compute_logits(GCN(13, 3, generator=rng("init")), load("wine"), torch.arange(5)).shape
        torch.Size([5, 3])
    """
    if max_edges < 1:
        raise ValueError(f"max_edges must be >= 1, got {max_edges}")
    lists = neighbour_lists_of(data) if neighbours is None else neighbours
    size = lists.num_nodes
    wanted = torch.arange(size) if nodes is None else checked_rows(nodes, size, distinct=True).cpu()
    check_on_small_graph(model, features_of(data), num_hops)
    return logits_of(BatchModel(model, lists, num_hops), data, lists, wanted, max_edges)


@torch.no_grad()
def logits_of(
    runner: BatchModel, data: Data, lists: NeighbourLists, nodes: Tensor, max_edges: int = 1 << 20
) -> Tensor:  # [k] -> [k, c]
    """Compute the logits of some nodes, as `compute_logits` does, with a model that was checked before.

    Args:
        runner: The model.
        data: The graph, on the CPU.
        lists: Its neighbour lists.
        nodes: The nodes whose logits are wanted, distinct, [k].
        max_edges: Number of edges that are processed at a time.

    Returns:
        The logits on the CPU, [k, c].
    """
    with evaluating(runner.model):
        if not runner.is_layered:
            return torch.cat([_whole_model(runner, data, lists, part) for part in torch.split(nodes, ROWS)])
        rows = [nodes.sort().values]  # those whose output is needed, of each layer, last layer first
        for _ in range(runner.num_hops - 1):
            rows.append(_with_neighbours(lists, rows[-1], max_edges))
        hidden: Tensor | None = None
        for number, after in enumerate(reversed(rows)):
            known = rows[-number] if number else None  # the nodes whose output of the layer before is `hidden`
            parts = _parts(lists, after, max_edges)
            hidden = _joined((_layer(runner, number, data, lists, part, known, hidden) for part in parts), len(after))
    assert hidden is not None
    return hidden[torch.searchsorted(rows[0], nodes)]


def _joined(parts: Iterator[Tensor], size: int) -> Tensor:
    """Join the outputs of a layer as they are computed, so that they are in memory once."""
    out, first = torch.empty(0), 0
    for part in parts:
        out = out if first else part.new_empty(size, *part.shape[1:])
        out[first : first + len(part)] = part
        first += len(part)
    return out


def _layer(
    runner: BatchModel,
    number: int,
    data: Data,
    lists: NeighbourLists,
    part: Tensor,
    known: Tensor | None,
    hidden: Tensor | None,
) -> Tensor:  # [p] -> [p, h]
    """One layer for some nodes; `hidden` is the output of the layer before for the nodes `known`, which are sorted."""
    batch = _batch(lists, part, 1)
    if known is None or hidden is None:
        batch.x = rows_of(data.x, batch.n_id)
    else:
        batch.x = hidden.index_select(0, torch.searchsorted(known, batch.n_id))
    return runner.infer_layer(number, batch.to(_device(runner))).cpu()


def _whole_model(runner: BatchModel, data: Data, lists: NeighbourLists, part: Tensor) -> Tensor:  # [p] -> [p, c]
    """All layers for some nodes, from all neighbours within reach."""
    batch = _batch(lists, part, runner.num_hops)
    batch.x = rows_of(data.x, batch.n_id)
    return runner.logits(runner.prepare(batch.to(_device(runner))))[: len(part)].cpu()


def _batch(lists: NeighbourLists, part: Tensor, num_hops: int) -> Data:
    """All neighbours of some nodes within some hops, as a batch without features."""
    sample = sample_neighbours(lists, part, (-1,) * num_hops if num_hops else (0,), key=0)
    batch = Data(edge_index=sample.edge_index, n_id=sample.nodes)
    batch.batch_size, batch.num_sampled_nodes = len(part), list(sample.num_nodes)
    if lists.edge_weight is not None:
        batch.edge_weight = lists.edge_weight[sample.positions]
    return batch


def _with_neighbours(lists: NeighbourLists, nodes: Tensor, max_edges: int) -> Tensor:
    """Some nodes and all of their neighbours, sorted."""
    is_met = torch.zeros(lists.num_nodes, dtype=torch.bool)
    is_met[nodes] = True
    for part in _parts(lists, nodes, max_edges):
        is_met[sample_neighbours(lists, part, (-1,), key=0).nodes] = True
    return is_met.nonzero()[:, 0]


def _parts(lists: NeighbourLists, nodes: Tensor, max_edges: int) -> Iterator[Tensor]:
    """Cut a list of nodes where the edges into them, and the nodes themselves, reach a multiple of `max_edges`."""
    ends = (lists.degrees[nodes] + 1).cumsum(0).numpy()
    cuts = np.searchsorted(ends, np.arange(max_edges, int(ends[-1]) if len(ends) else 0, max_edges), side="right")
    for first, last in pairwise([0, *np.unique(cuts).tolist(), len(nodes)]):
        if last > first:
            yield nodes[first:last]


def _device(runner: BatchModel) -> torch.device:
    """The device of the model."""
    return next((p.device for p in runner.model.parameters()), torch.device("cpu"))
