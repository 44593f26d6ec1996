import os
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from torch_geometric.data import Data

from wtawp.base import DataError, UnusedDataWarning
from wtawp.graphs.user_files import read, read_csv, read_pt

EDGES = [[0, 1, 1, 2], [1, 0, 2, 1]]


def write_csv(folder: Path, edges: str, labels: str) -> Path:
    (folder / "g.csv").write_text(edges, encoding="utf-8")
    (folder / "g.labels.csv").write_text(labels, encoding="utf-8")
    return folder / "g.csv"


@pytest.mark.parametrize(
    ("edges", "labels"),
    [
        ("0,1\n1,2\n", "0,5\n1,7\n2,7\n3,5\n"),
        ("source,target\n0,1\n1,2\n", "node,label\n0,5\n1,7\n2,7\n3,5\n"),
        ("from,to\n0,1\n1,2\n", "id,topic\n0,5\n1,7\n2,7\n3,5\n"),  # the only lines that start with no number
        ("0, 1\n\n1, 0\n1, 1\n2, 1\n1, 2\n", "\ufeff0, 5\n1, 7\n2, 7\n3, 5"),  # both ways, a loop, blanks, a mark
        ("0,1,1\n1,2,1\n0,3,0\n", "0,5\n1,7\n2,7\n3,5\n"),  # a weight of zero is no edge
    ],
)
def test_an_edge_list_and_its_labels_make_a_graph(tmp_path: Path, edges: str, labels: str) -> None:
    data = read_csv(write_csv(tmp_path, edges, labels))
    assert data.edge_index.tolist() == EDGES
    assert data.y.tolist() == [0, 1, 1, 0]
    assert data.classes == [5, 7]
    assert torch.equal(data.x, torch.eye(4))


@pytest.mark.parametrize("header", ["id,class", "Name, Label", "node_id,y"])
def test_row_7_a_header_above_text_is_recognised(tmp_path: Path, header: str) -> None:
    data = read_csv(write_csv(tmp_path, "from,to\nann,bob\ncy,bob\n", f"{header}\nann,red\nbob,red\ncy,blue\n"))
    assert data.edge_index.tolist() == EDGES
    assert data.classes == ["blue", "red"]


def test_row_7_words_of_a_header_that_are_nodes_are_nodes(tmp_path: Path) -> None:
    data = read_csv(write_csv(tmp_path, "from,to\nto,id\n", "id,class\nfrom,class\nto,word\n"))
    assert data.y.tolist() == [0, 0, 1]
    assert data.edge_index.tolist() == [[0, 1, 2, 2], [2, 2, 0, 1]]


def test_row_7_a_first_line_that_may_be_a_header_is_asked_for(tmp_path: Path) -> None:
    path = write_csv(tmp_path, "ann,bob\n", "person,team\nann,red\nbob,blue\n")
    with pytest.raises(DataError, match=r"line 1: 'person,team' may be a header, .* let a header start with 'node'"):
        read_csv(path)
    assert read_csv(write_csv(tmp_path, "ann,bob\n", "person,red\nann,red\nbob,blue\n")).num_nodes == 3


def test_row_8_weights_types_and_attributes_of_edges_that_are_not_used_are_named(tmp_path: Path) -> None:
    with pytest.warns(UnusedDataWarning, match=r"g\.csv: the weights of the edges are not used"):
        data = read_csv(write_csv(tmp_path, "0,1,0.5\n1,2,3\n0,3,0\n", "0,5\n1,7\n2,7\n3,5\n"))
    assert data.edge_index.tolist() == EDGES
    edges = {"edge_weight": torch.full((4,), 2.0), "edge_attr": torch.ones(4, 3), "edge_type": torch.zeros(4)}
    torch.save({**tensors(), **edges}, tmp_path / "g.pt")
    with pytest.warns(UnusedDataWarning, match="the weights and attributes and types of the edges are not used"):
        read_pt(tmp_path / "g.pt")


def pickled(value: object) -> np.ndarray:
    array = np.empty((), dtype=object)
    array[()] = value
    return array


