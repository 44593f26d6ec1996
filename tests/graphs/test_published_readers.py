import io
import os
import pickle
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from wtawp.base import DataError
from wtawp.graphs import published_readers, sanitize
from wtawp.graphs.published_files import PLANETOID_PARTS
from wtawp.graphs.published_readers import read_graphdata, read_npz, read_planetoid, read_tu
from wtawp.graphs.read_limits import VARIABLE

# 0 -> 1 twice as heavy, 1 -> 0, 1 -> 2, a self-loop at 2, node 3 alone: directed, weighted, looped and with an island
ADJACENCY = csr_matrix(np.array([[0, 2, 0, 0], [1, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]], dtype=np.float32))
FEATURES = csr_matrix(np.array([[1, 0], [0, 1], [1, 1], [0, 0]]))
LABELS = np.array([0, 1, 1, 0])
EDGES = [[0, 1, 1, 2], [1, 0, 2, 1]]


def parts_of(prefix: str, matrix: csr_matrix) -> dict[str, np.ndarray]:
    return {f"{prefix}_{part}": np.asarray(getattr(matrix, part)) for part in ("data", "indices", "indptr", "shape")}


def arrays() -> dict[str, np.ndarray]:
    return {**parts_of("adj", ADJACENCY), **parts_of("attr", FEATURES), "labels": LABELS}


def npz(path: Path, content: dict[str, np.ndarray]) -> Path:
    np.savez_compressed(path, **content)  # type: ignore[arg-type]
    return path


def test_a_directed_weighted_looped_graph_is_repaired_and_islands_stay(tmp_path: Path) -> None:
    data = read_npz(npz(tmp_path / "g.npz", arrays()))
    assert data.edge_index.tolist() == EDGES
    assert data.x.tolist() == FEATURES.toarray().tolist()
    assert data.y.tolist() == LABELS.tolist()


def test_without_features_each_node_is_its_own(tmp_path: Path) -> None:
    bare = {key: value for key, value in arrays().items() if not key.startswith("attr")}
    assert torch.equal(read_npz(npz(tmp_path / "g.npz", bare)).x, torch.eye(4))


def test_pickled_entries_beside_the_needed_ones_are_left_alone(tmp_path: Path) -> None:
    extra = {"idx_to_node": np.array({0: "a"}, dtype=object)}
    assert read_npz(npz(tmp_path / "g.npz", {**arrays(), **extra})).num_nodes == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": None}, "lacks labels; expected adj_data, .* found adj_data"),
        ({"adj_indptr": None, "attr_shape": None}, "lacks adj_indptr, attr_shape"),
        ({"adj_indices": np.array([1, 0, 2, 9])}, "adj: indices must lie in 0 to 3, got 0 to 9"),
        ({"adj_indptr": np.array([0, 1, 3, 5, 4])}, "adj: indptr must rise"),
        ({"adj_data": np.array([1, 1, -1, 1.0])}, "edge weights must be finite and not negative"),
        ({"attr_data": np.array([1, np.nan, 1, 1])}, "1 features are NaN, .* the first at node 1"),
        ({"labels": np.array([0, 1])}, r"adjacency matrix must be 2 x 2 \(labels\), got \(4, 4\)"),
        ({"labels": np.array([0, 0, 0, 0])}, "two classes or more"),
        ({"labels": np.array([None, 1, 1, 0], dtype=object)}, "labels is not a plain array: .* got object"),
        ({"adj_data": np.zeros(4)}, "the graph is empty, no edge joins two different nodes"),
    ],
)
def test_a_bad_npz_is_a_clear_error(tmp_path: Path, change: dict[str, np.ndarray | None], message: str) -> None:
    content = {key: value for key, value in {**arrays(), **change}.items() if value is not None}
    with pytest.raises(DataError, match=message):
        read_npz(npz(tmp_path / "g.npz", content))


