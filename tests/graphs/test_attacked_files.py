import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import coo_array, csr_matrix, save_npz
from torch import Tensor
from torch_geometric.data import Data

from wtawp.base import DataError, UnusedDataWarning
from wtawp.graphs import (
    DatasetSpec,
    EdgeFlips,
    load,
    load_attacked,
    load_split,
    load_targets,
    register_dataset,
    save_split,
    stratified,
)

FLIPS = torch.tensor([[0, 0, 4], [1, 9, 20]])  # of karate, in which the first pair is an edge and the others are not


def dense(data: Data) -> Tensor:
    adjacency = torch.zeros(data.num_nodes, data.num_nodes)
    adjacency[data.edge_index[0], data.edge_index[1]] = 1
    return adjacency


def flipped() -> Tensor:
    adjacency = dense(load("karate"))
    adjacency[FLIPS[0], FLIPS[1]] = 1 - adjacency[FLIPS[0], FLIPS[1]]
    adjacency[FLIPS[1], FLIPS[0]] = 1 - adjacency[FLIPS[1], FLIPS[0]]
    return adjacency


def write(folder: Path, adjacency: Tensor, kind: str = "csr", **options: Any) -> Path:
    save_npz(folder / "adj.npz", csr_matrix(adjacency.numpy()).asformat(kind), **options)
    return folder / "adj.npz"


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_an_attacked_graph_has_the_edges_of_the_file_and_the_rest_of_the_base(
    tmp_path: Path, kind: str, compressed: bool
) -> None:
    clean, path = load("karate"), write(tmp_path, flipped(), kind, compressed=compressed)
    edges = clean.edge_index.clone()
    attacked = load_attacked(path, base="karate")
    assert torch.equal(dense(attacked), flipped())
    assert torch.equal(attacked.x, clean.x)
    assert torch.equal(attacked.y, clean.y)
    assert attacked.name == "karate@adj.npz"
    flips = EdgeFlips.between(clean, attacked)
    assert torch.equal(flips.pairs, FLIPS)
    assert torch.equal(flips.apply(clean).edge_index, attacked.edge_index)
    assert torch.equal(load_attacked(path, base=clean).edge_index, attacked.edge_index)
    assert torch.equal(clean.edge_index, edges)


def test_sparse_arrays_and_integer_values_are_read_as_matrices_are(tmp_path: Path) -> None:
    save_npz(tmp_path / "a.npz", coo_array(flipped().numpy().astype(np.int8)))
    assert torch.equal(dense(load_attacked(tmp_path / "a.npz", base="karate")), flipped())


def test_what_is_changed_is_said_and_entries_in_either_direction_are_edges(tmp_path: Path) -> None:
    adjacency = flipped().triu() * 2
    adjacency[3, 3] = 1
    message = r"1 self-loops are dropped; 79 edges in one direction count in both; weights other than 1 count as 1"
    with pytest.warns(UnusedDataWarning, match=message):
        attacked = load_attacked(write(tmp_path, adjacency), base="karate")
    assert torch.equal(dense(attacked), flipped())


def test_negative_entries_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must be finite and not negative, got -1"):
        load_attacked(write(tmp_path, -flipped()), base="karate")


def test_another_number_of_nodes_is_refused_with_the_data_sets_that_fit(tmp_path: Path) -> None:
    path = write(tmp_path, flipped())
    with pytest.raises(DataError, match="a matrix of 34 x 34, and wine has 178 nodes; as many nodes has karate"):
        load_attacked(path, base="wine")


@pytest.mark.usefixtures("own_registry")
def test_a_list_of_graphs_is_no_base(tmp_path: Path) -> None:
    register_dataset(DatasetSpec(name="several", loader=lambda: [load("karate")] * 2, level="graph"))
    with pytest.raises(DataError, match="several is a list of graphs"):
        load_attacked(write(tmp_path, flipped()), base="several")


def test_nodes_in_another_order_are_refused(tmp_path: Path) -> None:
    wine = dense(load("wine"))
    order = torch.randperm(178, generator=torch.Generator().manual_seed(0))
    with pytest.raises(DataError, match="its nodes are others, or in another order"):
        load_attacked(write(tmp_path, wine[order][:, order]), base="wine")