def test_npz_of_graphdata_and_of_the_gnn_benchmark_are_recognised_by_what_they_hold(tmp_path: Path) -> None:
    adjacency = csr_matrix((np.ones(2, dtype=np.float32), ([0, 1], [1, 2])), shape=(4, 4))
    features, labels = csr_matrix(np.arange(8).reshape(4, 2)), np.array([0, 1, 1, 0])
    np.savez(tmp_path / "a.npz", adj_matrix=pickled(adjacency), node_attr=pickled(features), node_label=labels)
    matrices, fields = {"adj": adjacency, "attr": features}, ("data", "indices", "indptr", "shape")
    parts = {f"{name}_{part}": np.asarray(getattr(m, part)) for name, m in matrices.items() for part in fields}
    np.savez(tmp_path / "b.npz", **parts, labels=labels, node_names=pickled(["a", "b", "c", "d"]))
    for name in ("a.npz", "b.npz"):
        data = read(tmp_path / name)
        assert isinstance(data, Data)
        assert data.edge_index.tolist() == EDGES
        assert data.x.tolist() == features.toarray().tolist()
        assert data.y.tolist() == labels.tolist()
    np.savez(tmp_path / "a.npz", adj_matrix=pickled(3 * adjacency), node_attr=pickled(features), node_label=labels)
    with pytest.warns(UnusedDataWarning, match=r"a\.npz: the weights of the edges are not used"):
        read(tmp_path / "a.npz")


def test_ids_and_labels_may_be_names_and_features_follow(tmp_path: Path) -> None:
    labels = "node,label,height,width\nann,red,1,2\nbob,,3,4.5\ncy,blue,5,6\n"
    data = read_csv(write_csv(tmp_path, "source,target\nann,bob\ncy,bob\n", labels))
    assert data.edge_index.tolist() == EDGES
    assert data.x.tolist() == [[1, 2], [3, 4.5], [5, 6]]
    assert data.y.tolist() == [1, -1, 0]
    assert data.classes == ["blue", "red"]


NODES = "1,33,0\n2,44,1\n3,33,1\n"  # node, age, label


@pytest.mark.parametrize(
    ("header", "lines"),
    [
        ("node,age,label", NODES),
        ("ID, Age, Class", NODES),
        ("id,x,y", NODES),
        ("age,label,node", "33,0,1\n44,1,2\n33,1,3\n"),
        ("label,age,node", "0,33,1\n1,44,2\n1,33,3\n"),
        ("x,target,node", "33.5,0,1\n44.5,1,2\n33.5,1,3\n"),
    ],
)
def test_columns_of_nodes_are_read_by_the_names_in_the_header(tmp_path: Path, header: str, lines: str) -> None:
    data = read_csv(write_csv(tmp_path, "source,target\n1,2\n2,3\n", f"{header}\n{lines}"))
    assert data.y.tolist() == [0, 1, 1]
    assert data.x.ravel().floor().tolist() == [33, 44, 33]
    assert data.edge_index.tolist() == EDGES


@pytest.mark.parametrize(
    ("header", "lines", "features"),
    [
        ("node,x,y,label", "1,5,6,0\n2,7,8,1\n", [[5, 6], [7, 8]]),
        ("node,label,x,y", "1,0,5,6\n2,1,7,8\n", [[5, 6], [7, 8]]),
        ("label,node", "0,1\n1,2\n", None),
        ("label,person", "0,1\n1,2\n", None),
        ("topic,id", "0,1\n1,2\n", None),
    ],
)
def test_coordinates_are_features_and_one_name_of_two_suffices(
    tmp_path: Path, header: str, lines: str, features: list[list[int]] | None
) -> None:
    data = read_csv(write_csv(tmp_path, "1,2\n", f"{header}\n{lines}"))
    assert data.y.tolist() == [0, 1]
    assert data.x.tolist() == (features or torch.eye(2).tolist())


@pytest.mark.parametrize(
    "edges",
    ["source,weight,target\nann,1,bob\nbob,1,cy\ncy,0,ann\n", "weight,to,from\n1,ann,bob\n1,bob,cy\n0,ann,cy\n"],
)
def test_columns_of_edges_are_read_by_the_names_in_the_header(tmp_path: Path, edges: str) -> None:
    data = read_csv(write_csv(tmp_path, edges, "label,name\nred,ann\nred,bob\nblue,cy\n"))
    assert data.edge_index.tolist() == EDGES
    assert data.classes == ["blue", "red"]