# Pointers of four rows to four entries that leave the arrays, although no difference in their own type is negative
WRAPPED = {
    "int8": np.array([0, 100, -56, 100, 4], dtype=np.int8),  # 100, then -156, which is 100 in int8
    "int8_extreme": np.array([0, 127, -128, -127, 4], dtype=np.int8),
    "int32": np.array([0, 2**30, 2**31 - 1, -(2**31), 4], dtype=np.int32),
    "int32_start": np.array([0, 1, 2**31 - 1, -(2**31), 4], dtype=np.int32),
    "int64": np.array([0, 2**62, 2**63 - 1, -(2**63), 4], dtype=np.int64),
    "uint8": np.array([0, 250, 3, 200, 4], dtype=np.uint8),
    "uint32": np.array([0, 2**31, 1, 2**32 - 1, 4], dtype=np.uint32),
    "uint64": np.array([0, 2**40, 1, 3, 4], dtype=np.uint64),
    "uint64_extreme": np.array([0, 2**64 - 1, 2**63, 1, 4], dtype=np.uint64),
    "swapped": np.array([0, 2**31 - 1, -(2**31), 3, 4], dtype=">i4"),
}
FORGED = {
    "indices_uint64": {"indices": np.array([1, 0, 2, 2**64 - 1], dtype=np.uint64)},
    "indices_far": {"indices": np.array([1, 0, 1, 2**31 - 1], dtype=np.int32)},
    "shape_uint64": {"shape": np.array([4, 2**64 - 1], dtype=np.uint64)},
    "shape_huge": {"shape": np.array([4, 2**61])},
    "shape_empty": {"shape": np.array([], dtype=np.int64)},
    "indptr_empty": {"indptr": np.array([], dtype=np.int32)},
    "data_long": {"data": np.ones(5)},
    "data_void": {"data": np.zeros(4, dtype="V0")},
}


def test_an_npz_whose_indptr_wraps_around_in_its_own_dtype_is_refused(
    tmp_path: Path, outcomes: Callable[[str, Sequence[Path]], list[str]]
) -> None:
    paths = [npz(tmp_path / "whole.npz", arrays())]
    for prefix in ("adj", "attr"):
        for name, parts in {**{name: {"indptr": bad} for name, bad in WRAPPED.items()}, **FORGED}.items():
            changed = {f"{prefix}_{part}": array for part, array in parts.items()}
            paths.append(npz(tmp_path / f"{prefix}_{name}.npz", {**arrays(), **changed}))
    results = outcomes("wtawp.graphs.published_readers:read_npz", paths)
    assert results[0] == "loaded"
    assert [(p.stem, r) for p, r in zip(paths[1:], results[1:], strict=True) if not r.startswith("DataError")] == []


@pytest.mark.parametrize("member", ["adj_matrix", "node_attr"])
@pytest.mark.parametrize("name", WRAPPED)
def test_a_pickled_matrix_whose_indptr_wraps_around_is_refused(tmp_path: Path, name: str, member: str) -> None:
    matrices = {"adj_matrix": ADJACENCY.copy(), "node_attr": FEATURES.copy()}
    matrices[member].indptr = WRAPPED[name]
    with pytest.raises(DataError, match=f"{member}: indptr must"):
        read_graphdata(graphdata(tmp_path / "g.npz", matrices["adj_matrix"], matrices["node_attr"]))


