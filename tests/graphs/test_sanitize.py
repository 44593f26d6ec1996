import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from torch_geometric.data import Data

from wtawp.base import DataError
from wtawp.graphs import sanitize
from wtawp.graphs.sanitize import csr, feature_tensor, largest_component, node_graph, undirected

EDGES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=30))
def test_edges_equal_a_naive_loop(pairs: list[tuple[int, int]]) -> None:
    expected = sorted({(u, v) for a, b in pairs for u, v in ((a, b), (b, a)) if a != b})
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    if not expected:
        with pytest.raises(DataError, match="the graph is empty, no edge joins two different nodes"):
            undirected(ends[:, 0], ends[:, 1], 8, where="here")
    else:
        found = undirected(ends[:, 0], ends[:, 1], 8, where="here")
        assert [tuple(edge) for edge in found.T.tolist()] == expected


def test_a_weight_only_says_what_is_an_edge() -> None:
    ends = np.array([0, 1, 2]), np.array([1, 2, 3])
    edges = undirected(*ends, 4, weight=np.array([2.5, 0.0, 1e-9]), where="here")
    assert edges.tolist() == [[0, 1, 2, 3], [1, 0, 3, 2]]
    for bad in (-1.0, float("nan"), float("inf")):
        with pytest.raises(DataError, match=f"here: edge weights must be finite and not negative, got {bad}"):
            undirected(*ends, 4, weight=np.array([1.0, bad, 1.0]), where="here")


@pytest.mark.parametrize("bad", [-1, 3])
def test_edges_to_absent_nodes_are_refused(bad: int) -> None:
    with pytest.raises(DataError, match=f"an edge names node {bad}, but the nodes are numbered 0 to 2"):
        undirected(np.array([0, 1]), np.array([1, bad]), 3, where="here")
    with pytest.raises(DataError, match="the graph is empty, it has no nodes"):
        undirected(np.array([], dtype=int), np.array([], dtype=int), 0, where="here")


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e300])
def test_features_that_are_no_numbers_are_refused_with_their_node(bad: float, sparse: bool) -> None:
    table = np.eye(4)
    table[2, 1] = bad
    with pytest.raises(DataError, match=r"1 features are NaN, infinite or too large .* the first at node 2"):
        feature_tensor(csr_matrix(table) if sparse else table, where="here")


def test_features_are_dense_until_they_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    table = np.array([[0.0, 2.0], [3.0, 0.0], [0.0, 0.0]])
    for given_as in (table, csr_matrix(table)):
        monkeypatch.setattr(sanitize, "DENSE_LIMIT", 6)
        dense = feature_tensor(given_as, where="here")
        monkeypatch.setattr(sanitize, "DENSE_LIMIT", 5)
        sparse = feature_tensor(given_as, where="here")
        assert (dense.layout, sparse.layout) == (torch.strided, torch.sparse_csr)
        assert dense.dtype == sparse.dtype == torch.float32
        assert torch.equal(dense, sparse.to_dense())
    with pytest.raises(DataError, match=r"one or more columns, got \(3, 0\)"):
        feature_tensor(np.zeros((3, 0)), where="here")


@pytest.mark.parametrize(
    ("labels", "y", "classes"),
    [
        ([0, 1, 1], [0, 1, 1], None),
        ([0, 1, -1], [0, 1, -1], None),
        ([5, 2, 5], [1, 0, 1], [2, 5]),
        ([0, 2, -1], [0, 1, -1], [0, 2]),
        ([0.0, 1.0, 1.0], [0, 1, 1], None),
        (["b", "", "a"], [1, -1, 0], ["a", "b"]),
    ],
)
def test_labels_are_numbered_from_zero_and_remember_what_they_were(
    labels: list[object], y: list[int], classes: list[object] | None
) -> None:
    data = node_graph(EDGES, np.array(labels), None, where="here")
    assert data.y.tolist() == y
    assert (data.classes if "classes" in data else None) == classes
    assert torch.equal(data.x, torch.eye(3))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1, 1, 1], r"two classes or more, got \[1\]"),
        ([-1, -1, 0], r"two classes or more, got \[0\]"),
        ([0, 1, -2], "0 or more, or -1 for unknown, got -2"),
        ([0.5, 1, 2], "whole numbers or names, got float64"),
        ([0, float("nan"), 2], "whole numbers or names, got float64"),
        ([[0], [1], [2]], r"a list of one or more, got shape \(3, 1\)"),
        ([], r"a list of one or more, got shape \(0,\)"),
    ],
)
def test_labels_without_a_meaning_are_refused(labels: list[object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        node_graph(EDGES, np.array(labels), None, where="here")


def test_features_and_labels_must_be_equally_many() -> None:
    with pytest.raises(DataError, match="2 rows of features for 3 labels"):
        node_graph(EDGES, np.array([0, 1, 1]), np.ones((2, 2)), where="here")


def test_a_matrix_is_checked_before_scipy_sees_it() -> None:
    good = {"data": np.ones(2), "indices": np.array([1, 0]), "indptr": np.array([0, 1, 2]), "shape": np.array([2, 2])}
    assert csr(**good, where="here").toarray().tolist() == [[0, 1], [1, 0]]
    for key, bad, message in (
        ("indices", np.array([1, 2]), "indices must lie in 0 to 1, got 0|1 to 2"),
        ("indices", np.array([-1, 0]), "indices must lie in 0 to 1, got -1 to 0"),
        ("indices", np.array([0.0, 1.0]), "indices must be a list of numbers, got float64"),
        ("indptr", np.array([0, 3, 2]), "indptr must rise from 0 to 2 in 3 entries"),
        ("indptr", np.array([0, 2]), "indptr must rise from 0 to 2 in 3 entries"),
        ("indptr", np.array([0, 1, 99]), "indptr must rise from 0 to 2 in 3 entries"),
        ("data", np.ones(3), "3 values for 2 indices"),
        ("data", np.array(["a", "b"]), "data must be a list of numbers"),
        ("shape", np.array([2]), r"two sizes, got \[2\]"),
        ("shape", np.array([-2, 2]), r"two sizes, got \[-2, 2\]"),
    ):
        with pytest.raises(DataError, match=message):
            csr(**{**good, key: bad}, where="here")


def test_the_largest_component_keeps_the_order_of_nodes() -> None:
    edges = torch.tensor([[0, 4, 1, 3, 3, 5], [4, 0, 3, 1, 5, 3]])  # {0, 4}, {1, 3, 5}, {2}
    data = Data(x=torch.arange(6.0).view(6, 1), edge_index=edges, y=torch.arange(6))
    part = largest_component(data)
    assert part.y.tolist() == [1, 3, 5]
    assert part.x.ravel().tolist() == [1, 3, 5]
    assert part.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
