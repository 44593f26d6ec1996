import base64
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from wtawp.base import DataError, rng
from wtawp.graphs.flips import EdgeFlips, budget_of, number_of_flips, undirected_pairs
from wtawp.graphs.read_limits import VARIABLE


def graph(num_nodes: int = 8, density: float = 0.3, seed: int = 0) -> Data:
    upper = torch.rand(num_nodes, num_nodes, generator=rng("flips", seed)).triu(1)
    adjacency = (upper > 1 - density).long()
    return Data(x=torch.eye(num_nodes), edge_index=(adjacency + adjacency.T).nonzero().T.contiguous())


def dense(data: Data) -> Tensor:
    out = torch.zeros(data.num_nodes, data.num_nodes, dtype=torch.int64)
    for i, j in data.edge_index.T.tolist():
        out[i, j] += 1
    return out


@given(seed=st.integers(0, 50), size=st.integers(2, 9), density=st.floats(0, 1), share=st.floats(0, 1))
def test_exactly_the_pairs_are_flipped_and_flipping_twice_undoes_it(
    seed: int, size: int, density: float, share: float
) -> None:
    data = graph(size, density, seed)
    before = dense(data)
    pairs = torch.triu_indices(size, size, 1)
    flips = EdgeFlips(pairs[:, torch.rand(pairs.shape[1], generator=rng("which", seed)) < share], size)
    changed = flips.apply(data)
    expected = before.clone()
    for i, j in flips.pairs.T.tolist():
        expected[i, j] = expected[j, i] = 1 - before[i, j]
    assert torch.equal(dense(changed), expected)
    assert torch.equal(dense(data), before)
    assert torch.equal(dense(flips.apply(changed)), before)
    assert flips.num_removed(data) == int(sum(before[i, j] for i, j in flips.pairs.T.tolist()))
    assert flips.num_added(data) + flips.num_removed(data) == len(flips)


def test_self_loops_stay_as_they_are() -> None:
    data = Data(edge_index=torch.tensor([[0, 0, 1], [0, 1, 0]]), num_nodes=2)
    assert EdgeFlips(torch.tensor([[0], [1]]), 2).apply(data).edge_index.tolist() == [[0], [0]]


def test_of_takes_any_order_and_direction() -> None:
    flips = EdgeFlips.of(torch.tensor([[3, 0, 2], [1, 2, 1]]), 4)
    assert flips.pairs.tolist() == [[0, 1, 1], [2, 2, 3]]
    with pytest.raises(DataError, match="sorted and occur once"):
        EdgeFlips.of(torch.tensor([[3, 1], [1, 3]]), 4)


def test_flips_between_two_graphs_turn_one_into_the_other() -> None:
    before, after = graph(seed=0), graph(seed=1)
    flips = EdgeFlips.between(before, after, (("attack", "unknown"),))
    assert torch.equal(dense(flips.apply(before)), dense(after))
    assert torch.equal(dense(flips.apply(after)), dense(before))
    assert len(flips) == int((dense(before) != dense(after)).sum()) // 2
    assert flips.provenance == (("attack", "unknown"),)
    assert len(EdgeFlips.between(before, before)) == 0
    with pytest.raises(DataError, match="the same nodes, got 8 and 9"):
        EdgeFlips.between(before, graph(9))


def test_flips_come_back_from_a_file(tmp_path: Path) -> None:
    flips = EdgeFlips(torch.tensor([[0, 1], [2, 3]]), 4, (("attack", "dice"), ("budget", "0.05")))
    flips.save(tmp_path / "f.npz")
    back = EdgeFlips.load(tmp_path / "f.npz")
    assert torch.equal(back.pairs, flips.pairs)
    assert (back.num_nodes, back.provenance) == (flips.num_nodes, flips.provenance)
    assert [p.name for p in tmp_path.iterdir()] == ["f.npz"]
    empty = EdgeFlips(torch.zeros(2, 0, dtype=torch.int64), 4)
    empty.save(str(tmp_path / "f.npz"))
    assert (len(EdgeFlips.load(str(tmp_path / "f.npz"))), EdgeFlips.load(tmp_path / "f.npz").provenance) == (0, ())


