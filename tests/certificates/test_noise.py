import copy
import math

import pytest
import torch
from scipy.stats import binom
from torch_geometric.data import Data

from wtawp.base import DataError, rng
from wtawp.certificates.noise import Noise, NoisyGraphs, Ones, edge_ones, feature_ones, noisy_training, pairs_of
from wtawp.graphs import citation, stratified, undirected_pairs
from wtawp.models import GCN
from wtawp.training import fit

DATA = citation(seed=0, num_nodes=60, num_words=20)


def noise(p_add: float, p_del: float) -> Noise:
    return Noise(p_add=p_add, p_del=p_del)


def flipped(ones: Ones, p: Noise, *, first: int = 0, count: int, seed: int = 0) -> torch.Tensor:  # -> [s, cells]
    sample, cell = ones.flipped(p, seed=seed, first=first, count=count)
    assert len(torch.unique(sample * ones.size + cell)) == len(cell), "each once"
    out = torch.zeros(count, ones.size, dtype=torch.bool)
    out[sample, cell] = True
    how = {"seed": seed, "first": first, "count": count, "dtype": torch.bool, "shape": (1, ones.size)}
    assert torch.equal(ones.dense(p, **how)[:, 0], out)
    return out


def test_padding_adds_columns_of_zeros() -> None:
    x = (torch.rand(7, 5, generator=rng("padding")) < 0.4).float()
    how = {"seed": 0, "first": 3, "count": 4, "dtype": torch.float32, "shape": (7, 5)}
    samples = feature_ones(x).dense(Noise(p_add=0.2, p_del=0.3), **how)
    padded = feature_ones(x).dense(Noise(p_add=0.2, p_del=0.3), padding=3, **how)
    assert samples.shape == (4, 7, 5)
    assert torch.equal(padded, torch.nn.functional.pad(samples, (0, 3)))


def test_nodes_without_features_stay_nodes() -> None:
    samples = feature_ones(torch.zeros(7, 0)).dense(
        Noise(p_add=0.2, p_del=0.3), seed=0, first=0, count=4, dtype=torch.float32, shape=(7, 0)
    )
    assert samples.shape == (4, 7, 0)


@pytest.mark.parametrize(("p_add", "p_del"), [(0.01, 0.6), (0.3, 0.2), (0.0, 0.5), (0.5, 0.0), (0.9, 0.05)])
def test_every_cell_flips_as_often_as_it_should_and_on_its_own(p_add: float, p_del: float) -> None:
    cells, samples = torch.tensor([0, 3, 4, 9, 17, 39]), 4000
    is_one = torch.zeros(40, dtype=torch.bool)
    is_one[cells] = True
    found = flipped(Ones(cells, 40, "features"), noise(p_add, p_del), count=samples)
    for cell in range(40):
        p = 1 - p_del if is_one[cell] else p_add
        low, high = binom.ppf([1e-7, 1 - 1e-7], samples, p)
        assert low <= int(found[:, cell].sum()) <= high
    # Neighbouring cells, and neighbouring samples, know nothing of each other.
    moved = found.double() - torch.where(is_one, 1 - p_del, p_add)
    spread = moved.var(0)
    varies = spread > 0
    for pairs in (moved[:, 1:] * moved[:, :-1], moved[1:] * moved[:-1]):
        deviation = float(pairs.mean() * math.sqrt(pairs.numel()) / max(float(spread[varies].mean()), 1e-9))
        assert abs(deviation) < 6


def test_a_sample_is_a_function_of_seed_and_number_alone() -> None:
    ones = feature_ones(DATA.x)
    together = flipped(ones, noise(0.1, 0.4), count=7)
    alone = torch.cat([flipped(ones, noise(0.1, 0.4), first=i, count=1) for i in range(7)])
    assert torch.equal(together, alone)
    assert not torch.equal(together[0], together[1])
    assert not torch.equal(together, flipped(ones, noise(0.1, 0.4), count=7, seed=1))
    assert not torch.equal(flipped(Ones(ones.cells, ones.size, "edges"), noise(0.1, 0.4), count=7), together), (
        "edges have draws of their own"
    )


def test_limits() -> None:
    ones = feature_ones(DATA.x)
    before = torch.zeros(ones.size, dtype=torch.bool)
    before[ones.cells] = True
    assert torch.equal(flipped(ones, noise(0.0, 0.0), count=2), before.expand(2, -1))
    gone = flipped(ones, noise(0.0, 1 - 1e-16), count=3)
    assert not bool(gone.any())
    assert bool(flipped(ones, noise(1 - 1e-12, 0.0), count=3).all())
    assert torch.equal(flipped(ones, noise(1e-300, 0.0), count=2), before.expand(2, -1))
    nothing = Ones(torch.zeros(0, dtype=torch.int64), 50, "features")
    assert 0 < int(flipped(nothing, noise(0.2, 0.5), count=10).sum()) < 200
    assert len(Ones(nothing.cells, 0, "edges").flipped(noise(0.2, 0.5), seed=0, first=0, count=2)[0]) == 0


