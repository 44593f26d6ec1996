"""Noise on binary features and on edges, drawn in sparse form: the cost is proportional to the flips, not to n x d.

Features and graphs are both stored as a sorted list of the cells that hold a 1, among all cells: the entries of the
feature matrix, or the pairs i < j, row by row. Additions are drawn as geometric gaps from one to the next over all
cells, and those that hit a 1 are dropped; each 1 is deleted by a separate draw. Sample i is a function of (seed, i)
alone: draws come from SplitMix64, a counter and a mixing function, so that no sample needs those before it.
`noise_numba` draws exactly the same samples faster.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from wtawp.base import DataError, checked_seed, seed_of
from wtawp.graphs.flips import undirected_pairs
from wtawp.graphs.splitmix64 import splitmix64

GOLDEN = -0x61C8864680B583EB  # the step of SplitMix64, 2^64 over the golden ratio, as a signed number
BITS = 53  # of a draw
Augment = Callable[[Data, int], Data]  # as `fit` takes it


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Sparse noise on a binary input: each 0 becomes 1 and each 1 becomes 0, independently, with these probabilities.

    Attributes:
        p_add: The probability that a 0 becomes 1, in [0, 1].
        p_del: The probability that a 1 becomes 0, in [0, 1]. The sum of both must be less than 1.

    Raises:
        ValueError: If a probability is out of range, or their sum is 1 or more.

    Example:
        >>> Noise(p_add=0.01, p_del=0.6)  # the paper's noise on features
        Noise(p_add=0.01, p_del=0.6)
    """

    p_add: float
    p_del: float

    def __post_init__(self) -> None:
        for name, p in (("p_add", self.p_add), ("p_del", self.p_del)):
            if not 0 <= p <= 1:
                raise ValueError(f"{name} is a probability and must lie in [0, 1], got {p}")
        if self.p_add + self.p_del >= 1:
            raise ValueError(
                f"p_add + p_del must be less than 1, got {self.p_add} + {self.p_del}: at 1 the noisy input says nothing"
                " about the true one (every radius would be certified, for a useless prediction), and beyond 1 a 1 is"
                " likelier where there was a 0; use smaller probabilities"
            )

    @property
    def log_odds(self) -> float:
        """-ln eta of `certificate`: the change of the log-likelihood ratio for each coordinate that agrees with x'."""
        if self.p_add == 0 or self.p_del == 0:
            return math.inf
        return sum(math.log1p(-p) - math.log(p) for p in (self.p_add, self.p_del))


