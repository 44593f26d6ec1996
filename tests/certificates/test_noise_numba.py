import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from wtawp.certificates.noise import Noise, drawn, edge_ones, feature_ones, pairs_of
from wtawp.graphs import citation, gcn_operator

noise_numba = pytest.importorskip("wtawp.certificates.noise_numba")
votes_numba = pytest.importorskip("wtawp.certificates.votes_numba")

DATA = citation(seed=1, num_nodes=50, num_words=70)
NOISES = [Noise(p_add=a, p_del=d) for a, d in ((0.01, 0.6), (0.4, 0.3), (0.0, 0.5), (0.2, 0.0), (1e-9, 0.9))]
noises = pytest.mark.parametrize("noise", NOISES)


@noises
def test_features_are_those_of_the_torch_version(noise: Noise) -> None:
    ones, samples = feature_ones(DATA.x), 40
    compiled = votes_numba._Features(noise, ones, tuple(DATA.x.shape), np.float32)
    weight = torch.eye(70)
    sample, cell = ones.flipped(noise, seed=5, first=3, count=samples)
    expected = torch.zeros(samples, ones.size)
    expected[sample, cell] = 1
    keys, out = compiled.keys(5, 3, samples), np.empty((1, 50, 70), np.float32)
    for i in range(samples):
        compiled.multiply(keys[:, i], weight.numpy(), out)
        assert torch.equal(torch.from_numpy(out).flatten(), expected[i])


@noises
def test_operators_are_those_of_the_torch_version(noise: Noise) -> None:
    ones, samples = edge_ones(DATA), 40
    compiled = votes_numba._Edges(noise, ones, 50, np.float32)
    sample, cell = ones.flipped(noise, seed=5, first=3, count=samples)
    keys = compiled.keys(5, 3, samples)
    for i in range(samples):
        indptr, indices, values = compiled.operator(keys[:, i])
        dense = np.zeros((50, 50), np.float32)
        for row, (start, end) in enumerate(pairwise(indptr)):
            dense[row, indices[start:end]] = values[start:end]
        pair = torch.stack(pairs_of(cell[sample == i], 50))
        expected = gcn_operator(torch.cat([pair, pair.flip(0)], 1), None, 50).to_dense()
        assert np.allclose(dense, expected, atol=1e-6)


@pytest.mark.parametrize("p", [0.01, 0.5, 0.9, 1e-6])
def test_gaps_are_rounded_logarithms_of_the_draws(p: float) -> None:
    key, rate, size, start = 0x123456789ABCDEF, 1 / math.log1p(-p), 10**7, 100
    steps = np.empty(5000, np.int64)
    noise_numba.gaps(np.uint64(key), start, rate, size, np.empty(5000), steps)
    draws = drawn(torch.tensor(key), torch.arange(start, start + 5000))
    expected = [min(int(math.log((int(d) + 1) * 2.0**-53) * rate), size) + 1 for d in draws]
    assert steps.tolist() == expected


def test_too_little_room_is_doubled_until_it_is_enough() -> None:
    noise = Noise(p_add=0.3, p_del=0.1)
    edges = votes_numba._Edges(noise, edge_ones(DATA), 50, np.float32)
    features = votes_numba._Features(noise, feature_ones(DATA.x), tuple(DATA.x.shape), np.float32)
    keys = edges.keys(0, 0, 1)[:, 0]
    plenty = edges.operator(keys)
    out, again = np.empty((2, 1, 50, 70), np.float32)
    features.multiply(keys, np.eye(70, dtype=np.float32), out)
    edges.room = features.room = 3
    edges._make_room()
    features._make_room(np.float32)
    assert all(np.array_equal(a[:9], b[:9]) for a, b in zip(plenty, edges.operator(keys), strict=True))
    features.multiply(keys, np.eye(70, dtype=np.float32), again)
    assert np.array_equal(out, again)
