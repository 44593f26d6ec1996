"""Votes of a stack of graph convolutions on the CPU, compiled: sample after sample, so that each stays in cache."""

import math
from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from wtawp.base import CertificateError
from wtawp.certificates import noise_numba
from wtawp.certificates.noise import Noise, NoisyGraphs, Ones, cut, pairs_of
from wtawp.graphs import kernels_numba, structure
from wtawp.graphs.normalisation import gcn_operator
from wtawp.graphs.operator import sparse_features
from wtawp.graphs.products import spmm
from wtawp.graphs.simd_numba import LANES
from wtawp.models import fused_numba

Array = np.ndarray
BLOCK = 1024  # draws of a stream made at once
MARKS = 1 << 18  # bits that rule out most pairs without an edge; they fit into the first-level cache


@numba.njit(nogil=True, cache=True)
def tally(logits: Array, bias: Array, counts: Array, min_confidence: float) -> None:  # [n, at least c], [c], [n, c]
    """Add one vote of each node, for the class with the largest logit, if its softmax is at least `min_confidence`."""
    for i in range(len(counts)):
        best, highest = 0, logits[i, 0] + bias[0]
        for k in range(1, counts.shape[1]):
            value = logits[i, k] + bias[k]
            if value > highest:
                best, highest = k, value
        if min_confidence > 0:
            total = 0.0  # of exp(logit - highest), which is 1 over the confidence
            for k in range(counts.shape[1]):
                total += math.exp(logits[i, k] + bias[k] - highest)
            if not min_confidence * total <= 1:
                continue
        counts[i, best] += 1


class CompiledVoter:
    """A `voters.Voter` that draws what depends on the sample, and computes everything else once, when it is made."""

    def __init__(
        self, graphs: NoisyGraphs, layers: list[tuple[Tensor, Tensor]], seed: int, min_confidence: float = 0.0
    ) -> None:
        data, weight = graphs.data, layers[0][0]
        self.min_confidence = float(min_confidence)
        self.size, self.classes = int(data.num_nodes), len(layers[-1][1])
        self.seed, dtype = seed, weight.numpy().dtype
        padded = [*layers[:-1], tuple(_padded(t) for t in layers[-1])]  # whole registers: a third of the time
        self.weights = [np.ascontiguousarray(w.numpy()) for w, _ in padded]
        self.biases = [np.ascontiguousarray(b.numpy()) for _, b in padded]
        self.hidden = [np.empty((1, self.size, w.shape[1]), dtype) for w in self.weights]
        self.spread = [np.empty_like(h) for h in self.hidden]
        fixed = gcn_operator(data.edge_index, None, self.size, weight.dtype)
        self.operator = tuple(t.numpy() for t in (fixed.indptr, fixed.indices, fixed.values))
        self.features = self.edges = None
        first = torch.from_numpy(self.weights[0])
        if graphs.features is not None and graphs.feature_ones is not None:
            self.features = _Features(graphs.features, graphs.feature_ones, data.x.shape, dtype)
        else:
            self.hidden[0] = spmm(sparse_features(data.x.to(weight.dtype)), first)[None].numpy()
        if graphs.edges is not None and graphs.edge_ones is not None:
            self.edges = _Edges(graphs.edges, graphs.edge_ones, self.size, dtype)
        # Views of the same memory for torch's product: numpy's would use all cores whatever torch's setting is.
        sources, targets = ([torch.from_numpy(t[0]) for t in ts] for ts in (self.spread[:-1], self.hidden[1:]))
        self.products = list(zip(sources, map(torch.from_numpy, self.weights[1:]), targets, strict=True))
        self.rows = [b[None] for b in self.biases]
        self.one, self.keys, self.places = np.ones(1, dtype), np.zeros(1, np.int64), np.arange(self.size)

    def __call__(self, first: int, count: int) -> Tensor:
        counts = torch.zeros(self.size, self.classes, dtype=torch.int64)
        table = counts.numpy()
        for logits in self._each(first, count):
            tally(logits, self.biases[-1], table, self.min_confidence)
        return counts

    def logits(self, first: int, count: int) -> Tensor:  # -> [s, n, c]
        return torch.from_numpy(np.stack([(t + self.biases[-1])[:, : self.classes] for t in self._each(first, count)]))

    def _each(self, first: int, count: int) -> Iterator[Array]:  # of [n, at least c]
        """The logits of each sample without their bias, in memory that the next sample overwrites."""
        by_feature = None if self.features is None else self.features.keys(self.seed, first, count)
        by_edge = None if self.edges is None else self.edges.keys(self.seed, first, count)
        for i in range(count):
            if self.features is not None and by_feature is not None:
                self.features.multiply(by_feature[:, i], self.weights[0], self.hidden[0])
            operator = self.operator
            if self.edges is not None and by_edge is not None:
                operator = self.edges.operator(by_edge[:, i])
            self._forward(operator)
            yield self.spread[-1][0]

    def _forward(self, operator: tuple[Array, ...]) -> None:
        """From X W of the first layer to the logits without their bias."""
        indptr, indices, values = operator
        for layer, (activated, weight, following) in enumerate(self.products):
            fused_numba.propagate(
                0, self.one, indptr, indices, values, self.hidden[layer], self.rows[layer], self.keys, self.places,
                self.spread[layer],
            )  # fmt: skip
            torch.mm(activated, weight, out=following)
        kernels_numba.multiply(indptr, indices, values[None], self.hidden[-1], self.spread[-1])