@pytest.mark.parametrize(
    ("edges", "labels", "message"),
    [
        (
            "1,2\n",
            ",node,label\n0,1,5\n1,2,6\n",
            r"labels\.csv, line 1: .* called '', .* to_csv\(\.\.\., index=False\)$",
        ),
        ("1,2\n", "Unnamed: 0,node,label\n0,1,5\n1,2,6\n", r"called 'Unnamed: 0', .*index=False"),
        ("1,2\n", "index,node,label\n0,1,5\n1,2,6\n", r"called 'index', .*index=False"),
        ("1,2\n", ",label\n1,5\n2,6\n", r"index=False\), or if it holds the nodes, .* index_label='node'"),
        (",source,target\n0,1,2\n", "1,5\n2,6\n", r"g\.csv, line 1: .*index=False"),
        ("1,2\n", "node,class,label\n1,5,6\n2,6,7\n", "the columns class and label may mean the same"),
        ("1,2\n", "id,node,label\n1,5,6\n2,6,7\n", r"columns id and node .* order node,label\[,features\.\.\.\]"),
        ("1,2\n", "person,age,label\n1,5,6\n2,6,7\n", r"'person,age,label' .* another order than node,label\[,feat"),
        ("1,2\n", "topic,age,node\n6,5,1\n7,6,2\n", "their names do not say which is which"),
        ("1,2\n", "node,label\n0,1,5\n1,2,6\n", "has 2 columns, and the lines below it have 3"),
        ("source,weight,end\n1,1,2\n", "1,5\n2,6\n", r"another order than source,target\[,weight\]"),
        ("source,weight\n1,2\n", "1,5\n2,6\n", "their names do not say which is which"),
        ("number,source,target\n7,1,2\n", "1,5\n2,6\n", "bring them into that order, or name them source,target"),
    ],
)
def test_a_header_that_leaves_the_columns_unclear_is_refused(
    tmp_path: Path, edges: str, labels: str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read_csv(write_csv(tmp_path, edges, labels))


@pytest.mark.parametrize("unknown", ["", "nan", "NaN", "-1", "-1.0"])
def test_labels_that_are_nan_empty_or_minus_one_are_unknown(tmp_path: Path, unknown: str) -> None:
    for labels, classes in ((("5", "7"), [5, 7]), (("5.0", "7.0"), [5, 7]), (("red", "tan"), ["red", "tan"])):
        lines = f"node,label\n0,{labels[0]}\n1,{unknown}\n2,{labels[1]}\n"
        data = read_csv(write_csv(tmp_path, "0,1\n1,2\n", lines))
        assert data.y.tolist() == [0, -1, 1]
        assert data.classes == classes


@pytest.mark.parametrize(
    ("edges", "labels", "message"),
    [
        ("0,1\n", "", r"g\.labels\.csv is empty"),
        ("", "0,0\n1,1\n", r"g\.csv is empty"),
        ("source,target\n", "0,0\n1,1\n", r"g\.csv is empty"),
        ("0,0\n1,1\n", "0,0\n1,1\n", "no edge joins two different nodes"),
        ("0,1\n0,9\n", "0,0\n1,1\n", r"g\.csv, line 2: node '9' is not in g\.labels\.csv"),
        ("0,1\n", "0,0\n1,1\n1,0\n", "1 nodes are listed twice"),
        ("0,1\n0\n", "0,0\n1,1\n", r"g\.csv, line 2: expected 2 or 3 columns, got 1"),
        ("0;1\n", "0,0\n1,1\n", r"g\.csv, line 1: .*, got 1; columns are separated by commas, and '0;1' has none"),
        ("0,1\n", "0 0\n1 1\n", r"g\.labels\.csv, line 1: .*, got 1; columns are separated by commas, and '0 0' has"),
        ("0,1,1,1\n", "0,0\n1,1\n", r"g\.csv, line 1: expected 2 or 3 columns, got 4"),
        ("0,1,x\n", "0,0\n1,1\n", r"g\.csv, line 1: expected numbers, got \['x'\]"),
        ("0,1,-2\n", "0,0\n1,1\n", r"not negative, got -2\.0"),
        ("0,1\n", "0,0,1\n1,1\n", r"g\.labels\.csv, line 2: expected 3 columns, got 2"),
        ("0,1\n", "0,0,1\n1,1,tall\n", r"g\.labels\.csv, line 2: expected numbers, got \['tall'\]"),
        ("0,1\n", "0,0,1\n1,1,nan\n", "1 features are NaN, .* the first at node 1"),
        ("0,1\n", "0,0\n1,0\n", "two classes or more"),
    ],
)
def test_a_bad_csv_is_a_clear_error(tmp_path: Path, edges: str, labels: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_csv(write_csv(tmp_path, edges, labels))


def test_a_csv_without_labels_or_in_no_known_letters_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "lone.csv").write_text("0,1\n")
    with pytest.raises(DataError, match=r"needs its labels beside it, in lone\.labels\.csv"):
        read_csv(tmp_path / "lone.csv")
    path = write_csv(tmp_path, "0,1\n", "0,0\n1,1\n")
    path.write_bytes(b"\xff\xfe0,1")
    with pytest.raises(DataError, match="is not a CSV in UTF-8"):
        read_csv(path)


def tensors() -> dict[str, torch.Tensor]:
    return {"x": torch.ones(4, 2), "edge_index": torch.tensor([[0, 0, 2, 2], [1, 1, 1, 2]]),
            "y": torch.tensor([0, 1, 1, -1])}  # fmt: skip


@pytest.mark.parametrize("as_data", [True, False])
def test_row_2_masks_of_several_splits_are_kept(tmp_path: Path, as_data: bool) -> None:
    content = {**tensors(), "train_mask": torch.eye(4, dtype=torch.bool)[:, :2]}
    torch.save(Data(**content) if as_data else content, tmp_path / "g.pt")
    assert read_pt(tmp_path / "g.pt").train_mask.tolist() == content["train_mask"].tolist()


@pytest.mark.parametrize("as_data", [True, False])
def test_a_saved_graph_is_tidied_and_keeps_its_masks(tmp_path: Path, as_data: bool) -> None:
    content = {**tensors(), "train_mask": torch.tensor([True, True, False, False]), "other": torch.zeros(1)}
    torch.save(Data(**content) if as_data else content, tmp_path / "g.pt")
    with pytest.warns(UnusedDataWarning, match=r"g\.pt: other is not used; of such a file, edge_index, y, x, "):
        data = read_pt(tmp_path / "g.pt")
    assert data.edge_index.tolist() == EDGES
    assert data.y.tolist() == [0, 1, 1, -1]
    assert torch.equal(data.x, torch.ones(4, 2))
    assert data.train_mask.tolist() == [True, True, False, False]
    assert "other" not in data


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": None}, "lacks y; it has x, edge_index"),
        ({"edge_index": torch.tensor([[0], [9]])}, "an edge names node 9"),
        ({"edge_index": torch.tensor([[0.0], [1.0]])}, r"whole numbers of shape \[2, e\]"),
        ({"edge_index": torch.tensor([0, 1])}, r"of shape \[2, e\], got \[2\]"),
        ({"edge_index": torch.empty(2, 0, dtype=torch.long)}, "the graph is empty"),
        ({"edge_weight": torch.ones(3)}, r"\[3\] edge weights for 4 edges"),
        ({"edge_weight": torch.tensor([1.0, 1.0, -1.0, 1.0])}, "not negative"),
        ({"x": torch.full((4, 2), float("nan"))}, "8 features are NaN"),
        ({"x": torch.ones(3, 2)}, "3 rows of features for 4 labels"),
        ({"y": torch.eye(4)}, r"one label a node, got shape \[4, 4\]"),
        ({"test_mask": torch.ones(3, dtype=torch.bool)}, r"test_mask must be 4 booleans, .* of shape \[3\]"),
        ({"val_mask": torch.ones(4)}, r"write data\.val_mask = data\.val_mask\.bool\(\); then save the graph again"),
    ],
)
def test_a_bad_saved_graph_is_a_clear_error(
    tmp_path: Path, change: dict[str, torch.Tensor | None], message: str
) -> None:
    content = {key: value for key, value in {**tensors(), **change}.items() if value is not None}
    torch.save(content, tmp_path / "g.pt")
    with pytest.raises(DataError, match=message):
        read_pt(tmp_path / "g.pt")