def test_files_that_hold_something_else_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file"):
        load_attacked(tmp_path / "none.npz", base="karate")
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    with pytest.raises(DataError, match=r"holds no adjacency matrix as scipy\.sparse\.save_npz writes it"):
        load_attacked(tmp_path / "other.npz", base="karate")
    save_npz(tmp_path / "dia.npz", csr_matrix(flipped().numpy()).todia())
    with pytest.raises(DataError, match=r"must be one of csr, csc, coo, got 'dia'; save matrix\.tocsr\(\) instead"):
        load_attacked(tmp_path / "dia.npz", base="karate")


def test_a_file_with_a_missing_member_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, flipped())
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist() if name != "indptr.npy"}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    path.write_bytes(out.getvalue())
    with pytest.raises(DataError, match="lacks indptr; a matrix in the format csr has data, shape, indices, indptr"):
        load_attacked(path, base="karate")


def test_an_adjacency_matrix_alone_names_the_ways_that_work(tmp_path: Path) -> None:
    path = write(tmp_path, flipped())
    with pytest.raises(DataError, match=re.escape('load_attacked("adj.npz", base="cora")')):
        load(path)


def test_splits_survive_saving_and_need_not_cover_all_nodes(tmp_path: Path) -> None:
    path, split = tmp_path / "s.json", stratified(load("wine").y, seed=0)
    save_split(split, path)
    assert set(json.loads(path.read_text())) == {"idx_train", "idx_val", "idx_test"}
    again = load_split(path, 178)
    for part in ("train", "val", "test"):
        assert torch.equal(getattr(again, part), getattr(split, part))
    path.write_text('{"idx_train": [5, 0], "idx_val": [3], "idx_test": [1], "more": "text"}')
    assert load_split(path, 178).train.tolist() == [0, 5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "must hold the lists idx_train, idx_val, idx_test, got 'list'"),
        ('{"idx_train": [1]}', "got 'idx_train'"),
        ('{"idx_train": [1.5], "idx_val": [2], "idx_test": [3]}', "idx_train must be a list of node numbers"),
        ('{"idx_train": [true], "idx_val": [2], "idx_test": [3]}', "idx_train must be a list of node numbers"),
        ('{"idx_train": [], "idx_val": [2], "idx_test": [3]}', "that is not empty"),
        ('{"idx_train": [1], "idx_val": [-2], "idx_test": [3]}', "idx_val names nodes -2 to -2"),
        ('{"idx_train": [1], "idx_val": [2], "idx_test": [34]}', "the graph has the nodes 0 to 33"),
        ('{"idx_train": [1, 1], "idx_val": [2], "idx_test": [3]}', "idx_train names 1 nodes more than once"),
        ('{"idx_train": [1], "idx_val": [1], "idx_test": [3]}', "1 nodes are in two, such as 1"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("\x00\xff", "is not JSON"),
    ],
)
def test_splits_that_are_none_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(text, encoding="latin1")
    with pytest.raises(DataError, match=message):
        load_split(path, 34)


def test_target_nodes_keep_their_order(tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    path.write_text('{"attacked_test_nodes": [7, 3, 30]}')
    assert load_targets(path, 34).tolist() == [7, 3, 30]
    with pytest.raises(DataError, match="attacked_test_nodes names nodes 3 to 30"):
        load_targets(path, 30)
    with pytest.raises(DataError, match="there is no file"):
        load_targets(tmp_path / "none.json", 30)


def test_a_composed_name_loads_the_edges_and_the_split_of_its_files(tmp_path: Path) -> None:
    path, splits = write(tmp_path, flipped()), tmp_path / "s.json"
    splits.write_text('{"idx_train": [5, 0], "idx_val": [3], "idx_test": [1]}')
    data = load(f"karate@{path}@{splits}")
    assert torch.equal(dense(data), flipped())
    assert data.train_mask.nonzero().ravel().tolist() == [0, 5]
    assert data.val_mask.nonzero().ravel().tolist() == [3]
    assert data.test_mask.nonzero().ravel().tolist() == [1]
    assert data.name == "karate@adj.npz@s.json"
    only_split = load(f"karate@{splits}")
    assert torch.equal(only_split.edge_index, load("karate").edge_index)
    assert only_split.train_mask.sum() == 2
    with pytest.raises(DataError, match="brings its own features"):
        load(f"karate@{splits}", features="degree")


def test_the_base_of_a_composed_name_is_drawn_from_the_seed(tmp_path: Path) -> None:
    splits = tmp_path / "s.json"
    splits.write_text('{"idx_train": [5, 0], "idx_val": [3], "idx_test": [1]}')
    for seed in (0, 1):
        assert torch.equal(load(f"toy-moons@{splits}", seed=seed).x, load("toy-moons", seed=seed).x)
