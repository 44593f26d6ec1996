"""Many graphs as one: a block-diagonal graph, and the operator that averages over the nodes of each.

A collection is a `Data` as PyG's `Batch` is: the nodes of all graphs one after another in `x`, their edges in
`edge_index`, the number of each node's graph in `batch` [n], and one label a graph in `y` [g]. Classifying graphs is
then what classifying nodes is: rows of logits with labels.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch_geometric.data import Data

from wtawp.base import DataError
from wtawp.graphs.operator import Operator


def is_collection(data: Data) -> bool:
    """Whether graphs are classified, not nodes: `batch` says which graph each node belongs to."""
    return getattr(data, "batch", None) is not None


def batched(graphs: Data | Sequence[Data]) -> Data:
    """A list of labelled graphs as one collection, checked. One graph, and what PyG's `Batch` made, pass as they are.

    Graphs without edges and graphs of one node are graphs as all others. Of edges the ends count alone, not weights.

    >>> pair = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([1]))
    >>> batched([pair, pair])
    Data(x=[4, 1], edge_index=[2, 4], y=[2], batch=[4])
    """
    if isinstance(graphs, Data):
        return _checked(graphs) if is_collection(graphs) else graphs
    if not graphs:
        raise DataError("a collection needs one graph or more, got none")
    for i, graph in enumerate(graphs):
        _check_graph(graph, i, like=graphs[0])
    sizes = torch.tensor([len(graph.x) for graph in graphs])
    starts = (sizes.cumsum(0) - sizes).tolist()
    edges = [graph.edge_index + start for graph, start in zip(graphs, starts, strict=True)]
    return Data(
        x=torch.cat([graph.x for graph in graphs]),
        edge_index=torch.cat(edges, 1),
        y=torch.cat([graph.y.reshape(1) for graph in graphs]),
        batch=torch.repeat_interleave(sizes).to(graphs[0].x.device),
    )


def select_graphs(data: Data, rows: Tensor) -> Data:  # [k]
    """The collection of the graphs `rows` (distinct), in that order, and nothing of the others."""
    place = torch.full((len(data.y),), -1, device=rows.device)
    place[rows] = torch.arange(len(rows), device=rows.device)
    nodes = (place[data.batch] >= 0).nonzero()[:, 0]
    nodes = nodes[place[data.batch[nodes]].sort(stable=True).indices]
    of_node = torch.full((len(data.batch),), -1, device=rows.device)
    of_node[nodes] = torch.arange(len(nodes), device=rows.device)
    edges = of_node[data.edge_index]
    return Data(
        x=data.x[nodes], edge_index=edges[:, edges[0] >= 0], y=data.y[rows], batch=place[data.batch[nodes]]
    )  # an edge joins nodes of one graph, so one end tells


def mean_pooling(batch: Tensor, dtype: torch.dtype = torch.float32) -> Operator:  # [n] -> [g, n]
    """The operator whose row i is the mean over the nodes of graph i; PyG's `global_mean_pool`.

    >>> mean_pooling(torch.tensor([0, 0, 1])).to_dense()
    tensor([[0.5000, 0.5000, 0.0000],
            [0.0000, 0.0000, 1.0000]])
    """
    sizes = torch.bincount(batch)
    columns = torch.arange(len(batch), device=batch.device)
    return Operator.from_entries(batch, columns, 1 / sizes[batch].to(dtype), (len(sizes), len(batch)))


def _check_graph(graph: Data, i: int, like: Data) -> None:
    x, y, edges = graph.x, graph.y, graph.edge_index
    if x is None or edges is None:
        raise DataError(f"graph {i} has no {'x' if x is None else 'edge_index'}; give it one, if only a constant 1")
    if x.dim() != 2 or x.shape[1] != like.x.shape[1]:
        raise DataError(
            f"graph {i} has features of shape {list(x.shape)}, graph 0 of {list(like.x.shape)}: all graphs need as many"
            " columns; one-hot degrees must be as wide as the largest degree of the collection asks"
        )
    if not len(x):
        raise DataError(f"graph {i} has no nodes, so there is nothing to average; leave it out")
    if y is None or y.numel() != 1 or y.is_floating_point() or int(y) < -1:
        got = "none" if y is None else f"{y.dtype} of shape {list(y.shape)}"
        raise DataError(f"graph {i} needs one class number as its label y (-1: unknown), got {got}")
    if edges.numel() and not 0 <= int(edges.min()) <= int(edges.max()) < len(x):
        found = f"{int(edges.min())} to {int(edges.max())}"
        raise DataError(f"edges of graph {i} must join its nodes 0 to {len(x) - 1}, got {found}")


def _checked(data: Data) -> Data:
    sizes = torch.bincount(data.batch, minlength=1)
    if data.y is None or data.y.dim() != 1 or len(data.y) != len(sizes) or data.y.is_floating_point():
        got = "none" if data.y is None else f"{data.y.dtype} of shape {list(data.y.shape)}"
        raise DataError(f"a batch of {len(sizes)} graphs needs as many class numbers y, got {got}")
    if not bool(sizes.all()):
        raise DataError(
            f"graphs {(sizes == 0).nonzero()[:, 0].tolist()[:8]} of the batch have no nodes; leave them out"
        )
    ends = data.batch[data.edge_index]
    if not torch.equal(ends[0], ends[1]):
        raise DataError("an edge of the batch joins two different graphs")
    return data