class Foreign:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("sprung",)


def test_a_foreign_object_in_a_saved_graph_is_refused_unrun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({**tensors(), "extra": Foreign()}, tmp_path / "g.pt")
    with pytest.raises(DataError, match=r"asks for \w+\.mkdir; refused, nothing was run"):
        read_pt(tmp_path / "g.pt")
    assert not (tmp_path / "sprung").exists()


def test_files_of_another_kind_are_clear_errors(tmp_path: Path) -> None:
    torch.save(tensors(), tmp_path / "g.pt")
    whole = (tmp_path / "g.pt").read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"no archive"):
        (tmp_path / "cut.pt").write_bytes(content)
        with pytest.raises(DataError, match=r"cut\.pt is not a file that torch\.save wrote"):
            read_pt(tmp_path / "cut.pt")
    torch.save([1], tmp_path / "list.pt")
    with pytest.raises(DataError, match="must hold a PyG Data or a dict of tensors, got list"):
        read_pt(tmp_path / "list.pt")


def test_the_ending_chooses_the_reader(tmp_path: Path) -> None:
    torch.save(tensors(), tmp_path / "g.pt")
    np.savez(tmp_path / "g.npz", labels=np.array([0, 1]))
    assert isinstance(read(tmp_path / "g.pt"), Data)
    with pytest.raises(DataError, match="lacks adj_data"):
        read(tmp_path / "g.npz")
    with pytest.raises(DataError, match="got 'no ending'"):
        read(tmp_path / "g")