@pytest.mark.parametrize("dtype", ["i1", "u1", ">i4", "i8", "u8"])
def test_pointers_and_indices_may_have_any_type_of_whole_numbers(tmp_path: Path, dtype: str) -> None:
    content = {
        key: array.astype(dtype) if key.endswith(("indptr", "indices", "shape")) else array
        for key, array in arrays().items()
    }
    content["attr_data"] = content["attr_data"].astype(">f2")
    data = read_npz(npz(tmp_path / "g.npz", content))
    assert data.edge_index.tolist() == EDGES
    assert data.x.tolist() == FEATURES.toarray().tolist()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros(4, dtype="U0"), "labels"),
        (np.array([b"a", b"b", b"b", b"a"]), "labels is not a plain array: it must hold real numbers or names"),
        (np.array([0x110000, 1, 1, 2], dtype=np.uint32).view("U1"), "letters that do not exist"),
        (np.array([np.inf, 1, 1, 2]), "labels must be whole numbers"),
        (np.array([1e300, 1, 1, 2]), "labels must be whole numbers"),
    ],
    ids=["no_width", "bytes", "no_letters", "infinite", "large"],
)
def test_labels_of_a_strange_type_are_clear_errors(tmp_path: Path, labels: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_npz(npz(tmp_path / "g.npz", {**arrays(), "labels": labels}))


@pytest.mark.parametrize("shape", [b"(9,)", b"(10**9,)", b"(3,)", b"(-4,)", b"(4000000000000,)", b"(4.,)", b"(((("])
def test_a_header_that_declares_another_shape_is_refused(tmp_path: Path, shape: bytes) -> None:
    buffer = io.BytesIO()
    np.save(buffer, LABELS)
    whole = buffer.getvalue()
    assert whole.count(b"(4,), }") == 1
    padding = whole[whole.index(b"(4,), }") + 7 : whole.index(b"\n")]
    changed = whole.replace(b"(4,), }" + padding, shape + b", }" + padding[len(shape) - 4 :])
    npz(tmp_path / "g.npz", {key: array for key, array in arrays().items() if key != "labels"})
    with zipfile.ZipFile(tmp_path / "g.npz", "a") as archive:
        archive.writestr("labels.npy", changed)
    with pytest.raises(DataError, match=r"labels (declares|is not an array)"):
        read_npz(tmp_path / "g.npz")


def test_an_npz_without_nodes_is_refused(tmp_path: Path) -> None:
    nothing = parts_of("adj", csr_matrix((0, 0), dtype=np.float32))
    with pytest.raises(DataError, match="the graph is empty, it has no nodes"):
        read_npz(npz(tmp_path / "g.npz", {**nothing, "labels": np.array([], dtype=int)}))


@pytest.mark.parametrize("reader", [read_npz, read_graphdata, read_tu])
def test_archives_cut_short_are_clear_errors(tmp_path: Path, reader: Callable[[Path], object]) -> None:
    whole = npz(tmp_path / "g.npz", arrays()).read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"not an archive"):
        (tmp_path / "cut.npz").write_bytes(content)
        with pytest.raises(DataError, match=r"cut\.npz is not a readable archive"):
            reader(tmp_path / "cut.npz")


def flipped(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :]


def test_a_flipped_byte_in_an_archive_is_noticed(tmp_path: Path) -> None:
    whole = npz(tmp_path / "g.npz", arrays()).read_bytes()
    (tmp_path / "bad.npz").write_bytes(flipped(whole, 90))
    with pytest.raises(DataError, match=r"bad\.npz is not a readable archive"):
        read_npz(tmp_path / "bad.npz")


@pytest.mark.parametrize("name", ["../evil.txt", "/etc/evil", "a/../../evil", "..\\evil", "C:\\evil"])
@pytest.mark.parametrize("reader", [read_npz, read_graphdata, read_tu])
def test_members_that_point_outside_are_refused(tmp_path: Path, reader: Callable[[Path], object], name: str) -> None:
    path = tmp_path / "in" / "bad.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("G/G_A.txt", "1, 2\n")
        archive.writestr(name, "evil")
    with pytest.raises(DataError, match="points outside; refused"):
        reader(path)
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["bad.zip"]


def graphdata(path: Path, adjacency: object, features: object = FEATURES) -> Path:
    as_objects = {"adj_matrix": np.array(None), "node_attr": np.array(None)}
    as_objects["adj_matrix"][()], as_objects["node_attr"][()] = adjacency, features
    return npz(path, {**as_objects, "node_label": LABELS})


def test_pickled_matrices_are_read(tmp_path: Path) -> None:
    data = read_graphdata(graphdata(tmp_path / "g.npz", ADJACENCY))
    assert data.edge_index.tolist() == EDGES
    assert data.x.tolist() == FEATURES.toarray().tolist()


class Foreign:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("sprung",)


def test_a_foreign_pickle_in_an_npz_is_refused_unrun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"adj_matrix: the pickle asks for \w+\.mkdir"):
        read_graphdata(graphdata(tmp_path / "g.npz", Foreign()))
    assert not (tmp_path / "sprung").exists()
    with pytest.raises(DataError, match="node_attr must hold a pickled csr_matrix, got list"):
        read_graphdata(graphdata(tmp_path / "g.npz", ADJACENCY, [1]))
    with pytest.raises(DataError, match="adj_matrix must hold one pickled matrix, got int64"):
        read_graphdata(npz(tmp_path / "g.npz", dict.fromkeys(("adj_matrix", "node_attr", "node_label"), LABELS)))
    with pytest.raises(DataError, match="lacks adj_matrix, node_attr"):
        read_graphdata(npz(tmp_path / "g.npz", {"node_label": LABELS}))