def _padded(t: Tensor) -> Tensor:
    """The tensor padded with columns of zeros to a whole number of registers."""
    return torch.nn.functional.pad(t, (0, -t.shape[-1] % LANES))


class _Drawn:
    """Buffers and constants that both kinds of noise need to draw samples."""

    def __init__(self, noise: Noise, ones: Ones) -> None:
        self.ones = ones
        self.rate = 1 / math.log1p(-noise.p_add) if noise.p_add else 0.0
        self.cut = np.uint64(cut(noise.p_del))
        self.cells = ones.cells.numpy()
        self.kept, self.numbers = np.empty(len(self.cells), np.bool_), np.empty(BLOCK)
        self.steps = np.empty(BLOCK, np.int64)
        self.room = len(self.cells) + int(1.1 * noise.p_add * ones.size) + 1000  # doubled when it is too small

    def keys(self, seed: int, first: int, count: int) -> Array:  # -> [2, count]
        return self.ones.keys(seed, first, count).numpy().view(np.uint64)


class _Features(_Drawn):
    """Samples of noisy features as CSR matrices."""

    def __init__(self, noise: Noise, ones: Ones, shape: tuple[int, int], dtype: Any) -> None:
        super().__init__(noise, ones)
        rows, self.width = shape
        columns = self.cells % self.width
        self.indptr = np.searchsorted(self.cells, np.arange(rows + 1) * self.width).astype(np.int32)
        self.columns = columns.astype(np.int32)
        self.taken = np.zeros((rows, self.width // 64 + 1), np.uint64)
        np.bitwise_or.at(
            self.taken, (self.cells // self.width, columns >> 6), np.uint64(1) << (columns & 63).astype(np.uint64)
        )
        self.new_indptr, self.room = np.empty(rows + 1, np.int32), self.room + self.width
        self._make_room(dtype)

    def _make_room(self, dtype: Any) -> None:
        _check_entries(self.room)
        self.new_columns, self.values = np.empty(self.room, np.int32), np.ones((1, self.room), dtype)

    def multiply(self, keys: Array, weight: Array, out: Array) -> None:
        """Write X' W of a sample X' to `out`."""
        while not noise_numba.features(
            keys[0], keys[1], self.rate, self.cut, self.indptr, self.columns, self.taken, self.width, self.kept,
            self.numbers, self.steps, self.new_indptr, self.new_columns,
        ):  # fmt: skip
            self.room *= 2
            self._make_room(out.dtype)
        kernels_numba.multiply(self.new_indptr, self.new_columns, self.values, weight[None], out)


class _Edges(_Drawn):
    """Samples of noisy edges as normalised operators."""

    def __init__(self, noise: Noise, ones: Ones, size: int, dtype: Any) -> None:
        super().__init__(noise, ones)
        self.ends = np.stack([end.numpy() for end in pairs_of(ones.cells, size)]).astype(np.int32)
        self.marks = np.zeros(MARKS // 64, np.uint64)
        last = self.cells & (MARKS - 1)
        np.bitwise_or.at(self.marks, last >> 6, np.uint64(1) << (last & 63).astype(np.uint64))
        self.indptr, self.cursor = np.empty(size + 1, np.int32), np.empty(size, np.int32)
        self.scale = np.empty(size, dtype)
        self._make_room()

    def _make_room(self) -> None:
        _check_entries(2 * self.room + len(self.cursor))
        self.pairs, self.places = np.empty((2, self.room), np.int32), np.empty(self.room, np.int64)
        self.indices = np.empty(2 * self.room + len(self.cursor), np.int32)
        self.values = np.empty(len(self.indices), self.scale.dtype)

    def operator(self, keys: Array) -> tuple[Array, Array, Array]:
        """The CSR arrays of A_hat of a sample's graph."""
        while True:
            count = noise_numba.edges(
                keys[0], keys[1], self.rate, self.cut, self.cells, self.marks, self.ends, len(self.cursor), self.kept,
                self.numbers, self.steps, self.places, self.pairs,
            )  # fmt: skip
            if count >= 0:
                break
            self.room *= 2
            self._make_room()
        noise_numba.gcn_operator(self.pairs, count, self.indptr, self.indices, self.values, self.cursor, self.scale)
        return self.indptr, self.indices, self.values


def _check_entries(count: int) -> None:
    """Refuse samples with more entries than the row pointers, which are int32 here, can count."""
    if count > structure.INT32_ENTRIES:
        raise CertificateError(
            f"a noisy sample can have up to {structure.INT32_ENTRIES} entries, got room for {count};"
            " certify the receptive field of fewer nodes, or add less (a smaller p_add)"
        )