def test_messages_do_not_repeat_cells_of_any_length(tmp_path: Path) -> None:
    (tmp_path / "g.labels.csv").write_text("0,a\n1,b\n")
    (tmp_path / "g.csv").write_text(f"0,{'(' * 100_000}\n")
    with pytest.raises(DataError, match=r"node '\(+ \.\.\. \(+' is not in g\.labels\.csv") as caught:
        read_csv(tmp_path / "g.csv")
    assert len(str(caught.value)) < 400 + len(str(tmp_path))


def test_row_8_weights_in_an_npz_are_said_to_be_unused(tmp_path: Path) -> None:
    arrays = {
        "adj_indices": np.array([1, 0]), "adj_indptr": np.array([0, 1, 2]), "adj_shape": np.array([2, 2]),
        "labels": np.array([0, 1]),
    }  # fmt: skip
    np.savez(tmp_path / "g.npz", adj_data=np.array([0.5, 0.5]), **arrays)
    with pytest.warns(UnusedDataWarning, match=r"g\.npz: the weights of the edges are not used"):
        assert read(tmp_path / "g.npz").num_edges == 2
    np.savez(tmp_path / "g.npz", adj_data=np.ones(2), **arrays)
    assert read(tmp_path / "g.npz").num_edges == 2


def metattack(**entries: np.ndarray) -> dict[str, np.ndarray]:
    matrix, parts = csr_matrix(([1, 1], ([0, 1], [1, 2])), shape=(4, 4)), ("data", "indices", "indptr", "shape")
    arrays = {f"adj_{part}": np.asarray(getattr(matrix, part)) for part in parts}
    return {**arrays, "labels": np.array([0, 1, 1, 0]), **entries}


TABLE = np.arange(8.0).reshape(4, 2)


def test_dense_features_of_an_npz_are_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", **metattack(attr_matrix=TABLE))
    assert read(tmp_path / "g.npz").x.tolist() == TABLE.tolist()
    np.savez(tmp_path / "g.npz", **metattack(attr_matrix=TABLE.astype(str)))
    with pytest.raises(DataError, match="attr_matrix must hold numbers, got names"):
        read(tmp_path / "g.npz")


