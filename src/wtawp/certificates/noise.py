"""Noise on binary features and on edges, drawn in sparse form: the work is in proportion to the flips, not to n x d.

Features and graphs are both a sorted list of the cells that hold a 1, among all cells: entries of the matrix or pairs
i < j, row by row. Additions are found by geometric gaps from one to the next, over all cells, and those that
hit a 1 are dropped; each 1 is deleted by a draw of its own. Sample i is a function of (seed, i) alone: draws come from
SplitMix64, a counter and a mixing function, so that no sample needs those before it.
`noise_numba` draws the very same samples faster.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from wtawp.base import DataError, seed_of
from wtawp.graphs.flips import undirected_pairs
from wtawp.models.dropout import mixed

GOLDEN = -0x61C8864680B583EB  # the step of SplitMix64, 2^64 over the golden ratio, as a signed number
BITS = 53  # of a draw
Augment = Callable[[Data, int], Data]  # as `fit` takes it


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Each 0 becomes 1 with probability `p_add`, each 1 becomes 0 with `p_del`, independently."""

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
                " likelier where there was a 0; take smaller probabilities"
            )

    @property
    def log_odds(self) -> float:
        """-ln eta of `certificate`: by how much each coordinate that looks like x' rather than x speaks for x'."""
        if self.p_add == 0 or self.p_del == 0:
            return math.inf
        return sum(math.log1p(-p) - math.log(p) for p in (self.p_add, self.p_del))


@dataclass(frozen=True, eq=False)
class Ones:
    """Where a binary input is 1."""

    cells: Tensor  # [k] int64, sorted
    size: int  # of all cells
    name: str  # "features" or "edges": each has draws of its own

    def flipped(self, noise: Noise, *, seed: int, first: int, count: int) -> tuple[Tensor, Tensor]:  # -> [m], [m]
        """The ones of samples first, ..., first + count - 1: numbers of samples from 0, and cells; in any order."""
        adding, deleting = self.keys(seed, first, count).to(self.cells.device)
        sample, one = self._is_kept(noise, deleting).nonzero(as_tuple=True)
        owner, cell = self._added(noise, adding)
        if len(self.cells):
            nearest = self.cells[torch.searchsorted(self.cells, cell).clamp_max(len(self.cells) - 1)]
            owner, cell = owner[nearest != cell], cell[nearest != cell]
        return torch.cat([sample, owner]), torch.cat([self.cells[one], cell])

    def dense(self, noise: Noise, *, seed: int, first: int, count: int, dtype: torch.dtype) -> Tensor:  # -> [s, size]
        """The same samples with a number for every cell, 0 or 1."""
        adding, deleting = self.keys(seed, first, count).to(self.cells.device)
        out = torch.zeros(count, self.size, dtype=dtype, device=self.cells.device)
        out[self._added(noise, adding)] = 1
        out[:, self.cells] = self._is_kept(noise, deleting).to(dtype)
        return out

    def keys(self, seed: int, first: int, count: int) -> Tensor:  # -> [2, count] int64, on the CPU
        """The start of each sample's draws for additions and for deletions."""
        numbers = torch.arange(first, first + count)
        base = seed_of("noise", self.name, seed)
        return mixed(base + mixed(torch.stack([2 * numbers, 2 * numbers + 1])))

    def _is_kept(self, noise: Noise, keys: Tensor) -> Tensor:  # -> [s, k]
        return drawn(keys[:, None], torch.arange(len(self.cells), device=keys.device)) >= cut(noise.p_del)

    def _added(self, noise: Noise, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Cells at geometric gaps, whatever they hold."""
        place = torch.full((len(keys), 1), -1, device=keys.device)
        if noise.p_add == 0 or self.size == 0:
            return place[:0, 0], place[:0, 0]
        mean = self.size * noise.p_add
        at_once = math.ceil(mean + 5 * math.sqrt(mean) + 8)  # seldom too few, and then more are drawn
        rate, found, start = 1 / math.log1p(-noise.p_add), [], 0
        while bool((place[:, -1] < self.size).any()):
            counter = torch.arange(start, start + at_once, device=keys.device)
            u = (drawn(keys[:, None], counter) + 1).double() * 2.0**-BITS  # in (0, 1]
            gaps = (u.log() * rate).clamp_max(self.size).long()  # rounded down: geometric, exactly
            place = place[:, -1:] + (gaps + 1).cumsum(1)
            found.append(place)
            start += at_once
        places = torch.cat(found, 1)
        sample, draw = (places < self.size).nonzero(as_tuple=True)
        return sample, places[sample, draw]


def drawn(key: Tensor, counter: Tensor) -> Tensor:
    """53 bits, uniform: number `counter` of the draws that start at `key`."""
    return (mixed(key + (counter + 1) * GOLDEN) >> (64 - BITS)) & ((1 << BITS) - 1)


def cut(p: float) -> int:
    """A draw is below this with probability p."""
    return round(p * 2.0**BITS)


def feature_ones(x: Tensor) -> Ones:  # [n, d]
    """The ones of binary features, row by row."""
    if x.dim() != 2:
        raise DataError(f"features must be a matrix, a node a row, got shape {list(x.shape)}")
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
            f"certificates of features are for binary ones, 0 or 1, and here is {odd:g}. If presence is what counts, "
            "train and certify on data.x = (data.x > 0).float(); if the model needs rows of equal length, let it "
            "divide by their sums itself, after the noise"
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
        """Of a graph that is looked at once."""
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
        """Dense, as models take them; without noise the data's own, repeated."""
        x: Tensor = self.data.x if self.data.x.layout == torch.strided else self.data.x.to_dense()
        if self.features is None or self.feature_ones is None:
            return x.expand(count, *x.shape)
        out = self.feature_ones.dense(self.features, seed=seed, first=first, count=count, dtype=x.dtype)
        return out.view(count, *x.shape)

    def noisy_edges(self, *, seed: int, first: int, count: int) -> Tensor:  # -> [2, e]
        """Both directions, the graphs' nodes one after the other; the data's self-loops stay."""
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
    """For `fit(augment=...)`: training under the noise that votes will be cast under, another sample each epoch.

    Its draws are not those of votes with the same seed.
    """
    seen: list[NoisyGraphs] = []

    def augment(data: Data, epoch: int) -> Data:
        if not seen or seen[0].data is not data:
            seen[:] = [NoisyGraphs.of(data, features, edges)]
        changed = copy.copy(data)
        changed.x, changed.edge_index = seen[0].together(seed=seed_of("training", seed), first=epoch, count=1)
        return changed

    return augment
