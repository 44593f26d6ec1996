"""Neighbour sampling for minibatches of nodes: the edges into each node, and uniform samples of them over some hops.

Samples are drawn without replacement by Floyd's algorithm, from random numbers that are a function of (key, hop, node)
and of nothing else. The loops are compiled by numba (with the extra `fast`); without it numpy is used, with the same
results.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from numbers import Integral

import numpy as np
import torch
from torch import Tensor

from wtawp.base import DataError, seed_of

HAS_NUMBA = find_spec("numba") is not None
_GOLDEN, _INCREMENT = np.uint64(0x9E3779B97F4A7C15), 0xD1B54A32D192ED03
_MIXERS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))

if HAS_NUMBA:
    from wtawp.graphs import sampling_numba


@dataclass(frozen=True, eq=False)
class NeighbourLists:
    """The edges of a graph sorted by their target, so that the edges into a node can be read without a search.

    Attributes:
        indptr: Where the edges into each node start, [n + 1] int64.
        sources: Source of each edge, [e] int32, or int64 if there are more than 2^31 nodes.
        edge_ids: Position of each edge in the `edge_index` that the lists were built from, [e]; None if the edges were
            sorted already.
        edge_weight: Weight of each edge, in the order of the lists, [e]; None if all are 1.

    Raises:
        DataError: If the sizes do not match, or `indptr` is not an int64 tensor that rises from 0 to the number of
            edges.

    Example:
        >>> lists = NeighbourLists.from_edges(torch.tensor([[0, 2, 1], [1, 1, 0]]), 3)
        >>> lists.indptr, lists.sources
        (tensor([0, 1, 3, 3]), tensor([1, 0, 2], dtype=torch.int32))
    """

    indptr: Tensor
    sources: Tensor
    edge_ids: Tensor | None = None
    edge_weight: Tensor | None = None

    def __post_init__(self) -> None:
        starts, num_edges = self.indptr, len(self.sources)
        if starts.dtype != torch.int64 or starts.dim() != 1 or not len(starts):
            raise DataError(f"indptr must be int64 of shape [n + 1], got {starts.dtype} of shape {list(starts.shape)}")
        if int(starts[0]) != 0 or int(starts[-1]) != num_edges or bool((starts[1:] < starts[:-1]).any()):
            raise DataError(
                f"indptr must rise from 0 to the number of edges, {num_edges}; it ends at {int(starts[-1])}"
            )
        if self.sources.dtype not in (torch.int32, torch.int64):
            raise DataError(f"sources must be int32 or int64, got {self.sources.dtype}")
        if num_edges and not 0 <= int(self.sources.min()) <= int(self.sources.max()) < self.num_nodes:
            extent = f"{int(self.sources.min())} to {int(self.sources.max())}"
            raise DataError(f"edges must join the nodes 0 to {self.num_nodes - 1}, got {extent}")
        for name in ("edge_ids", "edge_weight"):
            values = getattr(self, name)
            if values is not None and values.shape != (num_edges,):
                raise DataError(f"{name} must have the shape [{num_edges}], got {list(values.shape)}")

    @staticmethod
    def from_edges(
        edge_index: Tensor, num_nodes: int, edge_weight: Tensor | None = None, *, compiled: bool = True
    ) -> "NeighbourLists":
        """Sort edges by their target, in time proportional to their number.

        Args:
            edge_index: Edges from `edge_index[0]` to `edge_index[1]`, on the CPU, [2, e]. Equal edges are kept.
            num_nodes: Number of nodes n, including those without edges.
            edge_weight: Weight of each edge, [e]; None if all are 1.
            compiled: Whether to use the compiled loop, if numba is installed; the result is the same.

        Returns:
            The lists.

        Raises:
            DataError: If an edge names a node that does not exist, or the weights do not match.
        """
        if edge_index.dim() != 2 or len(edge_index) != 2 or edge_index.is_floating_point():
            got = f"{edge_index.dtype} of shape {list(edge_index.shape)}"
            raise DataError(f"edge_index must be integers of shape [2, e], got {got}")
        if edge_weight is not None and edge_weight.shape != edge_index.shape[1:]:
            raise DataError(
                f"edge_weight must have the shape {list(edge_index.shape[1:])}, got {list(edge_weight.shape)}"
            )
        targets = edge_index[1].cpu()
        if len(targets) and not 0 <= int(targets.min()) <= int(targets.max()) < num_nodes:
            extent = f"{int(targets.min())} to {int(targets.max())}"
            raise DataError(f"edges must join the nodes 0 to {num_nodes - 1}, got {extent}")
        indptr = torch.zeros(num_nodes + 1, dtype=torch.int64)
        torch.cumsum(torch.bincount(targets, minlength=num_nodes), 0, out=indptr[1:])
        sources = edge_index[0].to("cpu", torch.int32 if num_nodes < 2**31 else torch.int64)
        weight = None if edge_weight is None else edge_weight.detach().cpu()
        if not bool((targets[1:] < targets[:-1]).any()):
            return NeighbourLists(indptr, sources, None, weight)
        if compiled and HAS_NUMBA:
            order = torch.empty(len(targets), dtype=torch.int64)
            sampling_numba.sort_by_target(targets.numpy(), indptr.numpy(), order.numpy())
        else:
            order = targets.argsort(stable=True)
        return NeighbourLists(indptr, sources[order], order, None if weight is None else weight[order])

    @property
    def num_nodes(self) -> int:
        """The number of nodes n."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """The number of edges e."""
        return len(self.sources)

    @cached_property
    def degrees(self) -> Tensor:  # [n]
        """The number of edges into each node, [n] int64."""
        return self.indptr.diff()

    def share_memory(self) -> None:
        """Move the tensors to shared memory, so that worker processes that are not forked share them too."""
        for tensor in (self.indptr, self.sources, self.edge_ids, self.edge_weight):
            if tensor is not None:
                tensor.share_memory_()  # type: ignore[no-untyped-call]


@dataclass(frozen=True, eq=False)
class Sample:
    """A sampled neighbourhood of some seeds, with nodes numbered from 0 in the order in which they were met.

    Attributes:
        nodes: The nodes in the whole graph: first the seeds, then those met by the first hop, and so on, [m].
        edge_index: Sampled edges in the new numbers, hop by hop, [2, k].
        positions: Position of each sampled edge in the neighbour lists, [k].
        num_nodes: Number of seeds, then the number of new nodes of each hop.
        num_edges: Number of edges of each hop.
    """

    nodes: Tensor
    edge_index: Tensor
    positions: Tensor
    num_nodes: tuple[int, ...]
    num_edges: tuple[int, ...]


def sample_neighbours(
    lists: NeighbourLists, seeds: Tensor, fanouts: Sequence[int], *, key: int, compiled: bool = True
) -> Sample:
    """Sample edges into the seeds, then edges into the nodes that were met by that, and so on.

    Each hop takes `fanout` of the edges into a node, uniformly without replacement, or all of them if there are no
    more than that. The edges into a node are sampled once, in the hop after the one that met it first. The sample of
    a node depends on the key, the hop and the node alone, not on the other seeds nor on their order.

    Args:
        lists: The graph.
        seeds: Distinct nodes, [s].
        fanouts: Largest number of edges into a node for each hop, the hop next to the seeds first; -1 takes all.
        key: Determines the sample.
        compiled: Whether to use the compiled loops, if numba is installed; the result is the same.

    Returns:
        The sampled nodes and edges.

    Raises:
        ValueError: If there are no fan-outs, or one is below -1.
        DataError: If seeds occur twice or are not nodes of the graph.

    Example:
        >>> lists = NeighbourLists.from_edges(torch.tensor([[1, 2, 3, 4], [0, 0, 1, 3]]), 5)
        >>> sample = sample_neighbours(lists, torch.tensor([0]), (-1, 1), key=0)
        >>> sample.nodes, sample.edge_index
        (tensor([0, 1, 2, 3]), tensor([[1, 2, 3], [0, 0, 1]]))
    """
    check_fanouts(fanouts)
    seed_nodes = _checked_seeds(seeds, lists.num_nodes)
    indptr, sources = lists.indptr.numpy(), lists.sources.numpy()
    numbering = _Numbering(seed_nodes, compiled=compiled)
    ends, hops = [0, len(seed_nodes)], []
    for hop, fanout in enumerate(fanouts):
        first, last = ends[-2:]
        hop_key = np.uint64(seed_of("neighbours", key, hop))
        positions, counts = _draw_positions(indptr, numbering.nodes[first:last], fanout, hop_key, compiled=compiled)
        hops.append((numbering.add(sources, positions), np.repeat(np.arange(first, last), counts), positions))
        ends.append(len(numbering.nodes))
    edge_sources, targets, sampled = (torch.from_numpy(np.concatenate(parts)) for parts in zip(*hops, strict=True))
    return Sample(
        nodes=torch.from_numpy(numbering.nodes),
        edge_index=torch.stack([edge_sources, targets]),
        positions=sampled,
        num_nodes=tuple(np.diff(ends).tolist()),
        num_edges=tuple(len(hop_positions) for *_, hop_positions in hops),
    )


def check_fanouts(fanouts: Sequence[int]) -> None:
    """Refuse fan-outs that mean nothing.

    Args:
        fanouts: Largest number of edges into a node for each hop.

    Raises:
        ValueError: If they are no sequence of whole numbers, there are none, or one is below -1.
    """
    is_sequence = hasattr(fanouts, "__len__") and not isinstance(fanouts, str)
    if not is_sequence or not len(fanouts) or not all(_is_fanout(number) for number in fanouts):
        raise ValueError(
            "fanouts must be one number or more, one for each layer as in (10, 10), each >= 0, or -1 for all"
            f" neighbours, got {list(fanouts) if is_sequence else fanouts!r}"
        )


def _is_fanout(number: object) -> bool:
    """Whether something is a number of neighbours to sample, or -1 for all."""
    return not isinstance(number, bool) and isinstance(number, Integral) and int(number) >= -1


def _checked_seeds(nodes: Tensor, num_nodes: int) -> np.ndarray:  # -> [k] int64
    """The seeds of a sample as an array; there may be none, unlike in a choice of the caller's (`checked_rows`)."""
    if nodes.dim() != 1 or nodes.is_floating_point() or nodes.dtype == torch.bool:
        raise DataError(f"nodes must be a list of node numbers, got {nodes.dtype} of shape {list(nodes.shape)}")
    numbers = np.ascontiguousarray(nodes.cpu().numpy(), dtype=np.int64)
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < num_nodes:
        raise DataError(f"nodes must lie between 0 and {num_nodes - 1}, got {numbers.min()} to {numbers.max()}")
    twice = len(numbers) - len(np.unique(numbers))
    if twice:
        raise DataError(f"nodes must be distinct, but {twice} of {len(numbers)} occur again")
    return numbers


