from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from wtawp.base import DataError, rng
from wtawp.graphs import InjectedNodes, injection_budget_of, load_flips


def graph(num_nodes: int = 12, num_features: int = 5) -> Data:
    upper = (torch.rand(num_nodes, num_nodes, generator=rng("edges")) < 0.3).triu(1)
    x = (torch.rand(num_nodes, num_features, generator=rng("features")) < 0.4).float()
    return Data(x=x, edge_index=(upper | upper.T).nonzero().T, y=torch.arange(num_nodes) % 3)


DATA = graph()
X = torch.tensor([[1.0, 0, 0, 1, 0], [0, 0, 0.5, 0, 0]])
EDGES = torch.tensor([[0, 0, 1], [3, 7, 0]])


def test_nodes_are_appended_and_the_old_part_stays() -> None:
    data = DATA.clone()
    data.train_mask = torch.arange(12) < 4
    before = data.clone()
    shuffled = InjectedNodes.of(X, EDGES[:, [2, 0, 1]], 12)
    assert torch.equal(shuffled.edges, EDGES)
    changed = shuffled.apply(data)
    assert len(shuffled) == 2
    assert changed.num_nodes == 14
    adjacency, old = torch.zeros(14, 14), torch.zeros(12, 12)
    adjacency[changed.edge_index[0], changed.edge_index[1]] = 1
    old[before.edge_index[0], before.edge_index[1]] = 1
    assert torch.equal(adjacency[:12, :12], old)
    assert adjacency[12:].nonzero().tolist() == [[0, 3], [0, 7], [1, 0]]
    assert torch.equal(adjacency, adjacency.T)
    assert changed.is_coalesced()
    assert torch.equal(changed.x, torch.cat([before.x, X]))
    assert changed.y.tolist() == [*before.y.tolist(), -1, -1]
    assert changed.train_mask.tolist() == [*before.train_mask.tolist(), False, False]
    assert data.keys() == before.keys()
    assert all(torch.equal(data[key], before[key]) for key in before.keys())  # noqa: SIM118


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.int32])
def test_the_label_of_an_injected_node_is_unknown_whatever_type_labels_have(dtype: torch.dtype) -> None:
    data = DATA.clone()
    data.y = (torch.arange(12) % 2).to(dtype)
    changed = InjectedNodes.of(X, EDGES, 12).apply(data)
    assert changed.y.tolist() == [0, 1] * 6 + [-1, -1]


def test_an_explicit_number_of_nodes_and_the_type_of_features_are_kept() -> None:
    data = Data(x=DATA.x.double(), edge_index=DATA.edge_index, num_nodes=12)
    changed = InjectedNodes(X, EDGES, 12).apply(data)
    assert changed.num_nodes == 14
    assert changed.x.dtype == torch.float64
    assert data.num_nodes == 12


def test_they_come_back_from_a_file(tmp_path: Path) -> None:
    injected = InjectedNodes(X, EDGES, 12, (("attack", "x"),))
    injected.save(tmp_path / "nodes.npz")
    back = InjectedNodes.load(tmp_path / "nodes.npz")
    assert torch.equal(back.x, X)
    assert torch.equal(back.edges, EDGES)
    assert (back.num_nodes, back.provenance) == (12, (("attack", "x"),))
    with pytest.raises(DataError, match="lacks pairs"):
        load_flips(tmp_path / "nodes.npz")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"injected_x": None}, "lacks injected_x"),
        ({"injected_x": np.array([[1]])}, "must hold float injected_x"),
        ({"injected_x": np.array([[np.nan]])}, "nodes.npz: x must be finite"),
        ({"injected_edges": np.array([[0], [12]])}, "nodes.npz: edges must be of nodes of the graph 0 to 11, got 12"),
        ({"num_nodes": np.int64(0)}, "nodes.npz: nodes are injected into a graph of 1 to"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    good = {"injected_x": np.ones((1, 1)), "injected_edges": np.array([[0], [1]]), "num_nodes": np.int64(12)}
    good["provenance"] = np.array([["a", "b"]])
    np.savez(tmp_path / "nodes.npz", **{k: v for k, v in {**good, **change}.items() if v is not None})  # type: ignore[arg-type]
    with pytest.raises(DataError, match=message):
        InjectedNodes.load(tmp_path / "nodes.npz")


@pytest.mark.parametrize(
    ("x", "edges", "message"),
    [
        (X.long(), EDGES, "x must be finite floats"),
        (X[0], EDGES, r"shape \[k, d\], got torch.float32 of shape \[5\]"),
        (X, EDGES.float(), "edges must be int64"),
        (X, EDGES + 1, "injected nodes 0 to 1, got 1 to 2"),
        (X, EDGES.flip(1), "sorted and occur once"),
        (X, EDGES[:, [0, 0]], "sorted and occur once"),
    ],
)
def test_wrong_nodes_are_refused(x: torch.Tensor, edges: torch.Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message):
        InjectedNodes(x, edges, 12)


def test_graphs_that_do_not_fit_are_refused() -> None:
    injected = InjectedNodes(X, EDGES, 12)
    with pytest.raises(DataError, match="for a graph of 12 nodes, this one has 13"):
        injected.apply(graph(13))
    with pytest.raises(DataError, match=r"have 5 features; data.x must have as many, got \[12, 6\]"):
        injected.apply(graph(12, 6))
    for change, message in (
        ({"x": None, "num_nodes": 12}, "got none"),
        ({"year": torch.arange(12)}, "data.year has a value for each node"),
        ({"edge_weight": torch.ones(DATA.edge_index.shape[1])}, "without edge weights"),
        ({"edge_index": torch.tensor([[0], [1]])}, "must be undirected"),
    ):
        data = DATA.clone()
        for key, value in change.items():
            data[key] = value
        with pytest.raises(DataError, match=message):
            injected.apply(data)


def test_a_budget_is_a_number_of_nodes_or_a_share_of_them() -> None:
    assert [injection_budget_of(DATA, budget) for budget in (0.25, 1.0, 1, 12)] == [3, 12, 1, 12]
    for wrong in (0, 13, 0.0, 1.5, 0.01, True, "3"):
        with pytest.raises(ValueError, match="budget"):
            injection_budget_of(DATA, wrong)  # type: ignore[arg-type]
