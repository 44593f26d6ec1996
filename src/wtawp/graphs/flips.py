"""Edge flips, the result of every attack. A flip adds an undirected edge where there is none, else removes it."""

import copy
from dataclasses import dataclass, replace
from numbers import Integral, Real
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from wtawp.base import DataError
from wtawp.graphs.file_checks import brief
from wtawp.graphs.flip_files import Provenance, check_provenance, pack_codes, read_flips, unpack_codes, write_flips

MAX_NODES = 3_037_000_499  # the largest number whose square is below 2**63: a pair is coded as i * num_nodes + j


@dataclass(frozen=True, eq=False)
class EdgeFlips:
    """Pairs of nodes between which the edge is flipped, in both directions.

    Attributes:
        pairs: The pairs (i, j) with i < j, each once, sorted by i and then by j, [2, k] int64. `EdgeFlips.of` sorts.
        num_nodes: Number of nodes of the graph.
        provenance: Where the flips come from, as pairs (name, value) of strings.

    Raises:
        DataError: If the pairs are not as described, or name nodes that do not exist.

    Example:
        >>> path = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=3)
        >>> EdgeFlips(torch.tensor([[0, 1], [1, 2]]), num_nodes=3).apply(path).edge_index
        tensor([[1, 2],
                [2, 1]])
    """

    pairs: Tensor
    num_nodes: int
    provenance: Provenance = ()

    def __post_init__(self) -> None:
        pairs = self.pairs
        if pairs.dim() != 2 or pairs.shape[0] != 2 or pairs.dtype != torch.int64:
            raise DataError(f"pairs must be int64 of shape [2, k], got {pairs.dtype} of shape {list(pairs.shape)}")
        if not _is_number_of_nodes(self.num_nodes):
            raise DataError(f"flips need a graph of 1 to {MAX_NODES} nodes, got num_nodes={brief(self.num_nodes)}")
        if pairs.shape[1] and not (int(pairs.min()) >= 0 and int(pairs.max()) < self.num_nodes):
            extent = f"{int(pairs.min())} to {int(pairs.max())}"
            raise DataError(f"pairs must be of nodes 0 to {self.num_nodes - 1}, got {extent}")
        if bool((pairs[0] >= pairs[1]).any()):
            raise DataError("each pair must be (i, j) with i < j: no self-loops, each pair in one direction")
        if bool(((pairs[0] * self.num_nodes + pairs[1]).diff() <= 0).any()):
            raise DataError("pairs must be sorted and occur once; EdgeFlips.of sorts any pairs")
        check_provenance(self.provenance)

    @staticmethod
    def of(pairs: Tensor, num_nodes: int, provenance: Provenance = ()) -> "EdgeFlips":
        """Build flips from pairs in any order and direction.

        Args:
            pairs: The pairs, each once and without self-loops, [2, k] int64.
            num_nodes: Number of nodes of the graph.
            provenance: Where the flips come from, as pairs (name, value) of strings.

        Returns:
            The flips, sorted, on the CPU.
        """
        ordered = torch.stack([pairs.amin(0), pairs.amax(0)]).cpu()
        return EdgeFlips(ordered[:, torch.argsort(ordered[0] * num_nodes + ordered[1])], num_nodes, provenance)

    @staticmethod
    def between(before: Data, after: Data, provenance: tuple[tuple[str, str], ...] = ()) -> "EdgeFlips":
        """Find the flips that turn one graph into another, such as a clean graph into a published attacked one.

        Args:
            before: An undirected graph without edge weights.
            after: A graph of as many nodes; self-loops of both are ignored.
            provenance: Where the flips come from, as pairs (name, value) of strings.

        Returns:
            The pairs of nodes that are joined in one of the graphs only.

        Raises:
            DataError: If the graphs have different numbers of nodes, or one is directed or weighted.

        Example:
            >>> before, after = (Data(edge_index=torch.tensor([[0, k], [k, 0]]), num_nodes=3) for k in (1, 2))
            >>> EdgeFlips.between(before, after).pairs
            tensor([[0, 0],
                    [1, 2]])
        """
        size = int(before.num_nodes or 0)
        if size != after.num_nodes:
            raise DataError(f"both graphs must have the same nodes, got {size} and {after.num_nodes}")
        old, new = (_codes(undirected_pairs(graph), size) for graph in (before, after))
        changed = torch.cat([old[~torch.isin(old, new)], new[~torch.isin(new, old)]]).sort().values
        return EdgeFlips(torch.stack([changed // size, changed % size]), size, provenance)

    def __len__(self) -> int:
        return self.pairs.shape[1]

    def apply(self, data: Data) -> Data:
        """Flip the edges of a graph.

        Args:
            data: An undirected graph without edge weights, of `num_nodes` nodes. It is not changed.

        Returns:
            A copy with the flipped edges, sorted; everything but the edges is shared with `data`.
        """
        present, flipped = _codes(self._edges(data), self.num_nodes), _codes(self.pairs, self.num_nodes)
        loops = data.edge_index[:, data.edge_index[0] == data.edge_index[1]].cpu()
        kept = torch.cat([present[~torch.isin(present, flipped)], flipped[~torch.isin(flipped, present)]])
        i, j = kept // self.num_nodes, kept % self.num_nodes
        edges = torch.cat([torch.stack([i, j]), torch.stack([j, i]), loops], dim=1)
        changed = copy.copy(data)
        order = torch.argsort(_codes(edges, self.num_nodes))
        changed.edge_index = edges[:, order].to(data.edge_index.device)
        return changed

    def with_origin(self, origin: Provenance) -> "EdgeFlips":
        """Add entries in front of the provenance.

        Args:
            origin: Pairs (name, value) of strings.

        Returns:
            The same flips, with the longer provenance.
        """
        return replace(self, provenance=(*origin, *self.provenance))

    def num_removed(self, data: Data) -> int:
        """Count the flips that remove an edge.

        Args:
            data: The graph to which they are applied.

        Returns:
            Their number.
        """
        present = _codes(self._edges(data), self.num_nodes)
        return int(torch.isin(_codes(self.pairs, self.num_nodes), present).sum())

    def num_added(self, data: Data) -> int:
        """Count the flips that add an edge.

        Args:
            data: The graph to which they are applied.

        Returns:
            Their number.
        """
        return len(self) - self.num_removed(data)

    def save(self, path: str | Path) -> None:
        """Write the flips into a small npz file, atomically.

        Args:
            path: The file, which is replaced if it exists.
        """
        write_flips(path, {"pairs": self.pairs}, {"num_nodes": self.num_nodes}, self.provenance)

    @staticmethod
    def load(path: str | Path) -> "EdgeFlips":
        """Read flips that `save` wrote, and check them.

        Args:
            path: The file.

        Returns:
            The flips.

        Raises:
            DataError: If there is no such file, or it does not hold valid flips.
        """
        (pairs,), (num_nodes,), provenance = read_flips(path, ["pairs"], ["num_nodes"])
        try:
            return EdgeFlips(pairs, num_nodes, provenance)
        except DataError as error:
            raise DataError(f"{path}: {error}") from error

    def packed(self) -> str:
        """Encode the pairs as a short line of text, for records. The provenance is not part of it.

        Returns:
            The differences between successive codes of pairs, compressed, in base 64; `unpacked` reads it.
        """
        return pack_codes(_codes(self.pairs, self.num_nodes))

    @staticmethod
    def unpacked(text: str, num_nodes: int, provenance: Provenance = ()) -> "EdgeFlips":
        """Decode the text that `packed` made, and check it.

        Args:
            text: The encoded pairs.
            num_nodes: Number of nodes of the graph.
            provenance: Where the flips come from, as pairs (name, value) of strings.

        Returns:
            The flips.

        Raises:
            DataError: If the text does not hold valid flips.
        """
        if not isinstance(text, str) or not _is_number_of_nodes(num_nodes):
            raise DataError(
                f"packed flips are a text and 1 to {MAX_NODES} nodes, got {brief(text)} and {brief(num_nodes)}"
            )
        codes = unpack_codes(text)
        return EdgeFlips(torch.stack([codes // num_nodes, codes % num_nodes]), num_nodes, provenance)

    def _edges(self, data: Data) -> Tensor:
        """The undirected edges of a graph that must have as many nodes as these flips."""
        if data.num_nodes != self.num_nodes:
            raise DataError(f"these flips are of a graph of {self.num_nodes} nodes, this one has {data.num_nodes}")
        return undirected_pairs(data)


def undirected_pairs(data: Data) -> Tensor:  # -> [2, m] int64 on the CPU, i < j, sorted
    """The undirected edges of a graph, each once, without self-loops.

    Args:
        data: An undirected graph without edge weights or attributes.

    Returns:
        The pairs (i, j) with i < j, sorted, [2, m] int64 on the CPU.

    Raises:
        DataError: If the graph is directed or weighted, has duplicate edges, or edges to nodes that do not exist.

    Example:
        >>> undirected_pairs(Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2))
        tensor([[0],
                [1]])
    """
    extra = [key for key in data.keys() if key != "edge_index" and data.is_edge_attr(key)]  # noqa: SIM118
    if extra:
        raise DataError(f"flips are of graphs without edge weights or attributes; this one has {', '.join(extra)}")
    size, edges = int(data.num_nodes or 0), data.edge_index.cpu()
    if edges.numel() and not (int(edges.min()) >= 0 and int(edges.max()) < size):
        raise DataError(f"edges must be of nodes 0 to {size - 1}, got {int(edges.min())} to {int(edges.max())}")
    forward, backward = edges[:, edges[0] < edges[1]], edges[:, edges[0] > edges[1]].flip(0)
    codes, mirror = (torch.unique(_codes(pairs, size)) for pairs in (forward, backward))
    num_repeated = forward.shape[1] + backward.shape[1] - len(codes) - len(mirror)
    if not torch.equal(codes, mirror):
        repeated = f"; {num_repeated} of its edges are duplicates, which this merges, too" * bool(num_repeated)
        raise DataError(
            "the graph must be undirected, each edge in both directions; write data.edge_index ="
            f" torch_geometric.utils.to_undirected(data.edge_index){repeated}"
        )
    if num_repeated:
        raise DataError(
            f"the graph must hold each edge once, but {num_repeated} edges are duplicates of others; write"
            " data.edge_index = torch_geometric.utils.coalesce(data.edge_index)"
        )
    return torch.stack([codes // max(size, 1), codes % max(size, 1)])


def budget_of(data: Data, budget: float | int) -> int:
    """The number of flips that a budget allows.

    Args:
        data: The graph that is attacked.
        budget: A float in (0, 1] is a share of the undirected edges, rounded down; an int is the number itself.

    Returns:
        The number of flips, from 1 to the number of edges.

    Raises:
        ValueError: If the budget is out of range, or less than one flip.
        DataError: If the graph has no edges, or is not undirected and unweighted.

    Example:
        >>> from wtawp.graphs import load
        >>> budget_of(load("karate"), 0.05)
        3
    """
    edges = undirected_pairs(data).shape[1]
    if edges == 0:
        raise DataError("the graph has no edges, so a budget counted in its edges means nothing")
    return number_of_flips(budget, edges, "edges")


def number_of_flips(budget: float | int, total: int, unit: str) -> int:
    """The number of flips that a budget allows, given how many of the things it counts there are.

    Args:
        budget: A float in (0, 1] is a share of the total, rounded down; an int is the number itself.
        total: How many there are.
        unit: What is counted, in the plural, for messages.

    Returns:
        The number of flips, from 1 to the total.

    Raises:
        ValueError: If the budget is out of range, or less than one flip.

    Example:
        >>> number_of_flips(0.1, 20, "ones"), number_of_flips(3, 20, "ones")
        (2, 3)
    """
    given: object = budget  # numbers of NumPy are as good as those of Python
    if isinstance(given, bool) or not isinstance(given, Real):
        raise ValueError(f"budget must be a share in (0, 1] or a number of {unit}, got {budget!r}")
    if not isinstance(given, Integral):
        if not 0 < budget <= 1:
            raise ValueError(f"a budget given as a share must lie in (0, 1], got {budget}; give a count as an int")
        share = float(budget)
        count = int(share * total + 1e-9)  # 0.07 * 100 is a little more than 7, 0.29 * 100 a little less than 29
        if count == 0:
            raise ValueError(f"a budget of {budget} of {total} {unit} is less than one; ask for {1 / total:.2g}")
        return count
    if not 1 <= budget <= total:
        raise ValueError(f"a budget given as a count must lie between 1 and the {total} {unit}, got {budget}")
    return int(budget)


def _is_number_of_nodes(number: object) -> bool:
    """Whether a value is a whole number of nodes whose pairs can be coded in int64."""
    return isinstance(number, int | np.integer) and not isinstance(number, bool) and 1 <= int(number) <= MAX_NODES


def _codes(pairs: Tensor, size: int) -> Tensor:
    """One number for each pair, increasing in the order of pairs."""
    return pairs[0] * size + pairs[1]