def test_masks_of_an_npz_are_read_and_checked_as_those_of_a_saved_graph(tmp_path: Path) -> None:
    masks = {"train_mask": np.array([True, True, False, False]), "val_mask": np.array([[0, 1, 0, 1]] * 2, dtype=bool).T}
    np.savez(tmp_path / "g.npz", **metattack(**masks))
    data = read(tmp_path / "g.npz")
    assert {name: data[name].tolist() for name in masks} == {name: mask.tolist() for name, mask in masks.items()}
    for mask, message in (
        (np.array([1, 1, 0, 0]), r"write data\.train_mask = data\.train_mask\.bool\(\)"),
        (np.array([True, False]), r"train_mask must be 4 booleans, .* of shape \[2\]; make it fit"),
        (np.array(["a", "b", "c", "d"]), "train_mask must hold booleans, got names"),
    ):
        np.savez(tmp_path / "g.npz", **metattack(train_mask=mask))
        with pytest.raises(DataError, match=message):
            read(tmp_path / "g.npz")


FEATURES = csr_matrix(TABLE)


@pytest.mark.parametrize(
    "entries",
    [
        {"x": TABLE},
        {"features": TABLE.astype(int)},
        {"node_attr": TABLE},
        {f"feat_{part}": np.asarray(getattr(FEATURES, part)) for part in ("data", "indices", "indptr", "shape")},
    ],
)
def test_features_of_an_npz_under_an_unknown_name_are_not_replaced_by_an_identity(
    tmp_path: Path, entries: dict[str, np.ndarray]
) -> None:
    np.savez(tmp_path / "g.npz", **metattack(**entries))
    named = "feat_[*]" if len(entries) > 1 else next(iter(entries))
    with pytest.raises(
        DataError, match=rf"{named} \[4, 2\] may hold them: save the array as attr_matrix, .* or remove"
    ):
        read(tmp_path / "g.npz")


@pytest.mark.parametrize("table", [torch.ones(4, 2), torch.ones(4, 2).to_sparse(), np.ones((4, 2))])
def test_features_of_a_saved_graph_under_an_unknown_name_are_not_replaced_by_an_identity(
    tmp_path: Path, table: object
) -> None:
    content = {key: value for key, value in tensors().items() if key != "x"}
    torch.save({**content, "feat": table}, tmp_path / "g.pt")
    with pytest.raises(
        DataError, match=r"g\.pt has no features .* feat \[4, 2\] may hold them: save it as x, or remove"
    ):
        read_pt(tmp_path / "g.pt")


def test_a_known_entry_that_is_no_tensor_is_refused(tmp_path: Path) -> None:
    torch.save({**tensors(), "x": np.ones((4, 2))}, tmp_path / "g.pt")
    with pytest.raises(DataError, match="x must be a tensor, not an array of NumPy; save torch"):
        read_pt(tmp_path / "g.pt")
    torch.save({**tensors(), "train_mask": [True] * 4}, tmp_path / "g.pt")
    with pytest.raises(DataError, match="train_mask must be a tensor, not list"):
        read_pt(tmp_path / "g.pt")


def test_entries_that_are_not_read_are_named_and_descriptions_are_not(tmp_path: Path) -> None:
    descriptions = {"idx_to_class": np.array(["a", "b"]), "attr_names": np.array(["a"])}
    np.savez(tmp_path / "g.npz", **metattack(**descriptions))
    assert torch.equal(read(tmp_path / "g.npz").x, torch.eye(4))
    kernel = np.ones((4, 4))  # may join nodes: no features for certain
    np.savez(tmp_path / "g.npz", **metattack(idx_train=np.array([0]), kernel=kernel, **descriptions))
    with pytest.warns(
        UnusedDataWarning, match=r"g\.npz: idx_train, kernel are not used; .* adj_\*, .* and test_mask are"
    ):
        read(tmp_path / "g.npz")
    np.savez(tmp_path / "g.npz", **metattack(attr_matrix=TABLE, x=TABLE))
    with pytest.warns(UnusedDataWarning, match=r"g\.npz: x is not used"):
        read(tmp_path / "g.npz")
    torch.save({**tensors(), "pos": torch.ones(4, 2), "split": torch.ones(4)}, tmp_path / "g.pt")
    with pytest.warns(UnusedDataWarning, match=r"g\.pt: pos, split are not used"):
        read_pt(tmp_path / "g.pt")
