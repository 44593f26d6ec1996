"""Minibatches of nodes with sampled neighbourhoods, as PyG's loaders make them, from the sampler of this package."""

import math
from collections.abc import Callable, Iterator, Sequence
from numbers import Integral

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler
from torch_geometric.data import Data

from wtawp.base import DataError, checked_seed, rng, seed_of
from wtawp.graphs.row_choices import checked_rows
from wtawp.graphs.sampling import NeighbourLists, check_fanouts, sample_neighbours

Transform = Callable[[Data], Data]


class NodeBatches:
    """Iterates over batches of nodes, each with a sampled neighbourhood. One iteration is one epoch.

    A batch is PyG's `Data` with the attributes that PyG's `NeighborLoader` gives it: `n_id` (the nodes in the whole
    graph; the first `batch_size` are the seeds), `e_id` (the sampled edges), `input_id` (positions of the seeds in
    `nodes`), `num_sampled_nodes` and `num_sampled_edges` (of each hop). All other attributes of nodes and edges are
    those of the sampled ones.

    The batches are a function of (seed, epoch, number of the batch), whatever the number of workers. Workers share the
    graph with this process without a copy, sample, read what is mapped from disk, and hold two batches each in advance.
    Features in memory are copied in this process: that is faster than to send them.

    Args:
        data: The graph, on the CPU. Features may be a NumPy array that is mapped from disk,
            `np.load(path, mmap_mode="r")`: a batch reads the rows it needs.
        nodes: The nodes to iterate over, as distinct indices [k] or a boolean mask [n].
        fanouts: Largest number of neighbours of a node that are sampled in each hop, the hop next to the seeds first;
            -1 takes all.
        batch_size: Number of seeds in a batch; the last batch of an epoch may be smaller.
        seed: Determines the order of the nodes and the samples.
        shuffle: Whether each epoch has an order of its own.
        neighbours: The neighbour lists of the graph, if they are built already; `data` then needs no `edge_index`.
            None builds them.
        transform: Called with each batch in this process, such as `GcnWeights`; None leaves batches as they are.
        num_workers: Number of processes that prepare batches; 0 prepares them in this process.

    Attributes:
        epoch: Number of the next epoch. Each iteration raises it by 1; set it to repeat an epoch or to resume.
        neighbours: The neighbour lists.

    Raises:
        ValueError: If `batch_size` is not a whole number from 1 on, `num_workers` not one from 0 on, or the fan-outs
            mean nothing.
        DataError: If the nodes are none, occur twice or do not exist, or the graph is not on the CPU, or its neighbour
            lists are of another size.

    Example:
        >>> from wtawp.graphs import load
        >>> data = load("wine")
        >>> batches = NodeBatches(data, torch.arange(100), (5, 5), batch_size=40, seed=0)
        >>> [batch.batch_size for batch in batches]
        [40, 40, 20]
    """

    def __init__(
        self,
        data: Data,
        nodes: Tensor,
        fanouts: Sequence[int],
        *,
        batch_size: int,
        seed: int,
        shuffle: bool = True,
        neighbours: NeighbourLists | None = None,
        transform: Transform | None = None,
        num_workers: int = 0,
    ) -> None:
        seed = checked_seed(seed)
        check_fanouts(fanouts)
        _check_whole("batch_size", batch_size, 1)
        _check_whole("num_workers", num_workers, 0)
        self.neighbours = neighbour_lists_of(data) if neighbours is None else neighbours
        if data.num_nodes != self.neighbours.num_nodes:
            raise DataError(f"data has {data.num_nodes} nodes and its neighbour lists {self.neighbours.num_nodes}")
        nodes = checked_rows(nodes, self.neighbours.num_nodes, distinct=True)
        self.epoch, self._order = 0, _Order(len(nodes), batch_size, seed, shuffle)
        self._data, self._transform = data, transform
        arrays = {key: value for key, value in data.to_dict().items() if isinstance(value, Tensor | np.ndarray)}
        kept = [key for key in arrays if key not in ("edge_index", "edge_weight", "n_id", "e_id", "input_id")]
        self._index_of = {key: "n_id" for key in kept if data.is_node_attr(key)}
        self._index_of |= {key: "e_id" for key in kept if key not in self._index_of and data.is_edge_attr(key)}
        self._in_memory = [key for key in self._index_of if isinstance(arrays[key], Tensor)]
        mapped = {key: v for key, v in arrays.items() if key in self._index_of and isinstance(v, np.ndarray)}
        dataset = _Samples(nodes.cpu(), tuple(fanouts), seed, self.neighbours, mapped, self._index_of)
        self._loader = DataLoader(
            dataset,
            batch_size=None,
            sampler=self._order,
            num_workers=num_workers,
            collate_fn=_unchanged,
            persistent_workers=num_workers > 0,
            generator=rng("workers", seed),  # so that torch's global generator is not used
        )
        if num_workers and torch.multiprocessing.get_start_method() != "fork":
            self.neighbours.share_memory()

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Data]:
        self._order.epoch = self.epoch
        self.epoch += 1
        return map(self._complete, iter(self._loader))

    def _complete(self, batch: Data) -> Data:
        """Add to a sampled batch what is in memory, and transform it."""
        for name in self._in_memory:
            batch[name] = rows_of(self._data[name], batch[self._index_of[name]])
        return batch if self._transform is None else self._transform(batch)