def planetoid(folder: Path, **change: object) -> dict[str, Path]:
    """Four nodes with features in allx (two of them train), then test nodes 6 and 4; node 5 has nothing."""
    features = np.arange(12, dtype=np.float32).reshape(6, 2)
    one_hot = np.eye(2, dtype=np.int32)[[0, 1, 1, 0, 1, 0]]
    content: dict[str, object] = {
        "x": csr_matrix(features[:2]), "y": one_hot[:2], "allx": csr_matrix(features[:4]), "ally": one_hot[:4],
        "tx": csr_matrix(features[4:]), "ty": one_hot[4:], "test.index": b"6\n4\n",
        "graph": {0: [1, 1, 0], 1: [0], 4: [6], 6: [4], 5: []}, **change,
    }  # fmt: skip
    paths = {part: folder / f"ind.tiny.{part}" for part in PLANETOID_PARTS}
    for part, path in paths.items():
        value = content[part]
        path.write_bytes(value if isinstance(value, bytes) else pickle.dumps(value, 3))
    return paths


def test_planetoid_puts_test_rows_in_their_places_and_pads_the_rest(tmp_path: Path) -> None:
    data = read_planetoid(planetoid(tmp_path))
    assert data.x.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [10, 11], [0, 0], [8, 9]]
    assert data.y.tolist() == [0, 1, 1, 0, 0, -1, 1]
    assert data.edge_index.tolist() == [[0, 1, 4, 6], [1, 0, 6, 4]]
    assert data.train_mask.nonzero().ravel().tolist() == [0, 1]
    assert data.val_mask.nonzero().ravel().tolist() == [2, 3]
    assert data.test_mask.nonzero().ravel().tolist() == [4, 6]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"graph": {0: [9]}}, "an edge names node 9, but the nodes are numbered 0 to 6"),
        ({"graph": {0: [0]}}, "the graph is empty"),
        ({"graph": Foreign()}, r"ind\.tiny\.graph: the pickle asks for \w+\.mkdir"),
        ({"test.index": b"6\n6\n"}, "must give each row of tx a node of its own"),
        ({"test.index": b"2\n6\n"}, "must give each row of tx a node of its own"),
        ({"test.index": b"6\n"}, "must give each row of tx a node of its own"),
        ({"test.index": b"six\n"}, r"test\.index is not a table of numbers"),
        ({"test.index": b""}, r"test\.index is not a table of numbers"),
        ({"tx": np.eye(2)}, r"ind\.tiny\.tx must hold a pickled csr_matrix"),
        ({"tx": csr_matrix(np.eye(3))}, "allx and tx must be equally wide, got 2 and 3 columns"),
        ({"ty": np.eye(2)[:1]}, "5 rows of labels in ally and ty for 6 rows of features"),
        ({"allx": b"\x80"}, r"ind\.tiny\.allx is not a readable pickle"),
    ],
)
def test_a_bad_planetoid_file_is_a_clear_error(tmp_path: Path, change: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_planetoid(planetoid(tmp_path, **change))


def tu(path: Path, **members: str | None) -> Path:
    """A triangle and an edge with an island beside it, every directed edge listed twice."""
    pairs = "1, 2\n2, 1\n2, 3\n3, 2\n1, 3\n3, 1\n4, 5\n5, 4\n"
    content = {"A": pairs * 2, "graph_indicator": "1\n1\n1\n2\n2\n2\n", "graph_labels": "3\n1\n", **members}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for part, text in content.items():
            if text is not None:
                archive.writestr(f"TINY//TINY_{part}.txt", text)
    path.write_bytes(buffer.getvalue())
    return path


def test_tu_graphs_are_cut_apart_without_duplicates(tmp_path: Path) -> None:
    first, second = read_tu(tu(tmp_path / "t.zip"))
    assert first.edge_index.tolist() == [[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]]
    assert second.edge_index.tolist() == [[0, 1], [1, 0]]
    assert (first.y.tolist(), second.y.tolist()) == ([1], [0])
    assert first.x.tolist() == [[0, 0, 1]] * 3  # degree 2
    assert second.x.tolist() == [[0, 1, 0], [0, 1, 0], [1, 0, 0]]


def test_tu_labels_and_attributes_become_features(tmp_path: Path) -> None:
    path = tu(tmp_path / "t.zip", node_labels="7\n7\n7\n2\n2\n2\n", node_attributes="1\n1\n1\n3\n3\n3\n")
    first, second = read_tu(path)
    assert first.x.tolist() == [[0, 1, -1]] * 3
    assert second.x.tolist() == [[1, 0, 1]] * 3


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"A": None}, "must hold one file that ends in _A.txt"),
        ({"graph_labels": None}, "lacks graph_indicator or graph_labels"),
        ({"A": "1, 4\n"}, "an edge joins two different graphs"),
        ({"A": "1, 9\n"}, "an edge names node 8"),
        ({"A": "0, 1\n"}, "an edge names node -1"),
        ({"A": "1, 1\n"}, "the graph is empty"),
        ({"A": "1, x\n"}, "A is not a table of numbers"),
        ({"A": "1\n"}, "two columns, got 1"),
        ({"graph_indicator": "1\n1\n1\n1\n1\n1\n"}, "graph_indicator must rise from 1 to 2"),
        ({"graph_indicator": "2\n2\n1\n1\n1\n1\n"}, "graph_indicator must rise from 1 to 2"),
        ({"node_labels": "1\n"}, "1 node_labels for 6 nodes"),
        ({"node_attributes": "1\n1\n1\n3\n3\nnan\n"}, "node attributes hold NaN"),
    ],
)
def test_a_bad_tu_archive_is_a_clear_error(tmp_path: Path, members: dict[str, str | None], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_tu(tu(tmp_path / "t.zip", **members))


def test_tu_features_above_the_limit_of_dense_features_are_cut_apart_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tu(tmp_path / "t.zip", node_labels="7\n7\n7\n2\n2\n2\n", node_attributes="1\n1\n1\n3\n3\n3\n")
    small = [graph.x for graph in read_tu(path)]
    monkeypatch.setattr(sanitize, "DENSE_LIMIT", 5)
    large = [graph.x for graph in read_tu(path)]
    assert all(map(torch.equal, small, large))


def test_other_features_may_be_chosen(tmp_path: Path) -> None:
    path = tu(tmp_path / "t.zip", node_labels="7\n7\n7\n2\n2\n2\n")
    assert [graph.x.shape[1] for graph in read_tu(path)] == [2, 2]
    assert read_tu(path, "attribute")[0].x.tolist() == [[0, 1]] * 3
    assert read_tu(path, "degree")[1].x.tolist() == [[0, 1, 0], [0, 1, 0], [1, 0, 0]]
    assert read_tu(path, "constant")[1].x.tolist() == [[1]] * 3
    with pytest.raises(DataError, match="neither node labels nor attributes; take features="):
        read_tu(tu(tmp_path / "bare.zip"), "attribute")
    with_attributes = tu(tmp_path / "a.zip", node_labels="7\n7\n7\n2\n2\n2\n", node_attributes="1\n1\n1\n3\n3\n3\n")
    assert read_tu(with_attributes, "label")[0].x.tolist() == [[0, 1]] * 3
    with pytest.raises(DataError, match='has no node labels; take features="attribute", "degree" or "constant"'):
        read_tu(tu(tmp_path / "bare.zip"), "label")
    with pytest.raises(DataError, match="features must be one of attribute, label, degree, constant, got 'labels'"):
        read_tu(path, "labels")  # type: ignore[arg-type]


def test_a_member_that_nobody_needs_may_be_a_bomb(tmp_path: Path) -> None:
    path = npz(tmp_path / "g.npz", arrays())
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("unneeded.npy", bytes(100 * 2**20))
    assert read_npz(path).edge_index.tolist() == EDGES
    path = tu(tmp_path / "t.zip")
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("T/README.txt", bytes(100 * 2**20))
    assert len(read_tu(path)) == 2


def test_an_archive_that_inflates_to_much_more_than_its_size_is_refused(tmp_path: Path) -> None:
    content = {**arrays(), "adj_indices": np.zeros(100 * 2**20, dtype=np.int8)}
    np.savez_compressed(tmp_path / "g.npz", **content)
    with pytest.raises(DataError, match=rf"adj_indices.npy: the content needs 101 MB .*{VARIABLE}"):
        read_npz(tmp_path / "g.npz")
    with zipfile.ZipFile(tmp_path / "t.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("T_A.txt", b"1,2\n" * (25 * 2**20))
    with pytest.raises(DataError, match=rf"T_A.txt: the content needs 100 MB .*{VARIABLE}"):
        read_tu(tmp_path / "t.zip")


def test_features_of_a_star_do_not_grow_with_the_square_of_its_nodes(tmp_path: Path) -> None:
    size = 15_000  # one-hot degrees would have 225 million numbers
    edges = "".join(f"1,{leaf}\n" for leaf in range(2, size + 1))
    path = tu(tmp_path / "t.zip", A=edges, graph_indicator="1\n" * size, graph_labels="1\n")
    with pytest.raises(DataError, match=rf'features: the content needs 859 MB .*{VARIABLE} .*take features="constant"'):
        read_tu(path)
    assert read_tu(path, "constant")[0].x.shape == (size, 1)
    labels = "".join(f"{i}\n" for i in range(size))
    with pytest.raises(DataError, match=VARIABLE):
        read_tu(tu(tmp_path / "l.zip", A=edges, graph_indicator="1\n" * size, graph_labels="1\n", node_labels=labels))


def test_a_list_of_very_many_graphs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_readers, "FEATURES_MB", 1)
    many = 2000
    with pytest.raises(DataError, match=rf"t.zip, 2,000 graphs: the content needs 2 MB .*{VARIABLE}"):
        read_tu(
            tu(
                tmp_path / "t.zip", A="1,2\n", graph_labels="1\n" * many,
                graph_indicator="1\n" + "".join(f"{i}\n" for i in range(1, many + 1)),
            )
        )  # fmt: skip


def test_a_huge_number_in_test_index_is_refused_before_memory_is_taken(tmp_path: Path) -> None:
    for number in (10**9, 2**62):
        with pytest.raises(DataError, match=rf"{number + 1:,} nodes by test.index: the content needs .*{VARIABLE}"):
            read_planetoid(planetoid(tmp_path, **{"test.index": f"6\n{number}\n".encode()}))


def test_tables_of_labels_must_be_equally_wide(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"ally and ty must have a column a class, got \[2, 3\]"):
        read_planetoid(planetoid(tmp_path, ty=np.eye(3, dtype=np.int32)[:2]))


@pytest.mark.parametrize("text", ["1.5, 2\n", "1e400, 2\n", "9" * 30 + ", 1\n", "\x00", "1, 2\n3\n"])
def test_what_is_no_table_of_whole_numbers_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="A is not a table of numbers"):
        read_tu(tu(tmp_path / "t.zip", A=text))


def test_one_file_in_two_folders_of_an_archive_is_refused(tmp_path: Path) -> None:
    path = tu(tmp_path / "t.zip")
    with zipfile.ZipFile(path, "a") as archive:
        name = next(name for name in archive.namelist() if name.endswith("_graph_labels.txt"))
        archive.writestr("other/" + name.rsplit("/", 1)[-1], "1\n0\n")
    with pytest.raises(DataError, match="in 2 folders"):
        read_tu(path)


def test_labels_that_are_no_list_are_refused(tmp_path: Path) -> None:
    for labels in (np.array(3), LABELS[None]):
        with pytest.raises(DataError, match="labels must be a list"):
            read_npz(npz(tmp_path / "g.npz", {**arrays(), "labels": labels}))


def test_entries_listed_twice_are_summed_without_wrapping_around(tmp_path: Path) -> None:
    twice = {
        "attr_data": np.array([100, 100, 1, 1], dtype=np.int8), "attr_indices": np.array([0, 0, 1, 1]),
        "attr_indptr": np.array([0, 2, 3, 4, 4]), "attr_shape": np.array([4, 2]),
    }  # fmt: skip
    assert read_npz(npz(tmp_path / "g.npz", {**arrays(), **twice})).x[0, 0] == 200
