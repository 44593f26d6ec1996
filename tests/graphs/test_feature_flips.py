from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from wtawp.base import DataError, rng
from wtawp.graphs.feature_flips import FeatureFlips, binary_features, feature_budget_of


def graph(num_nodes: int = 6, num_features: int = 4, seed: int = 0) -> Data:
    x = (torch.rand(num_nodes, num_features, generator=rng("features", seed)) < 0.4).float()
    return Data(x=x, edge_index=torch.tensor([[0, 1], [1, 0]]))


@given(seed=st.integers(0, 50), size=st.integers(1, 8), width=st.integers(1, 5), share=st.floats(0, 1))
def test_exactly_the_entries_are_flipped_and_flipping_twice_undoes_it(
    seed: int, size: int, width: int, share: float
) -> None:
    data = graph(size, width, seed)
    before = data.x.clone()
    entries = (torch.rand(size, width, generator=rng("which", seed)) < share).nonzero().T
    shuffled = entries[:, torch.randperm(entries.shape[1], generator=rng("order", seed))]
    flips = FeatureFlips.of(shuffled, size, width)
    changed = flips.apply(data)
    expected = before.clone()
    for i, j in entries.T.tolist():
        expected[i, j] = 1 - before[i, j]
    assert torch.equal(changed.x, expected)
    assert torch.equal(data.x, before)
    assert changed.edge_index is data.edge_index
    assert torch.equal(flips.apply(changed).x, before)
    assert flips.num_removed(data) == int(sum(before[i, j] for i, j in entries.T.tolist()))
    assert flips.num_added(data) + flips.num_removed(data) == len(flips)


def test_flips_come_back_from_a_file_and_from_text(tmp_path: Path) -> None:
    for entries in ([[0, 1, 1], [2, 0, 3]], [[], []]):
        flips = FeatureFlips(torch.tensor(entries, dtype=torch.int64), 6, 4, (("attack", "x"),))
        flips.save(tmp_path / "f.npz")
        for back in (
            FeatureFlips.load(tmp_path / "f.npz"),
            FeatureFlips.unpacked(flips.packed(), 6, 4, flips.provenance),
        ):
            assert torch.equal(back.entries, flips.entries)
            assert (back.num_nodes, back.num_features, back.provenance) == (6, 4, flips.provenance)
    with pytest.raises(DataError, match="nodes 0 to 0, got 0 to 1"):
        FeatureFlips.unpacked(FeatureFlips(torch.tensor([[0, 1], [2, 0]]), 6, 4).packed(), 1, 4)
    assert flips.with_origin((("first", "1"),)).provenance == (("first", "1"), ("attack", "x"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"entries": None}, "lacks entries"),
        ({"entries": np.array([[0.0], [1.0]])}, "must hold int64 entries"),
        ({"entries": np.array([[0], [4]])}, "f.npz: entries must be of features 0 to 3, got 4 to 4"),
        ({"num_features": np.int64(0)}, "f.npz: flips of features need whole numbers"),
        ({"num_nodes": np.int64(2**62), "num_features": np.int64(2**62)}, "need whole numbers"),
        ({"provenance": np.array(["a", "b"])}, "must be rows"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, change: dict[str, np.ndarray | None], message: str) -> None:
    good = {"entries": np.array([[0], [1]]), "num_nodes": np.int64(2), "num_features": np.int64(4)}
    good["provenance"] = np.array([["a", "b"]])
    np.savez(tmp_path / "f.npz", **{k: v for k, v in {**good, **change}.items() if v is not None})  # type: ignore[arg-type]
    with pytest.raises(DataError, match=message):
        FeatureFlips.load(tmp_path / "f.npz")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (torch.tensor([[0.0], [1.0]]), "int64"),
        (torch.tensor([0, 1]), "shape"),
        (torch.tensor([[-1], [0]]), "nodes 0 to 5, got -1"),
        (torch.tensor([[1, 0], [0, 0]]), "sorted"),
        (torch.tensor([[0, 0], [1, 1]]), "occur once"),
    ],
)
def test_wrong_entries_are_refused(entries: torch.Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message):
        FeatureFlips(entries, 6, 4)


def test_features_that_are_not_binary_or_of_another_shape_are_refused() -> None:
    flips, data = FeatureFlips(torch.tensor([[0], [0]]), 6, 4), graph()
    with pytest.raises(DataError, match=r"of shape \[6, 4\], this graph's have \[5, 4\]"):
        flips.apply(graph(5))
    data.x = data.x / 2
    with pytest.raises(DataError, match=r"neither 0 nor 1 \(0.5\)"):
        flips.apply(data)
    for wrong in (None, torch.zeros(3), graph().x.to_sparse()):
        data.x = wrong
        with pytest.raises(DataError, match="dense matrix"):
            binary_features(data)


def test_a_budget_is_a_number_of_entries_or_a_share_of_the_ones() -> None:
    data = Data(x=torch.eye(30))
    assert [feature_budget_of(data, budget) for budget in (0.1, 1.0, 1, 30)] == [3, 30, 1, 30]
    for wrong in (0, 31, 0.0, 1.5, 0.01, True, "3"):
        with pytest.raises(ValueError, match="budget"):
            feature_budget_of(data, wrong)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="all features are 0"):
        feature_budget_of(Data(x=torch.zeros(2, 2)), 1)