def _check_whole(name: str, value: object, least: int) -> None:
    """Refuse what is not a whole number from `least` on."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}")


class _Order(Sampler[tuple[int, int, Tensor]]):
    """The batches of an epoch: number of the epoch, number of the batch, positions of its seeds."""

    def __init__(self, size: int, batch_size: int, seed: int, shuffle: bool) -> None:
        self.size, self.batch_size, self.seed, self.shuffle, self.epoch = size, int(batch_size), seed, shuffle, 0

    def __len__(self) -> int:
        return math.ceil(self.size / self.batch_size)

    def __iter__(self) -> Iterator[tuple[int, int, Tensor]]:
        order = torch.arange(self.size)
        if self.shuffle:
            order = torch.randperm(self.size, generator=rng("node batches", self.seed, self.epoch))
        # A worker that is sent a view would receive the whole order. The epoch is that of this call, not of later ones.
        parts = [(self.epoch, i, part.clone()) for i, part in enumerate(torch.split(order, self.batch_size))]
        return iter(parts)


class _Samples(Dataset[Data]):
    """Draws the batch that an entry of `_Order` describes, with the attributes that are mapped from disk."""

    def __init__(
        self,
        nodes: Tensor,
        fanouts: tuple[int, ...],
        seed: int,
        neighbours: NeighbourLists,
        mapped: dict[str, np.ndarray],
        index_of: dict[str, str],
    ) -> None:
        self.nodes, self.fanouts, self.seed, self.neighbours = nodes, fanouts, seed, neighbours
        self.mapped, self.index_of = mapped, index_of

    def __getitem__(self, index: tuple[int, int, Tensor]) -> Data:
        epoch, number, positions = index
        lists, key = self.neighbours, seed_of("node batches", self.seed, epoch, number)
        sample = sample_neighbours(lists, self.nodes[positions], self.fanouts, key=key)
        e_id = sample.positions if lists.edge_ids is None else lists.edge_ids[sample.positions]
        batch = Data(edge_index=sample.edge_index, n_id=sample.nodes, e_id=e_id, input_id=positions)
        batch.batch_size = len(positions)
        batch.num_sampled_nodes, batch.num_sampled_edges = list(sample.num_nodes), list(sample.num_edges)
        for name, values in self.mapped.items():
            batch[name] = rows_of(values, batch[self.index_of[name]])
        if lists.edge_weight is not None:
            batch.edge_weight = lists.edge_weight[sample.positions]
        return batch


def neighbour_lists_of(data: Data) -> NeighbourLists:
    """Build the neighbour lists of a graph, with its `edge_weight` if it has one.

    Args:
        data: The graph, on the CPU.

    Returns:
        The lists.

    Raises:
        DataError: If the graph has no `edge_index`, is not on the CPU, or has edges to nodes that do not exist.
    """
    edges = data.get("edge_index")
    if not isinstance(edges, Tensor):
        raise DataError("the graph has no edge_index; pass its edges, or its NeighbourLists as `neighbours`")
    if edges.device.type != "cpu":
        raise DataError(f"batches are cut out of a graph on the CPU, and this one is on {edges.device}; use data.cpu()")
    return NeighbourLists.from_edges(edges, data.num_nodes, data.get("edge_weight"))


def rows_of(values: Tensor | np.ndarray, rows: Tensor) -> Tensor:
    """Copy some rows of a tensor, or of a NumPy array, which may be mapped from disk.

    Args:
        values: The values, [n, ...]; a tensor may be sparse.
        rows: The rows to copy, [k].

    Returns:
        A dense tensor with the rows, [k, ...].
    """
    if isinstance(values, np.ndarray):  # `take` and `index_select` are three times as fast as brackets
        return torch.from_numpy(np.asarray(values).take(rows.numpy(), axis=0))
    if values.layout != torch.strided:
        return values.to_sparse().index_select(0, rows).to_dense()
    return values.index_select(0, rows.to(values.device))


def _unchanged(batch: Data) -> Data:
    """Stand in for the function that joins the samples of a batch: here, a sample is a batch."""
    return batch
