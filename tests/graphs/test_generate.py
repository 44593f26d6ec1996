import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.utils import contains_self_loops, is_undirected

from wtawp.base import DataError
from wtawp.graphs import citation, knn_edges, power_law, toy


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


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_power_law_graph_is_what_its_docstring_says(seed: int) -> None:
    data = power_law(num_nodes=5000, mean_degree=8, seed=seed, num_classes=5, num_features=16, homophily=0.7)
    source, target = data.edge_index
    assert data.x.shape == (5000, 16)
    assert data.validate()
    assert torch.bincount(data.y).tolist() == [1000] * 5
    assert is_undirected(data.edge_index)
    assert not contains_self_loops(data.edge_index)
    assert data.edge_index.unique(dim=1).shape == data.edge_index.shape
    assert float((data.y[source] == data.y[target]).float().mean()) == pytest.approx(0.7, abs=0.02)
    degrees = torch.bincount(source, minlength=5000).float()
    assert float(degrees.mean()) == pytest.approx(8, rel=0.01)
    assert degrees.max() > 15 * degrees.mean()
    means = torch.stack([data.x[data.y == c].mean(0) for c in range(5)])
    assert torch.allclose(means.norm(dim=1), torch.ones(5), atol=0.1)


@pytest.mark.parametrize("homophily", [0.0, 1.0])
def test_homophily_is_exact_at_its_ends(homophily: float) -> None:
    data = power_law(num_nodes=500, mean_degree=5, seed=0, homophily=homophily)
    same = data.y[data.edge_index[0]] == data.y[data.edge_index[1]]
    assert float(same.float().mean()) == homophily


def test_a_steeper_power_law_has_a_lighter_tail() -> None:
    most = [
        int(torch.bincount(power_law(num_nodes=5000, mean_degree=8, seed=0, exponent=e).edge_index[0]).max())
        for e in (2.2, 3.0, 6.0)
    ]
    assert most[0] > most[1] > most[2]


def test_equal_seeds_give_equal_power_law_graphs() -> None:
    one, two, other = (power_law(num_nodes=300, mean_degree=6, seed=s) for s in (3, 3, 4))
    assert all(torch.equal(one[k], two[k]) for k in ("x", "y", "edge_index"))
    assert not torch.equal(one.edge_index, other.edge_index)
    assert not torch.equal(one.x, other.x)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"num_nodes": 5}, "a node or more for each, got 8 for 5 nodes"),
        ({"num_classes": 1}, "2 classes or more, .* got 1 for 100 nodes"),
        ({"num_features": 0}, "num_features must be >= 1, got 0"),
        ({"mean_degree": 0}, "mean_degree must lie between 0 and num_nodes - 1 = 99, got 0"),
        ({"mean_degree": 99}, "mean_degree must lie between 0 and num_nodes - 1 = 99, got 99"),
        ({"mean_degree": float("nan")}, "mean_degree must lie between"),
        ({"homophily": 1.5}, r"homophily must lie in \[0, 1\], got 1.5"),
        ({"exponent": 2.0}, "exponent must be > 2, .* got 2.0"),
    ],
)
def test_an_impossible_power_law_graph_is_refused(wrong: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        power_law(**{"num_nodes": 100, "mean_degree": 4, "seed": 0, **wrong})