def test_cells_of_edges_are_the_pairs_row_by_row() -> None:
    size = 7
    i, j = torch.triu_indices(size, size, 1)
    every = pairs_of(torch.arange(size * (size - 1) // 2), size)
    assert torch.equal(every[0], i)
    assert torch.equal(every[1], j)
    assert torch.equal(torch.stack(pairs_of(edge_ones(DATA).cells, 60)), undirected_pairs(DATA))


def test_noisy_graphs_stand_side_by_side_and_stay_graphs() -> None:
    data = copy.copy(DATA)
    data.edge_index = torch.cat([DATA.edge_index, torch.tensor([[5], [5]])], 1)  # a self-loop, which stays
    graphs = NoisyGraphs.of(data, noise(0.05, 0.5), noise(0.02, 0.4))
    x, edges = graphs.together(seed=3, first=2, count=4)
    assert x.shape == (240, 20)
    assert x.unique().tolist() == [0, 1]
    for k in range(4):
        one, its_edges = graphs.together(seed=3, first=2 + k, count=1)
        assert torch.equal(one, x[60 * k : 60 * (k + 1)])
        mine = edges[:, edges[0] // 60 == k] - 60 * k
        graph = Data(edge_index=mine, num_nodes=60)
        assert torch.equal(undirected_pairs(graph), undirected_pairs(Data(edge_index=its_edges, num_nodes=60)))
        assert mine[:, mine[0] == mine[1]].tolist() == [[5], [5]]
    only_edges = NoisyGraphs.of(data, None, noise(0.02, 0.4))
    assert torch.equal(only_edges.noisy_features(seed=0, first=0, count=2)[1], data.x)
    only_features = NoisyGraphs.of(data, noise(0.1, 0.1), None)
    twice = only_features.noisy_edges(seed=0, first=0, count=2)
    assert torch.equal(twice[:, twice[0] >= 60] - 60, data.edge_index)


def test_sparse_features_are_the_same_to_noise() -> None:
    assert torch.equal(feature_ones(DATA.x.to_sparse()).cells, feature_ones(DATA.x).cells)


def test_noise_in_training_changes_each_epoch_and_leaves_the_data_alone() -> None:
    before, augment = DATA.clone(), noisy_training(features=noise(0.02, 0.4), edges=noise(0.01, 0.2), seed=0)
    first, second, again = (augment(DATA, epoch) for epoch in (0, 1, 0))
    assert torch.equal(first.x, again.x)
    assert torch.equal(first.edge_index, again.edge_index)
    assert not torch.equal(first.x, second.x)
    assert not torch.equal(first.x, DATA.x)
    model = GCN(20, 7, hidden=(4,), generator=rng("smoothed"))
    run = fit(model, DATA, stratified(DATA.y, seed=0, train=0.3, val=0.3), seed=0, epochs=4, augment=augment)
    assert 0 <= run.accuracy["test"] <= 1
    assert torch.equal(DATA.x, before.x)
    assert torch.equal(DATA.edge_index, before.edge_index)


@pytest.mark.parametrize(("p_add", "p_del"), [(-0.1, 0.2), (0.2, 1.1), (float("nan"), 0.2)])
def test_probabilities_are_checked(p_add: float, p_del: float) -> None:
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        noise(p_add, p_del)


@pytest.mark.parametrize(("p_add", "p_del"), [(0.5, 0.5), (0.6, 0.6), (1.0, 0.0)])
def test_noise_that_says_nothing_is_refused_with_its_consequence(p_add: float, p_del: float) -> None:
    with pytest.raises(ValueError, match="says nothing about the true one"):
        noise(p_add, p_del)


def test_features_that_are_not_binary_are_refused_with_advice() -> None:
    with pytest.raises(DataError, match=r"here is 0.5.*data.x > 0"):
        NoisyGraphs.of(Data(x=DATA.x * 0.5, edge_index=DATA.edge_index), noise(0.1, 0.1), None)
    with pytest.raises(DataError, match="must be a matrix"):
        feature_ones(DATA.x[0])
    NoisyGraphs.of(
        Data(x=DATA.x * 0.5, edge_index=DATA.edge_index), None, noise(0.1, 0.1)
    )  # of edges it does not matter


def test_noise_must_be_on_something() -> None:
    with pytest.raises(ValueError, match="say what the noise is on"):
        NoisyGraphs.of(DATA, None, None)
    with pytest.raises(ValueError, match="features takes Noise"):
        NoisyGraphs.of(DATA, (0.1, 0.2), None)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="no features"):
        NoisyGraphs.of(Data(edge_index=DATA.edge_index, num_nodes=60), None, noise(0.1, 0.1))
    with pytest.raises(DataError, match="undirected"):
        NoisyGraphs.of(Data(x=DATA.x, edge_index=DATA.edge_index[:, :3]), None, noise(0.1, 0.1))
