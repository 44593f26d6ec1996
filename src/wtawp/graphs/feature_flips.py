"""Flips of binary features: a flip makes a 0 in the feature matrix a 1, and a 1 a 0."""

import copy
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data

from wtawp.base import DataError
from wtawp.graphs.file_checks import brief
from wtawp.graphs.flip_files import Provenance, check_provenance, pack_codes, read_flips, unpack_codes, write_flips
from wtawp.graphs.flips import number_of_flips

MOST_ENTRIES = 2**63 - 1  # an entry is coded as i * num_features + j


@dataclass(frozen=True, eq=False)
class FeatureFlips:
    """Entries of the feature matrix that are flipped.

    Attributes:
        entries: The entries (node, feature), each once, sorted by node and then by feature, [2, k] int64.
            `FeatureFlips.of` sorts.
        num_nodes: Number of nodes of the graph.
        num_features: Number of features of a node.
        provenance: Where the flips come from, as pairs (name, value) of strings.

    Raises:
        DataError: If the entries are not as described, or lie outside of the feature matrix.

    Example:
        >>> data = Data(x=torch.eye(2), edge_index=torch.tensor([[0, 1], [1, 0]]))
        >>> FeatureFlips(torch.tensor([[0, 0], [0, 1]]), num_nodes=2, num_features=2).apply(data).x
        tensor([[0., 1.],
                [0., 1.]])
    """

    entries: Tensor
    num_nodes: int
    num_features: int
    provenance: Provenance = ()

    def __post_init__(self) -> None:
        entries = self.entries
        if entries.dim() != 2 or entries.shape[0] != 2 or entries.dtype != torch.int64:
            got = f"{entries.dtype} of shape {list(entries.shape)}"
            raise DataError(f"entries must be int64 of shape [2, k], got {got}")
        _check_shape(self.num_nodes, self.num_features)
        for row, size, name in zip(entries, (self.num_nodes, self.num_features), ("nodes", "features"), strict=True):
            if len(row) and not (int(row.min()) >= 0 and int(row.max()) < size):
                extent = f"{int(row.min())} to {int(row.max())}"
                raise DataError(f"entries must be of {name} 0 to {size - 1}, got {extent}")
        if bool((self._codes().diff() <= 0).any()):
            raise DataError("entries must be sorted and occur once; FeatureFlips.of sorts any entries")
        check_provenance(self.provenance)

    @staticmethod
    def of(entries: Tensor, num_nodes: int, num_features: int, provenance: Provenance = ()) -> "FeatureFlips":
        """Build flips from entries in any order.

        Args:
            entries: The entries (node, feature), each once, [2, k] int64.
            num_nodes: Number of nodes of the graph.
            num_features: Number of features of a node.
            provenance: Where the flips come from, as pairs (name, value) of strings.

        Returns:
            The flips, sorted, on the CPU.
        """
        entries = entries.cpu()
        order = torch.argsort(entries[0] * num_features + entries[1])
        return FeatureFlips(entries[:, order], num_nodes, num_features, provenance)

    def __len__(self) -> int:
        return self.entries.shape[1]

    def apply(self, data: Data) -> Data:
        """Flip the features of a graph.

        Args:
            data: A graph with binary features `x`, dense and of shape [num_nodes, num_features]. It is not changed.

        Returns:
            A copy with the flipped features; everything but the features is shared with `data`.

        Raises:
            DataError: If the features are not binary, or of another shape.
        """
        x = self._features(data).clone()
        i, j = self.entries.to(x.device)
        x[i, j] = 1 - x[i, j]
        changed = copy.copy(data)
        changed.x = x
        return changed

    def with_origin(self, origin: Provenance) -> "FeatureFlips":
        """Add entries in front of the provenance.

        Args:
            origin: Pairs (name, value) of strings.

        Returns:
            The same flips, with the longer provenance.
        """
        return replace(self, provenance=(*origin, *self.provenance))

    def num_removed(self, data: Data) -> int:
        """Count the flips that make a 1 a 0.

        Args:
            data: The graph to which they are applied.

        Returns:
            Their number.
        """
        x = self._features(data)
        i, j = self.entries.to(x.device)
        return int((x[i, j] == 1).sum())

    def num_added(self, data: Data) -> int:
        """Count the flips that make a 0 a 1.

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
        sizes = {"num_nodes": self.num_nodes, "num_features": self.num_features}
        write_flips(path, {"entries": self.entries}, sizes, self.provenance)

    @staticmethod
    def load(path: str | Path) -> "FeatureFlips":
        """Read flips that `save` wrote, and check them.

        Args:
            path: The file.

        Returns:
            The flips.

        Raises:
            DataError: If there is no such file, or it does not hold valid flips.
        """
        (entries,), (num_nodes, num_features), provenance = read_flips(path, ["entries"], ["num_nodes", "num_features"])
        try:
            return FeatureFlips(entries, num_nodes, num_features, provenance)
        except DataError as error:
            raise DataError(f"{path}: {error}") from error

    def packed(self) -> str:
        """Encode the entries as a short line of text, for records. The provenance is not part of it.

        Returns:
            The differences between successive codes of entries, compressed, in base 64; `unpacked` reads it.
        """
        return pack_codes(self._codes())

    @staticmethod
    def unpacked(text: str, num_nodes: int, num_features: int, provenance: Provenance = ()) -> "FeatureFlips":
        """Decode the text that `packed` made, and check it.

        Args:
            text: The encoded entries.
            num_nodes: Number of nodes of the graph.
            num_features: Number of features of a node.
            provenance: Where the flips come from, as pairs (name, value) of strings.

        Returns:
            The flips.

        Raises:
            DataError: If the text does not hold valid flips.
        """
        _check_shape(num_nodes, num_features)
        codes = unpack_codes(text)
        entries = torch.stack([codes // num_features, codes % num_features])
        return FeatureFlips(entries, num_nodes, num_features, provenance)

    def _codes(self) -> Tensor:
        """One number for each entry, increasing in the order of entries."""
        return self.entries[0] * self.num_features + self.entries[1]

    def _features(self, data: Data) -> Tensor:
        """The features of a graph, which must be binary and have the shape of these flips."""
        x = binary_features(data)
        if x.shape != (self.num_nodes, self.num_features):
            expected = f"[{self.num_nodes}, {self.num_features}]"
            raise DataError(f"these flips are of features of shape {expected}, this graph's have {list(x.shape)}")
        return x


def binary_features(data: Data) -> Tensor:  # -> [n, d]
    """The features of a graph, if they are binary.

    Args:
        data: The graph.

    Returns:
        Its `x`, [n, d].

    Raises:
        DataError: If there are no features, or they are not a dense matrix of zeros and ones.

    Example:
        >>> binary_features(Data(x=torch.tensor([[0.0, 0.5]])))
        Traceback (most recent call last):
        ...
        wtawp.base.errors.DataError: only binary features can be flipped, and 1 of these 2 entries is neither 0 nor 1...
    """
    x = data.x
    if not isinstance(x, Tensor) or x.dim() != 2 or x.layout != torch.strided:
        got = (
            "none"
            if x is None
            else f"{x.layout} of shape {list(x.shape)}"
            if isinstance(x, Tensor)
            else type(x).__name__
        )
        raise DataError(f"flips of features need a dense matrix data.x [n, d] of zeros and ones, got {got}")
    other = (x != 0) & (x != 1)
    if bool(other.any()):
        count = int(other.sum())
        raise DataError(
            f"only binary features can be flipped, and {count:,} of these {x.numel():,} entries"
            f" {'is' if count == 1 else 'are'} neither 0 nor 1 ({float(x[other][0]):g}); use features that are not"
            " normalised, as in (x > 0).float(), or an attack on edges"
        )
    return x


def feature_budget_of(data: Data, budget: float | int) -> int:
    """The number of feature flips that a budget allows.

    Args:
        data: The graph that is attacked.
        budget: A float in (0, 1] is a share of the ones in the feature matrix, rounded down; an int is the number.

    Returns:
        The number of flips, from 1 to the number of ones.

    Raises:
        ValueError: If the budget is out of range, or less than one flip.
        DataError: If the features are not binary, or all 0.

    Example:
        >>> data = Data(x=torch.eye(20))
        >>> feature_budget_of(data, 0.1), feature_budget_of(data, 3)
        (2, 3)
    """
    ones = int(binary_features(data).count_nonzero())
    if ones == 0:
        raise DataError("all features are 0, so a budget counted in ones means nothing")
    return number_of_flips(budget, ones, "ones of x")


def _check_shape(num_nodes: object, num_features: object) -> None:
    """Refuse sizes that are not positive whole numbers, or too large for entries to be coded."""
    sizes = (num_nodes, num_features)
    whole = [size for size in sizes if isinstance(size, int) and not isinstance(size, bool) and size > 0]
    if len(whole) < 2 or whole[0] * whole[1] > MOST_ENTRIES:
        raise DataError(
            f"flips of features need whole numbers of nodes and features >= 1, got {', '.join(map(brief, sizes))}"
        )