def test_flips_come_back_from_a_line_of_text() -> None:
    for pairs in ([[0, 0, 3], [1, 4, 5]], [[], []]):
        flips = EdgeFlips(torch.tensor(pairs, dtype=torch.int64), 6, (("attack", "none"),))
        back = EdgeFlips.unpacked(flips.packed(), 6, flips.provenance)
        assert torch.equal(back.pairs, flips.pairs)
        assert back.provenance == flips.provenance
    text = EdgeFlips(torch.tensor([[0, 0, 3], [1, 4, 5]]), 6).packed()
    for wrong in ("", "?", text[:-8], text[: len(text) // 2]):
        with pytest.raises(DataError, match="these are not packed flips, or they are cut short"):
            EdgeFlips.unpacked(wrong, 6)
    with pytest.raises(DataError):
        EdgeFlips.unpacked(text, 3)


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "f.npz").mkdir()
    with pytest.raises(OSError, match="directory"):
        EdgeFlips(torch.tensor([[0], [1]]), 2).save(tmp_path / "f.npz")
    assert [p.name for p in tmp_path.iterdir()] == ["f.npz"]


GOOD = {"pairs": np.array([[0], [1]]), "num_nodes": np.int64(2), "provenance": np.array([["a", "b"]])}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pairs": None}, "lacks pairs"),
        ({"pairs": np.array([[0.0], [1.0]])}, "must hold int64 pairs"),
        ({"pairs": np.array([[1], [0]])}, "f.npz: each pair must be"),
        ({"pairs": np.array([0, 1])}, "of shape"),
        ({"num_nodes": np.array([2])}, "one int64 num_nodes"),
        ({"num_nodes": np.int64(1)}, "nodes 0 to 0, got 0 to 1"),
        ({"provenance": np.array(["a", "b"])}, "must be rows"),
        ({"provenance": np.array([{"a": 1}], dtype=object)}, "provenance is not a plain array"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, change: dict[str, np.ndarray | None], message: str) -> None:
    content = {key: value for key, value in {**GOOD, **change}.items() if value is not None}
    np.savez(tmp_path / "f.npz", **content)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=message):
        EdgeFlips.load(tmp_path / "f.npz")


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04 cut"])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f.npz").write_bytes(content)
    with pytest.raises(DataError, match="not a readable archive"):
        EdgeFlips.load(tmp_path / "f.npz")


def test_a_file_cut_short_or_absent_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    with pytest.raises(DataError, match="there is no file"):
        EdgeFlips.load(path)
    EdgeFlips(torch.tensor([[0], [1]]), 2).save(path)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match="not a readable archive"):
        EdgeFlips.load(path)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (torch.tensor([[0.0], [1.0]]), "int64"),
        (torch.tensor([0, 1]), "shape"),
        (torch.tensor([[1], [1]]), "i < j"),
        (torch.tensor([[1], [0]]), "i < j"),
        (torch.tensor([[0], [9]]), "0 to 3, got 0 to 9"),
        (torch.tensor([[-1], [1]]), "got -1 to 1"),
        (torch.tensor([[1, 0], [2, 1]]), "sorted"),
        (torch.tensor([[0, 0], [1, 1]]), "once"),
    ],
)
def test_bad_pairs_are_refused(pairs: Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message):
        EdgeFlips(pairs, 4)


def test_other_bad_parts_are_refused() -> None:
    flips = EdgeFlips(torch.tensor([[0], [1]]), 4)
    with pytest.raises(DataError, match="provenance must be pairs"):
        replace(flips, provenance=(("seed", 1),))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="a graph of 1 to"):
        EdgeFlips(torch.zeros(2, 0, dtype=torch.int64), 0)
    with pytest.raises(DataError, match="graph of 4 nodes, this one has 8"):
        flips.apply(graph())


