"""What all results of attacks have in common, and flips of edges and features together."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch_geometric.data import Data

from wtawp.base import DataError
from wtawp.graphs.feature_flips import FeatureFlips
from wtawp.graphs.flip_files import Provenance, array_names, read_flips, write_flips
from wtawp.graphs.flips import EdgeFlips

EDGES, FEATURES = "pairs", "entries"  # the arrays by which a file of flips shows what it flips


@runtime_checkable
class Flips(Protocol):
    """The result of an attack: `EdgeFlips`, `FeatureFlips`, or both as `GraphFlips`."""

    @property
    def provenance(self) -> Provenance:
        """Where the flips come from, as pairs (name, value) of strings."""

    def __len__(self) -> int: ...

    def apply(self, data: Data) -> Data:
        """Return a copy of the graph with these flips; the graph itself is not changed."""

    def with_origin(self, origin: Provenance) -> "Flips":
        """Return the same flips with more entries in front of the provenance."""

    def num_added(self, data: Data) -> int:
        """Count the flips that add an edge or a feature to this graph."""

    def num_removed(self, data: Data) -> int:
        """Count the flips that remove an edge or a feature from this graph."""

    def save(self, path: str | Path) -> None:
        """Write the flips into a file that `load_flips` reads."""


@dataclass(frozen=True, eq=False)
class GraphFlips:
    """Flips of edges and of features of one graph.

    Attributes:
        edges: The edges to flip; may be none.
        features: The features to flip; may be none.

    Raises:
        DataError: If the two are of graphs of different sizes, or have different provenances.

    Example:
        >>> import torch
        >>> edges = EdgeFlips(torch.tensor([[0], [1]]), num_nodes=2)
        >>> features = FeatureFlips(torch.tensor([[0], [0]]), num_nodes=2, num_features=1)
        >>> data = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
        >>> flips = GraphFlips(edges, features)
        >>> len(flips), flips.num_removed(data), flips.apply(data).x.tolist()
        (2, 2, [[0.0], [1.0]])
    """

    edges: EdgeFlips
    features: FeatureFlips

    def __post_init__(self) -> None:
        if self.edges.num_nodes != self.features.num_nodes:
            sizes = f"{self.edges.num_nodes} and {self.features.num_nodes}"
            raise DataError(f"flips of edges and features must be of one graph, got graphs of {sizes} nodes")
        if self.edges.provenance != self.features.provenance:
            raise DataError("flips of edges and features of one attack must have the same provenance")

    @property
    def provenance(self) -> Provenance:
        """Where the flips come from, as pairs (name, value) of strings."""
        return self.edges.provenance

    def __len__(self) -> int:
        return len(self.edges) + len(self.features)

    def apply(self, data: Data) -> Data:
        """Flip the edges and features of a graph.

        Args:
            data: An undirected graph without edge weights, with binary features unless no feature is flipped. It is
                not changed.

        Returns:
            A copy with the flips.
        """
        changed = self.edges.apply(data)
        return self.features.apply(changed) if len(self.features) else changed

    def with_origin(self, origin: Provenance) -> "GraphFlips":
        """Add entries in front of the provenance.

        Args:
            origin: Pairs (name, value) of strings.

        Returns:
            The same flips, with the longer provenance.
        """
        return GraphFlips(self.edges.with_origin(origin), self.features.with_origin(origin))

    def num_added(self, data: Data) -> int:
        """Count the flips that add an edge, or make a feature 1.

        Args:
            data: The graph to which they are applied.

        Returns:
            Their number.
        """
        return len(self) - self.num_removed(data)

    def num_removed(self, data: Data) -> int:
        """Count the flips that remove an edge, or make a feature 0.

        Args:
            data: The graph to which they are applied.

        Returns:
            Their number.
        """
        return self.edges.num_removed(data) + (self.features.num_removed(data) if len(self.features) else 0)

    def save(self, path: str | Path) -> None:
        """Write the flips into a small npz file, atomically.

        Args:
            path: The file, which is replaced if it exists.
        """
        sizes = {"num_nodes": self.edges.num_nodes, "num_features": self.features.num_features}
        write_flips(path, {EDGES: self.edges.pairs, FEATURES: self.features.entries}, sizes, self.provenance)

    @staticmethod
    def load(path: str | Path) -> "GraphFlips":
        """Read flips that `save` wrote, and check them.

        Args:
            path: The file.

        Returns:
            The flips.

        Raises:
            DataError: If there is no such file, or it does not hold valid flips.
        """
        indices, (num_nodes, num_features), origin = read_flips(path, [EDGES, FEATURES], ["num_nodes", "num_features"])
        try:
            edges = EdgeFlips(indices[0], num_nodes, origin)
            return GraphFlips(edges, FeatureFlips(indices[1], num_nodes, num_features, origin))
        except DataError as error:
            raise DataError(f"{path}: {error}") from error


def as_graph_flips(flips: Flips, data: Data) -> GraphFlips:
    """Write the result of any attack as flips of both kinds.

    Args:
        flips: The result.
        data: The graph that was attacked.

    Returns:
        The same flips; one of the two kinds may be empty.

    Raises:
        DataError: If the result is of another type than `EdgeFlips`, `FeatureFlips` and `GraphFlips`.
    """
    none, size, origin = torch.zeros(2, 0, dtype=torch.int64), int(data.num_nodes), flips.provenance
    if isinstance(flips, GraphFlips):
        return flips
    if isinstance(flips, FeatureFlips):
        return GraphFlips(EdgeFlips(none, size, origin), flips)
    if isinstance(flips, EdgeFlips):
        return GraphFlips(flips, FeatureFlips(none, size, max(1, int(data.num_features)), origin))
    raise DataError(f"an attack must return EdgeFlips, FeatureFlips or GraphFlips, got {type(flips).__name__}")


def load_flips(path: str | Path) -> EdgeFlips | FeatureFlips | GraphFlips:
    """Read a file of flips, of whatever kind.

    Args:
        path: A file that `save` of `EdgeFlips`, `FeatureFlips` or `GraphFlips` wrote.

    Returns:
        The flips, of the kind that was saved.

    Raises:
        DataError: If there is no such file, or it does not hold valid flips.
    """
    names = array_names(path)
    if FEATURES not in names:
        return EdgeFlips.load(path)
    return GraphFlips.load(path) if EDGES in names else FeatureFlips.load(path)