@dataclass(frozen=True, eq=False)
class Ones:
    """The cells of a binary input that hold a 1."""

    cells: Tensor  # [k] int64, sorted
    size: int  # of all cells
    name: str  # "features" or "edges": their draws are independent

    def flipped(self, noise: Noise, *, seed: int, first: int, count: int) -> tuple[Tensor, Tensor]:  # -> [m], [m]
        """The ones of samples first, ..., first + count - 1, unordered: the sample of each, from 0, and its cell."""
        adding, deleting = self.keys(seed, first, count).to(self.cells.device)
        sample, one = self._is_kept(noise, deleting).nonzero(as_tuple=True)
        owner, cell = self._added(noise, adding)
        if len(self.cells):
            nearest = self.cells[torch.searchsorted(self.cells, cell).clamp_max(len(self.cells) - 1)]
            owner, cell = owner[nearest != cell], cell[nearest != cell]
        return torch.cat([sample, owner]), torch.cat([self.cells[one], cell])

    def dense(
        self,
        noise: Noise,
        *,
        seed: int,
        first: int,
        count: int,
        dtype: torch.dtype,
        shape: tuple[int, ...],
        padding: int = 0,
    ) -> Tensor:  # -> [s, n, d + padding]
        """The samples of `flipped` as matrices [n, d] of zeros and ones, with further columns of zeros."""
        adding, deleting = self.keys(seed, first, count).to(self.cells.device)
        rows, width = shape
        out = torch.zeros(count, rows * (width + padding), dtype=dtype, device=self.cells.device)
        sample, cell = self._added(noise, adding)
        kept, cells = self._is_kept(noise, deleting).to(dtype), self.cells
        if padding:
            cell, cells = cell + cell // width * padding, cells + cells // width * padding
        out[sample, cell] = 1
        out[:, cells] = kept
        return out.view(count, rows, width + padding)

    def keys(self, seed: int, first: int, count: int) -> Tensor:  # -> [2, count] int64, on the CPU
        """The start of each sample's draws for additions and for deletions."""
        numbers = torch.arange(first, first + count)
        base = seed_of("noise", self.name, seed)
        return splitmix64(base + splitmix64(torch.stack([2 * numbers, 2 * numbers + 1])))

    def _is_kept(self, noise: Noise, keys: Tensor) -> Tensor:  # -> [s, k]
        """Whether each 1 is kept in each sample."""
        return drawn(keys[:, None], torch.arange(len(self.cells), device=keys.device)) >= cut(noise.p_del)

    def _added(self, noise: Noise, keys: Tensor) -> tuple[Tensor, Tensor]:
        """The sample and cell of each addition, at geometric gaps, whatever the cell holds."""
        place = torch.full((len(keys), 1), -1, device=keys.device)
        if noise.p_add == 0 or self.size == 0:
            return place[:0, 0], place[:0, 0]
        mean = self.size * noise.p_add
        at_once = math.ceil(mean + 5 * math.sqrt(mean) + 8)  # seldom too few, and then more are drawn
        rate, batches, start = 1 / math.log1p(-noise.p_add), [], 0
        while bool((place[:, -1] < self.size).any()):
            counter = torch.arange(start, start + at_once, device=keys.device)
            u = (drawn(keys[:, None], counter) + 1).double() * 2.0**-BITS  # in (0, 1]
            gaps = (u.log() * rate).clamp_max(self.size).long()  # rounded down: geometric, exactly
            place = place[:, -1:] + (gaps + 1).cumsum(1)
            batches.append(place)
            start += at_once
        places = torch.cat(batches, 1)
        sample, draw = (places < self.size).nonzero(as_tuple=True)
        return sample, places[sample, draw]


def drawn(key: Tensor, counter: Tensor) -> Tensor:
    """53 uniform random bits: number `counter` of the draws that start at `key`."""
    return (splitmix64(key + (counter + 1) * GOLDEN) >> (64 - BITS)) & ((1 << BITS) - 1)


def cut(p: float) -> int:
    """The number that a draw is below with probability p."""
    return round(p * 2.0**BITS)


def feature_ones(x: Tensor) -> Ones:  # [n, d]
    """The ones of binary features, row by row."""
    if x.dim() != 2:
        raise DataError(f"features must be a matrix with one row for each node, got shape {list(x.shape)}")
    if x.layout == torch.strided:
        rows, columns = x.nonzero(as_tuple=True)
        values = x[rows, columns]
    else:
        entries = x.to_sparse().coalesce()
        present = entries.values() != 0
        rows, columns, values = *entries.indices()[:, present], entries.values()[present]
    if not bool((values == 1).all()):
        odd = float(values[values != 1][0])
        raise DataError(
            f"certificates of features are for binary ones, 0 or 1, and here is {odd:g}. If only presence matters, "
            "train and certify on data.x = (data.x > 0).float(); if the model needs normalised rows, let the model "
            "normalise them itself, after the noise"
        )
    return Ones(rows * x.shape[1] + columns, x.shape[0] * x.shape[1], "features")


