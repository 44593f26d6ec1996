"""Collections: many graphs as one block-diagonal graph, and the operator that averages over the nodes of each graph.

A collection is laid out as PyG's `Batch`: the nodes of all graphs one after another in `x`, their edges in
`edge_index`, the number of each node's graph in `batch` [n], and one label a graph in `y` [g]. Graphs can then be
classified as nodes are: there is one row of logits and one label for each.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch_geometric.data import Data

from wtawp.base import DataError
from wtawp.graphs.operator import Operator


def is_collection(data: Data) -> bool:
    """Whether `data` is a collection of graphs to classify, and not one graph whose nodes are classified.

    Args:
        data: A graph, or a collection, which has an attribute `batch` with the graph of each node.

    Returns:
        True for a collection.

    Example:
        >>> is_collection(Data(x=torch.ones(2, 1)))
        False
    """
    return getattr(data, "batch", None) is not None


def batched(graphs: Data | Sequence[Data], *, any_target: bool = False) -> Data:
    """Combine a list of labelled graphs into one collection, and check it.

    Graphs without edges and graphs of one node are allowed. Edge weights and attributes are dropped.

    Args:
        graphs: A list of graphs, each with features `x`, `edge_index` and one class number `y` (-1: unknown), a tensor
            of any whole-number type or a boolean one. A single graph is returned as it is, and so is a collection,
            such as PyG's `Batch`, after a check.
        any_target: Whether `y` may be any target of one graph, such as numbers to predict, instead of a class number:
            [1] or [1, t] in each graph, [g] or [g, t] in a collection.

    Returns:
        The collection, with one label a graph in `y` and the graph of each node in `batch`. Class numbers of a list of
        graphs become int64.

    Raises:
        DataError: If there are no graphs; if a graph has no nodes, features or label, or not as many features as the
            others; or if an edge leaves its graph.

    Example:
        >>> pair = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([1]))
        >>> batched([pair, pair])
        Data(x=[4, 1], edge_index=[2, 4], y=[2], batch=[4])
    """
    if isinstance(graphs, Data):
        return _checked(graphs, any_target) if is_collection(graphs) else graphs
    if not graphs:
        raise DataError("a collection needs one graph or more, got none")
    for i, graph in enumerate(graphs):
        _check_graph(graph, i, like=graphs[0], any_target=any_target)
    sizes = torch.tensor([len(graph.x) for graph in graphs])
    starts = (sizes.cumsum(0) - sizes).tolist()
    y = torch.cat([graph.y.reshape(1, *(graph.y.shape[1:] if any_target else ())) for graph in graphs])
    edges = [graph.edge_index + start for graph, start in zip(graphs, starts, strict=True)]
    return Data(
        x=torch.cat([graph.x for graph in graphs]),
        edge_index=torch.cat(edges, 1),
        y=y if any_target else y.long(),
        batch=torch.repeat_interleave(sizes).to(graphs[0].x.device),
    )


def select_graphs(data: Data, rows: Tensor) -> Data:  # [k]
    """Select some graphs of a collection.

    Args:
        data: The collection.
        rows: The numbers of the graphs, in the order they shall have, [k].

    Returns:
        The collection of these graphs alone.

    Example:
        >>> lone = Data(x=torch.ones(1, 1), edge_index=torch.empty(2, 0, dtype=torch.long), y=torch.tensor([0]))
        >>> select_graphs(batched([lone, lone, lone]), torch.tensor([2, 0]))
        Data(x=[2, 1], edge_index=[2, 0], y=[2], batch=[2])
    """
    return GraphBatches(data).select(rows)


class GraphBatches:
    """Selects graphs of a collection again and again, as PyG's `DataLoader` does, but without a loop over graphs.

    Args:
        data: The collection.

    Example:
        >>> pair = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([1]))
        >>> GraphBatches(batched([pair, pair, pair])).select([2, 0]).edge_index
        tensor([[0, 1, 2, 3],
                [1, 0, 3, 2]])
    """

    def __init__(self, data: Data) -> None:
        graph_of_node, by_graph = data.batch.sort(stable=True)
        place = torch.empty_like(by_graph)
        place[by_graph] = torch.arange(len(by_graph), device=place.device)
        graph_of_edge, order = data.batch[data.edge_index[0]].sort(stable=True)  # both ends are in the same graph
        self._nodes = _Ranges(torch.bincount(graph_of_node, minlength=len(data.y)))
        self._edges = _Ranges(torch.bincount(graph_of_edge, minlength=len(data.y)))
        self._x, self._y = data.x[by_graph], data.y
        # Ends of edges are counted from the first node of their graph.
        self._edge_index = place[data.edge_index[:, order]] - self._nodes.starts[graph_of_edge]

    def select(self, graphs: Sequence[int] | Tensor) -> Data:  # [k]
        """Select some graphs.

        Args:
            graphs: The numbers of the graphs, in the order they shall have, [k].

        Returns:
            The collection of these graphs alone.
        """
        rows = torch.as_tensor(graphs, dtype=torch.long, device=self._y.device)
        nodes, batch, starts = self._nodes.of(rows)
        edges, graph_of_edge, _ = self._edges.of(rows)
        edge_index = self._edge_index[:, edges] + starts[graph_of_edge]
        return Data(x=self._x[nodes], edge_index=edge_index, y=self._y[rows], batch=batch)


class _Ranges:
    """Consecutive ranges of numbers 0, 1, ..., given by their lengths [g]."""

    def __init__(self, lengths: Tensor) -> None:
        self.lengths = lengths
        self.starts = lengths.cumsum(0) - lengths

    def of(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # [k] -> [m], [m], [k]
        """The numbers of some ranges, the place in `rows` that each belongs to, and where each range starts there."""
        lengths = self.lengths[rows]
        starts = lengths.cumsum(0) - lengths
        place = torch.repeat_interleave(lengths)
        shift = self.starts[rows] - starts
        return torch.arange(len(place), device=place.device) + shift[place], place, starts


def mean_pooling(batch: Tensor, dtype: torch.dtype = torch.float32) -> Operator:  # [n] -> [g, n]
    """The operator whose row i averages over the nodes of graph i, as PyG's `global_mean_pool` does.

    Args:
        batch: The graph of each node, [n].
        dtype: Type of the operator's values.

    Returns:
        The operator of shape [g, n].

    Example:
        >>> mean_pooling(torch.tensor([0, 0, 1])).to_dense()
        tensor([[0.5000, 0.5000, 0.0000],
                [0.0000, 0.0000, 1.0000]])
    """
    sizes = torch.bincount(batch)
    columns = torch.arange(len(batch), device=batch.device)
    return Operator.from_entries(batch, columns, 1 / sizes[batch].to(dtype), (len(sizes), len(batch)))


def sum_pooling(batch: Tensor, dtype: torch.dtype = torch.float32) -> Operator:  # [n] -> [g, n]
    """The operator whose row i adds the nodes of graph i, as PyG's `global_add_pool` does.

    Args:
        batch: The graph of each node, [n].
        dtype: Type of the operator's values.

    Returns:
        The operator of shape [g, n].

    Example:
        >>> sum_pooling(torch.tensor([0, 0, 1])).to_dense()
        tensor([[1., 1., 0.],
                [0., 0., 1.]])
    """
    columns = torch.arange(len(batch), device=batch.device)
    ones = torch.ones(len(batch), dtype=dtype, device=batch.device)
    return Operator.from_entries(batch, columns, ones, (int(batch.max()) + 1, len(batch)))


def _check_graph(graph: Data, i: int, like: Data, *, any_target: bool) -> None:
    """Refuse a graph that cannot be part of a collection whose first graph is `like`."""
    x, y, edges = graph.x, graph.y, graph.edge_index
    if x is None or edges is None:
        raise DataError(f"graph {i} has no {'x' if x is None else 'edge_index'}; give it one, if only a constant 1")
    if x.dim() != 2 or x.shape[1] != like.x.shape[1]:
        raise DataError(
            f"graph {i} has features of shape {list(x.shape)}, graph 0 of {list(like.x.shape)}: all graphs need as many"
            " columns; one-hot degrees must be wide enough for the largest degree of the collection"
        )
    if not len(x):
        raise DataError(f"graph {i} has no nodes, so there is nothing to average; leave it out")
    if y is not None and not isinstance(y, Tensor):
        example = f"y=torch.tensor([{y!r}])" if isinstance(y, int | float) else "y=torch.tensor([1])"
        raise DataError(f"the label y of graph {i} must be a tensor, such as {example}, got {type(y).__name__}")
    if any_target:
        if y is None or y.numel() != y.shape[1:].numel() or y.shape[1:] != like.y.shape[1:]:
            got = "none" if y is None else f"shape {list(y.shape)}"
            raise DataError(
                f"graph {i} needs a target y of shape [1] or [1, t], with the same t in all graphs, got {got}"
            )
    elif y is None or y.numel() != 1 or y.is_floating_point() or int(y) < -1:
        got = "none" if y is None else f"{y.dtype} of shape {list(y.shape)}"
        raise DataError(f"graph {i} needs one class number as its label y (-1: unknown), got {got}")
    if edges.numel() and not 0 <= int(edges.min()) <= int(edges.max()) < len(x):
        extent = f"{int(edges.min())} to {int(edges.max())}"
        raise DataError(f"edges of graph {i} must join its nodes 0 to {len(x) - 1}, got {extent}")


def _checked(data: Data, any_target: bool) -> Data:
    """The collection itself, if its labels, sizes and edges are right."""
    sizes = torch.bincount(data.batch, minlength=1)
    is_usable = data.y is not None and (any_target or (data.y.dim() == 1 and not data.y.is_floating_point()))
    if not is_usable or not data.y.dim() or len(data.y) != len(sizes):
        got = "none" if data.y is None else f"{data.y.dtype} of shape {list(data.y.shape)}"
        wanted = "targets" if any_target else "class numbers"
        raise DataError(f"a batch of {len(sizes)} graphs needs as many {wanted} y, got {got}")
    if not bool(sizes.all()):
        raise DataError(
            f"graphs {(sizes == 0).nonzero()[:, 0].tolist()[:8]} of the batch have no nodes; leave them out"
        )
    ends = data.batch[data.edge_index]
    if not torch.equal(ends[0], ends[1]):
        raise DataError("an edge of the batch joins two different graphs")
    return data