def _draw_positions(
    indptr: np.ndarray, nodes: np.ndarray, fanout: int, key: np.uint64, *, compiled: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Draw edges into each node by Floyd's algorithm: their positions in the lists, and how many each node has."""
    starts = indptr[nodes]
    degrees = indptr[nodes + 1] - starts
    counts = degrees if fanout < 0 else np.minimum(degrees, fanout)
    offsets = np.cumsum(counts) - counts
    if compiled and HAS_NUMBA:
        out = np.empty(int(counts.sum()), dtype=np.int64)
        sampling_numba.draw_positions(indptr, nodes, fanout, key, offsets, out)
        return out, counts
    out = np.repeat(starts - offsets, counts) + np.arange(int(counts.sum()))  # right where all edges are taken
    if fanout > 0 and (many := np.flatnonzero(degrees > fanout)).size:
        drawn = _floyd(degrees[many], fanout, _splitmix64(key + nodes[many].astype(np.uint64) * _GOLDEN))
        for j in range(fanout):
            out[offsets[many] + j] = starts[many] + drawn[j]
    return out, counts


def _floyd(degrees: np.ndarray, fanout: int, states: np.ndarray) -> np.ndarray:  # [m], [m] -> [fanout, m]
    """Choose `fanout` numbers below each degree, without replacement, for all nodes at once."""
    drawn = np.empty((fanout, len(degrees)), dtype=np.int64)
    for j in range(fanout):
        last = degrees - fanout + j
        counter = np.uint64(j * _INCREMENT % 2**64)  # numpy warns of an overflow of scalars, not of arrays
        share = (_splitmix64(states + counter) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        number = (share * (last + 1)).astype(np.int64)
        drawn[j] = np.where((drawn[:j] == number).any(0), last, number)
    return drawn


def _splitmix64(h: np.ndarray) -> np.ndarray:
    """Map 64 bits one to one to 64 bits without visible pattern (the finaliser of SplitMix64), in numpy."""
    for shift, factor in _MIXERS:
        h = (h ^ (h >> shift)) * factor
    out: np.ndarray = h ^ (h >> np.uint64(31))
    return out


class _Numbering:
    """Numbers nodes in the order in which they are first met; the compiled way keeps a hash table of a batch's size."""

    def __init__(self, seeds: np.ndarray, *, compiled: bool) -> None:
        self.nodes, self._compiled = seeds, compiled and HAS_NUMBA
        self._table = np.empty(0, dtype=np.int32)  # from nodes to their numbers

    def add(self, sources: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Append the sources of some edges that are new to the nodes; returns the number of each edge's source."""
        known = len(self.nodes)
        if self._compiled:
            nodes, numbers = np.empty(known + len(positions), np.int64), np.empty(len(positions), np.int64)
            nodes[:known] = self.nodes
            if len(self._table) < 2 * len(nodes):
                self._table = np.full(1 << (2 * len(nodes)).bit_length(), -1, np.int32)
                sampling_numba.insert(nodes, known, self._table)
            self.nodes = nodes[: sampling_numba.renumber(sources, positions, nodes, known, self._table, numbers)].copy()
            return numbers
        met = np.concatenate([self.nodes, sources[positions]])
        distinct, first, inverse = np.unique(met, return_index=True, return_inverse=True)
        order = np.argsort(first)  # the known nodes come first, in their order
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        self.nodes = distinct[order]
        return rank[inverse.reshape(-1)[known:]]