def edge_ones(data: Data) -> Ones:
    """The undirected edges among all pairs i < j, row by row."""
    size = int(data.num_nodes or 0)
    i, j = undirected_pairs(data).to(data.edge_index.device)
    return Ones(row_starts(size, i.device)[i] + j - i - 1, size * (size - 1) // 2, "edges")


def row_starts(size: int, device: torch.device) -> Tensor:  # -> [n]
    """The cell of the pair (i, i + 1), for every node i."""
    i = torch.arange(size, device=device)
    return i * (2 * size - i - 1) // 2


def pairs_of(cells: Tensor, size: int) -> tuple[Tensor, Tensor]:  # [m] -> [m], [m]
    """The nodes i < j of some cells."""
    starts = row_starts(size, cells.device)
    i = torch.searchsorted(starts[: max(size - 1, 1)], cells, right=True) - 1  # the last row holds no pair
    return i, cells - starts[i] + i + 1


@dataclass(frozen=True, eq=False)
class NoisyGraphs:
    """Samples of a graph under noise on its features, its edges or both."""

    data: Data
    features: Noise | None
    edges: Noise | None
    feature_ones: Ones | None
    edge_ones: Ones | None

    @staticmethod
    def of(data: Data, features: Noise | None, edges: Noise | None) -> "NoisyGraphs":
        """Find the ones of a graph and check that it can be made noisy."""
        if features is None and edges is None:
            raise ValueError("say what the noise is on: features=Noise(...), edges=Noise(...) or both")
        if data.x is None:
            raise DataError("the graph has no features x; give each node its own (x = torch.eye(num_nodes)) or a 1")
        for name, noise in (("features", features), ("edges", edges)):
            if noise is not None and not isinstance(noise, Noise):
                raise ValueError(f"{name} takes Noise(p_add=..., p_del=...), got {noise!r}")
        return NoisyGraphs(
            data, features, edges, None if features is None else feature_ones(data.x),
            None if edges is None else edge_ones(data),
        )  # fmt: skip

    def together(self, *, seed: int, first: int, count: int) -> tuple[Tensor, Tensor]:  # -> [s n, d], [2, e]
        """Samples first, ..., first + count - 1 side by side as one graph: features and edges."""
        return (
            self.noisy_features(seed=seed, first=first, count=count).flatten(0, 1),
            self.noisy_edges(seed=seed, first=first, count=count),
        )

    def noisy_features(self, *, seed: int, first: int, count: int) -> Tensor:  # -> [s, n, d]
        """The features of samples, dense, as models take them; without noise the data's own, repeated."""
        x: Tensor = self.data.x if self.data.x.layout == torch.strided else self.data.x.to_dense()
        if self.features is None or self.feature_ones is None:
            return x.expand(count, *x.shape)
        ones = self.feature_ones
        return ones.dense(self.features, seed=seed, first=first, count=count, dtype=x.dtype, shape=x.shape)

    def noisy_edges(self, *, seed: int, first: int, count: int) -> Tensor:  # -> [2, e]
        """The edges of samples in both directions, with nodes numbered graph after graph; self-loops are kept."""
        size = int(self.data.num_nodes)
        own: Tensor = self.data.edge_index
        shift = torch.arange(count, device=own.device) * size
        if self.edges is None or self.edge_ones is None:
            return (own[:, None] + shift[:, None]).flatten(1)
        sample, cell = self.edge_ones.flipped(self.edges, seed=seed, first=first, count=count)
        i, j = (end + sample * size for end in pairs_of(cell, size))
        loops = own[:, own[0] == own[1]]
        loops = (loops[:, None] + shift[:, None]).flatten(1)
        return torch.cat([torch.stack([torch.cat([i, j]), torch.cat([j, i])]), loops], 1)


def noisy_training(*, features: Noise | None = None, edges: Noise | None = None, seed: int) -> Augment:
    """Make an augmentation for `fit(augment=...)`, to train under the noise that votes will be cast under.

    Each epoch sees another sample. The samples are not those of votes with the same seed.

    Args:
        features: The noise on features. None: features are not changed.
        edges: The noise on edges. None: edges are not changed. At least one of the two is needed.
        seed: The seed of the noise.

    Returns:
        A function of the graph and the number of the epoch that returns a noisy copy of the graph.

    Example:
        >>> from wtawp.graphs import citation
        >>> augment = noisy_training(edges=Noise(p_add=0.0, p_del=0.5), seed=0)
        >>> data = citation(seed=0, num_nodes=60, num_words=20)
        >>> augment(data, 0).num_edges < data.num_edges
        True
    """
    seed = checked_seed(seed)
    last: list[NoisyGraphs] = []  # those of the graph of the last call

    def augment(data: Data, epoch: int) -> Data:
        if not last or last[0].data is not data:
            last[:] = [NoisyGraphs.of(data, features, edges)]
        changed = copy.copy(data)
        changed.x, changed.edge_index = last[0].together(seed=seed_of("training", seed), first=epoch, count=1)
        return changed

    return augment
