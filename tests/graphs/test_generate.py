import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.utils import contains_self_loops, is_undirected

from wtawp.base import DataError
from wtawp.graphs import citation, knn_edges, toy


def edges_as_set(edge_index: Tensor) -> set[tuple[int, int]]:
    return {(int(u), int(v)) for u, v in edge_index.T}


def test_knn_edges_equal_a_naive_loop() -> None:
    points = torch.rand(15, 2, generator=torch.Generator().manual_seed(0))
    expected = set()
    for u in range(15):
        by_distance = sorted((float((points[u] - points[v]).norm()), v) for v in range(15) if v != u)
        for _, v in by_distance[:3]:
            expected |= {(u, v), (v, u)}
    edge_index = knn_edges(points, 3)
    assert edges_as_set(edge_index) == expected
    assert edge_index.shape[1] == len(expected)


@pytest.mark.parametrize("k", [0, 15, -1])
def test_knn_refuses_an_impossible_k(k: int) -> None:
    with pytest.raises(DataError, match="k must lie between 1 and the number of points less one, 14"):
        knn_edges(torch.rand(15, 2), k)


@pytest.mark.parametrize("name", ["linear", "moons", "rings", "gaussians"])
def test_toys_are_undirected_two_class_graphs_of_200_points(name: str) -> None:
    data = toy(name, seed=0)
    assert data.x.shape == (200, 2)
    assert data.validate()
    assert is_undirected(data.edge_index)
    assert not contains_self_loops(data.edge_index)
    assert np.bincount(data.edge_index[0].numpy()).min() >= 3
    assert 70 <= int(data.y.sum()) <= 130
    assert torch.equal(data.x, toy(name, seed=0).x)
    assert not torch.equal(data.x, toy(name, seed=1).x)


def test_the_linear_toy_is_the_unit_square_cut_in_half() -> None:
    data = toy("linear", seed=0)
    assert data.x.min() >= 0
    assert data.x.max() <= 1
    assert torch.equal(data.y == 0, data.x[:, 0] < 0.5)


def test_an_unknown_toy_names_the_known_ones() -> None:
    with pytest.raises(DataError, match="'linear', 'moons', 'rings' and 'gaussians', got 'spiral'"):
        toy("spiral", seed=0)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_citation_network_is_what_its_docstring_says(seed: int) -> None:
    data = citation(seed=seed)
    source, target = data.edge_index
    assert data.num_nodes == 2000
    assert data.edge_index.shape[1] == 2 * 4000
    assert is_undirected(data.edge_index)
    assert not contains_self_loops(data.edge_index)
    assert data.edge_index.unique(dim=1).shape == data.edge_index.shape
    assert float((data.y[source] == data.y[target]).float().mean()) == pytest.approx(0.75, abs=0.02)
    degrees = torch.bincount(source)
    assert degrees.min() >= 1
    assert degrees.max() > 25  # the tail of the degree correction
    counts = torch.bincount(data.y)
    assert len(counts) == 7
    assert counts.max() > 4 * counts.min()
    assert set(data.x.unique().tolist()) == {0.0, 1.0}
    assert 12 < float(data.x.sum(1).mean()) < 20
    frequency = data.x.mean(0).sort(descending=True).values
    assert frequency[0] > 20 * frequency[400]  # Zipf


def test_words_tell_the_class_apart() -> None:
    data = citation(seed=0)
    profiles = torch.stack([data.x[data.y == c].mean(0) for c in range(7)])
    nearest = (data.x @ (profiles + 1e-3).log().T).argmax(1)
    assert float((nearest == data.y).float().mean()) > 0.5


def test_equal_seeds_give_equal_citation_networks() -> None:
    one, two, other = citation(seed=3), citation(seed=3), citation(seed=4)
    assert all(torch.equal(one[k], two[k]) for k in ("x", "y", "edge_index"))
    assert not torch.equal(one.edge_index, other.edge_index)


def test_too_small_a_citation_network_is_refused() -> None:
    with pytest.raises(DataError, match="20 nodes are too few for 7 classes"):
        citation(seed=0, num_nodes=20)
