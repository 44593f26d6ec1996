"""Injected nodes, the result of an injection attack: new nodes with features, joined to nodes of a graph."""

import copy
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data

from wtawp.base import DataError
from wtawp.graphs.file_checks import brief
from wtawp.graphs.flip_files import Provenance, check_provenance, read_flips, write_flips
from wtawp.graphs.flips import MAX_NODES, number_of_flips, undirected_pairs

UNKNOWN = -1  # the label of an injected node


@dataclass(frozen=True, eq=False)
class InjectedNodes:
    """Nodes that an attacker adds to a graph, with their features and their edges to the nodes of the graph.

    Attributes:
        x: The features of the injected nodes, [k, d], finite, float32 or float64.
        edges: The undirected edges (injected node, node of the graph), each once, sorted by the injected node and then
            by the other one, [2, m] int64. Injected nodes are counted from 0.
        num_nodes: Number of nodes of the graph before the injection.
        provenance: Where the nodes come from, as pairs (name, value) of strings.

    Raises:
        DataError: If features or edges are not as described, or name nodes that do not exist.

    Example:
        >>> data = Data(x=torch.zeros(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
        >>> injected = InjectedNodes(torch.ones(1, 1), torch.tensor([[0], [1]]), num_nodes=2)
        >>> injected.apply(data).edge_index
        tensor([[0, 1, 1, 2],
                [1, 0, 2, 1]])
    """

    x: Tensor
    edges: Tensor
    num_nodes: int
    provenance: Provenance = ()

    def __post_init__(self) -> None:
        x, edges, size = self.x, self.edges, self.num_nodes
        if x.dim() != 2 or x.dtype not in (torch.float32, torch.float64) or not bool(torch.isfinite(x).all()):
            extent = f"{x.dtype} of shape {list(x.shape)}"
            raise DataError(f"x must be finite floats, float32 or float64, of shape [k, d], got {extent}")
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MAX_NODES:
            raise DataError(f"nodes are injected into a graph of 1 to {MAX_NODES} nodes, got num_nodes={brief(size)}")
        if edges.dim() != 2 or edges.shape[0] != 2 or edges.dtype != torch.int64:
            raise DataError(f"edges must be int64 of shape [2, m], got {edges.dtype} of shape {list(edges.shape)}")
        for row, count, name in zip(edges, (len(x), size), ("injected nodes", "nodes of the graph"), strict=True):
            if len(row) and not (int(row.min()) >= 0 and int(row.max()) < count):
                extent = f"{int(row.min())} to {int(row.max())}"
                raise DataError(f"edges must be of {name} 0 to {count - 1}, got {extent}")
        if bool(((edges[0] * size + edges[1]).diff() <= 0).any()):
            raise DataError("edges must be sorted and occur once; InjectedNodes.of sorts any edges")
        check_provenance(self.provenance)

    @staticmethod
    def of(x: Tensor, edges: Tensor, num_nodes: int, provenance: Provenance = ()) -> "InjectedNodes":
        """Build injected nodes from edges in any order.

        Args:
            x: The features of the injected nodes, [k, d].
            edges: The edges (injected node, node of the graph), each once, [2, m] int64.
            num_nodes: Number of nodes of the graph before the injection.
            provenance: Where the nodes come from, as pairs (name, value) of strings.

        Returns:
            The injected nodes, their edges sorted, on the CPU.
        """
        edges = edges.cpu()
        x = x.detach().cpu()
        return InjectedNodes(x, edges[:, torch.argsort(edges[0] * num_nodes + edges[1])], num_nodes, provenance)

    def __len__(self) -> int:
        return len(self.x)

    def apply(self, data: Data) -> Data:
        """Add the nodes to a graph, behind its own, so that these keep their numbers.

        Args:
            data: An undirected graph without edge weights, of `num_nodes` nodes with as many features. It is not
                changed.

        Returns:
            A copy with the injected nodes. Their label is -1 (unknown), and masks of nodes leave them out.

        Raises:
            DataError: If the graph has another size or other features, is not undirected and unweighted, or has
                values of nodes beside features, labels and masks, which nobody knows for injected nodes.
        """
        undirected_pairs(data)  # refuses directed and weighted graphs
        if data.num_nodes != self.num_nodes:
            raise DataError(f"these nodes are for a graph of {self.num_nodes} nodes, this one has {data.num_nodes}")
        if not isinstance(data.x, Tensor) or data.x.layout != torch.strided or data.x.shape[1:] != self.x.shape[1:]:
            got = "none" if data.x is None else list(data.x.shape)
            raise DataError(f"injected nodes have {self.x.shape[1]} features; data.x must have as many, got {got}")
        changed = copy.copy(data)
        for key, value in data.to_dict().items():
            if key not in ("x", "edge_index", "num_nodes") and data.is_node_attr(key):
                changed[key] = self._extended(key, value)
        changed.x = torch.cat([data.x, self.x.to(data.x)])
        injected, other = self.edges.to(data.edge_index.device)
        injected = injected + self.num_nodes
        new = torch.stack([torch.cat([injected, other]), torch.cat([other, injected])])
        edges = torch.cat([data.edge_index, new], 1)
        changed.edge_index = edges[:, torch.argsort(edges[0] * (self.num_nodes + len(self)) + edges[1])]
        if "num_nodes" in data:
            changed.num_nodes = self.num_nodes + len(self)
        return changed

    def save(self, path: str | Path) -> None:
        """Write the injected nodes into a small npz file, atomically.

        Args:
            path: The file, which is replaced if it exists.
        """
        arrays = {"injected_edges": self.edges, "injected_x": self.x}
        write_flips(path, arrays, {"num_nodes": self.num_nodes}, self.provenance)

    @staticmethod
    def load(path: str | Path) -> "InjectedNodes":
        """Read injected nodes that `save` wrote, and check them.

        Args:
            path: The file.

        Returns:
            The injected nodes.

        Raises:
            DataError: If there is no such file, or it does not hold valid injected nodes.
        """
        (edges, x), (num_nodes,), provenance = read_flips(
            path, ["injected_edges"], ["num_nodes"], values=["injected_x"]
        )
        try:
            return InjectedNodes(x, edges, num_nodes, provenance)
        except DataError as error:
            raise DataError(f"{path}: {error}") from error

    def _extended(self, key: str, value: object) -> Tensor:
        """Labels or a mask of all nodes, with those of the injected nodes behind."""
        if isinstance(value, Tensor) and (key == "y" or value.dtype == torch.bool):
            if key == "y" and not value.dtype.is_signed:  # bool and unsigned numbers have no -1
                value = value.long()
            rest = value.new_full((len(self), *value.shape[1:]), UNKNOWN if key == "y" else False)
            return torch.cat([value, rest])
        raise DataError(
            f"data.{key} has a value for each node, and injected nodes have none; remove it from a copy of the graph"
        )


def injection_budget_of(data: Data, budget: float | int) -> int:
    """The number of nodes that a budget allows to inject.

    Args:
        data: The graph that is attacked.
        budget: A float in (0, 1] is a share of the nodes, rounded down; an int is the number itself.

    Returns:
        The number of injected nodes, from 1 to the number of nodes.

    Raises:
        ValueError: If the budget is out of range, or less than one node.

    Example:
        >>> from wtawp.graphs import load
        >>> injection_budget_of(load("karate"), 0.1)
        3
    """
    return number_of_flips(budget, int(data.num_nodes or 0), "nodes")