def test_only_plain_undirected_graphs_have_pairs() -> None:
    edges = torch.tensor([[0, 1], [1, 0]])
    for bad, message in [
        (Data(edge_index=edges[:, :1], num_nodes=2), r"undirected, .*to_undirected\(data.edge_index\)$"),
        (Data(edge_index=edges[:, :1].repeat(1, 3), num_nodes=2), "undirected, .*; 2 of its edges are duplicates"),
        (Data(edge_index=edges.repeat(1, 2), num_nodes=2), "2 edges are duplicates of others; .*utils.coalesce"),
        (Data(edge_index=torch.cat([edges, edges[:, :1]], 1), num_nodes=2), "1 edges are duplicates"),
        (Data(edge_index=edges, edge_weight=torch.ones(2), num_nodes=2), "edge_weight"),
        (Data(edge_index=edges, num_nodes=1), "nodes 0 to 0, got 0 to 1"),
    ]:
        with pytest.raises(DataError, match=message):
            undirected_pairs(bad)


def test_budgets_are_shares_or_counts() -> None:
    ring = torch.stack([torch.arange(100), (torch.arange(100) + 1) % 100])
    data = Data(edge_index=torch.cat([ring, ring.flip(0)], dim=1), num_nodes=100)
    assert [budget_of(data, b) for b in (0.05, 0.29, 1.0, 1, 100, 0.019)] == [5, 29, 100, 1, 100, 1]
    for bad in (0, 0.0, -1, 101, 1.01, 0.001, True, float("nan"), "5"):
        with pytest.raises(ValueError, match="budget"):
            budget_of(data, bad)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="no edges"):
        budget_of(Data(edge_index=torch.zeros(2, 0, dtype=torch.int64), num_nodes=3), 0.5)


def test_packed_flips_inflate_no_further_than_the_limit() -> None:
    bomb = base64.b64encode(zlib.compress(bytes(100 * 2**20), 1)).decode()
    with pytest.raises(DataError, match=rf"inflate to more than the 67,108,864 bytes that are allowed.*{VARIABLE}"):
        EdgeFlips.unpacked(bomb, 6)


@pytest.mark.parametrize("num_nodes", [0, -1, True, 2.0, None, "6", 3_037_000_500, 2**63, 10**400])
def test_flips_need_a_number_of_nodes_whose_pairs_can_be_coded(num_nodes: object) -> None:
    none = EdgeFlips(torch.zeros(2, 0, dtype=torch.int64), 6)
    with pytest.raises(DataError, match="1 to 3037000499"):
        EdgeFlips.unpacked(none.packed(), num_nodes)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="1 to 3037000499"):
        EdgeFlips(none.pairs, num_nodes)  # type: ignore[arg-type]


def test_packed_flips_with_something_after_them_are_refused() -> None:
    packed = base64.b64decode(EdgeFlips(torch.tensor([[0], [1]]), 6).packed())
    for wrong in (packed + b"x", zlib.compress(bytes(7)), packed[:-1]):
        with pytest.raises(DataError, match="these are not packed flips"):
            EdgeFlips.unpacked(base64.b64encode(wrong).decode(), 6)
    with pytest.raises(DataError, match="packed flips are a text"):
        EdgeFlips.unpacked(None, 6)  # type: ignore[arg-type]


def test_a_budget_may_be_a_number_of_numpy() -> None:
    for budget, expected in ((np.int64(3), 3), (np.uint8(3), 3), (np.float32(0.05), 2), (np.float64(0.07), 2)):
        count = number_of_flips(budget, 40, "edges")
        assert (count, type(count)) == (expected, int)
    for budget in (np.True_, np.array([3]), "3", None, 3j, np.float64(3), np.int64(41), np.float32("nan")):
        with pytest.raises(ValueError, match="budget"):
            number_of_flips(budget, 40, "edges")
