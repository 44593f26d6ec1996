import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import contains_self_loops, is_undirected

from wtawp.base import DataError, DownloadError
from wtawp.graphs import (
    DatasetSpec,
    dataset_names,
    dataset_spec,
    describe,
    fetch_dataset,
    load,
    locate_dataset,
    public,
    register_dataset,
)
from wtawp.graphs.datasets import CollectionName

SHAPES = {
    "digits": (1797, 64, 10),
    "wine": (178, 13, 3),
    "breast-cancer": (569, 30, 2),
    "karate": (34, 34, 4),
    "citation": (2000, 800, 7),
    **{f"toy-{name}": (200, 2, 2) for name in ("linear", "moons", "rings", "gaussians")},
}
NODE_SETS = {  # nodes, undirected edges, features, class counts, as the published table has them
    "cora": (2485, 5069, 1433, [285, 406, 726, 379, 214, 131, 344]),
    "citeseer": (2110, 3668, 3703, [115, 463, 388, 304, 532, 308]),
    "polblogs": (1222, 16714, 1490, [586, 636]),
    "planetoid-cora": (2708, 5278, 1433, [351, 217, 418, 818, 426, 298, 180]),
    "planetoid-citeseer": (3327, 4552, 3703, [249, 590, 668, 701, 596, 508]),
    "planetoid-pubmed": (19717, 44324, 500, [4103, 7739, 7875]),
    "amazon-computers": (13752, 245861, 767, [436, 2142, 1414, 542, 5158, 308, 487, 818, 2156, 291]),
    "coauthor-physics": (34493, 247962, 8415, [5750, 5045, 17426, 2753, 3519]),
}
MAJORITY = {"cora": 0.2922, "citeseer": 0.2521, "polblogs": 0.5205, "planetoid-cora": 0.3021,
            "planetoid-citeseer": 0.2117, "planetoid-pubmed": 0.3994, "amazon-computers": 0.3751,
            "coauthor-physics": 0.5052, "proteins": 0.5957, "imdb-binary": 0.5, "imdb-multi": 0.3333}  # fmt: skip
GRAPH_SETS = {  # graphs, nodes, smallest, largest, edges, largest degree, features, class counts
    "proteins": (1113, 43471, 4, 620, 81044, 25, 4, [663, 450]),
    "imdb-binary": (1000, 19773, 12, 136, 96531, 135, 136, [500, 500]),
    "imdb-multi": (1500, 19502, 7, 89, 98903, 88, 89, [500, 500, 500]),
}


def listed(name: str) -> tuple[str, int | None, int | None, int | None, int | None]:
    """What the registry says of a data set."""
    spec = dataset_spec(name)
    return spec.level, spec.nodes, spec.edges, spec.features, spec.classes


def counted(data: Data | list[Data]) -> tuple[str, int, int, int, int]:
    """What the loaded data are."""
    about = describe(data)
    level = "graph" if isinstance(data, list) else "node"
    return level, about.nodes, about.edges, about.features, about.classes


def test_the_tables_here_cover_every_name() -> None:
    published = {name for name in dataset_names() if dataset_spec(name).source == "published"}
    assert set(SHAPES) == set(dataset_names()) - published
    assert {*NODE_SETS, *GRAPH_SETS} == published == set(MAJORITY)
    assert set(GRAPH_SETS) == set(get_args(CollectionName))


@pytest.mark.parametrize("name", SHAPES)
def test_each_graph_has_its_known_shape_and_is_undirected(name: str) -> None:
    data = load(name)
    assert isinstance(data, Data)
    assert (data.num_nodes, data.num_features, int(data.y.max()) + 1) == SHAPES[name]
    assert counted(data) == listed(name)
    assert data.validate()
    assert is_undirected(data.edge_index)
    assert not contains_self_loops(data.edge_index)
    assert data.x.isfinite().all()
    assert data.name == name
    assert locate_dataset(name) == "embedded"
    assert fetch_dataset(name) == []


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("name", NODE_SETS)
def test_published_graphs_have_the_published_statistics(name: str) -> None:
    nodes, edges, features, counts = NODE_SETS[name]
    data = load(name)
    about = describe(data)
    assert (about.nodes, about.edges, about.features, about.classes) == (nodes, edges, features, len(counts))
    assert torch.bincount(data.y[data.y >= 0]).tolist() == counts
    assert about.majority == pytest.approx(MAJORITY[name], abs=5e-5)
    assert data.validate()
    assert is_undirected(data.edge_index)
    assert not contains_self_loops(data.edge_index)
    assert data.x.dtype == torch.float32
    assert data.name == name
    assert "classes" not in data
    assert counted(data) == listed(name)


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("name", GRAPH_SETS)
def test_published_collections_have_the_published_statistics(name: str) -> None:
    graphs, nodes, smallest, largest, edges, degree, features, counts = GRAPH_SETS[name]
    collection = load(name)
    assert isinstance(collection, list)
    about = describe(collection)
    assert (about.graphs, about.nodes, about.edges, about.features) == (graphs, nodes, edges, features)
    assert about.majority == pytest.approx(MAJORITY[name], abs=5e-5)
    assert torch.bincount(torch.cat([graph.y for graph in collection])).tolist() == counts
    sizes = [graph.num_nodes for graph in collection]
    assert (min(sizes), max(sizes)) == (smallest, largest)
    assert max(int(torch.bincount(graph.edge_index[0]).max()) for graph in collection) == degree
    assert all(graph.validate() and graph.x.shape == (graph.num_nodes, features) for graph in collection)
    assert all(is_undirected(graph.edge_index) for graph in collection)
    assert counted(collection) == listed(name)


@pytest.mark.usefixtures("offline")
def test_the_papers_graphs_have_their_published_degrees_homophily_and_binary_words() -> None:
    for name, degree, most, homophily in (("cora", 4.08, 168, 0.804), ("citeseer", 3.48, 99, 0.736),
                                          ("polblogs", 27.36, 351, 0.906)):  # fmt: skip
        data = load(name)
        about = describe(data)
        assert about.mean_degree == pytest.approx(degree, abs=0.005)
        assert about.homophily == pytest.approx(homophily, abs=5e-4)
        assert int(torch.bincount(data.edge_index[0]).max()) == most
        assert set(data.x.unique().tolist()) == {0.0, 1.0}
    assert int((load("cora").x.sum(0) == 0).sum()) == 5
    assert int((load("citeseer").x.sum(0) == 0).sum()) == 99
    blogs = load("polblogs").x
    assert torch.equal(blogs.sum(1), torch.ones(1222))  # each blog is its own feature
    assert int(blogs.sum(0).max()) == 1


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(("name", "num_train"), [("cora", 140), ("citeseer", 120), ("pubmed", 60)])
def test_planetoid_brings_its_public_split(name: str, num_train: int) -> None:
    data = load(f"planetoid-{name}")
    split = public(data)
    assert (len(split.train), len(split.val), len(split.test)) == (num_train, 500, 1000)
    assert torch.bincount(data.y[split.train]).tolist() == [20] * (num_train // 20)
    unlabelled = data.y == -1
    assert int(unlabelled.sum()) == (15 if name == "citeseer" else 0)
    assert not (unlabelled & (data.train_mask | data.val_mask | data.test_mask)).any()
    assert not data.x[unlabelled].any()


@pytest.mark.usefixtures("offline")
def test_the_two_coras_are_one_graph() -> None:
    """An oracle that shares no code: another file, in another format, with nodes in another order."""
    planetoid, order = load("planetoid-cora"), torch.tensor([5, 2, 3, 4, 1, 6, 0])
    rows = {row.numpy().tobytes(): i for i, row in enumerate(planetoid.x)}
    twins = len(rows) < 2708  # some papers have equal words: only unique rows can be matched
    assert twins
    unique, counts = np.unique(planetoid.x.numpy(), axis=0, return_counts=True)
    clear = {row.tobytes() for row in unique[counts == 1]}
    cora = load("cora")
    match = {i: rows[key] for i, row in enumerate(cora.x) if (key := row.numpy().tobytes()) in clear}
    assert len(match) > 2400
    assert all(int(order[cora.y[i]]) == int(planetoid.y[j]) for i, j in match.items())
    there = {(u, v) for u, v in planetoid.edge_index.T.tolist()}
    inside = [(match[u], match[v]) for u, v in cora.edge_index.T.tolist() if u in match and v in match]
    assert set(inside) <= there


@pytest.mark.usefixtures("offline")
def test_physics_keeps_sparse_counts_and_computers_dense_ones() -> None:
    physics = load("coauthor-physics").x
    assert physics.layout == torch.sparse_csr
    assert (int(physics.values().min()), int(physics.values().max())) == (1, 98)
    assert set(load("amazon-computers").x.unique().tolist()) == {0.0, 1.0}
    pubmed = load("planetoid-pubmed").x
    assert float(pubmed.max()) == pytest.approx(1.263, abs=1e-3)


@pytest.mark.usefixtures("offline")
def test_proteins_are_described_by_labels_and_one_standardised_attribute() -> None:
    x = torch.cat([graph.x for graph in load("proteins")])
    assert x[:, :3].sum(0).tolist() == [21151, 20931, 1389]
    assert float(x[:, 3].mean()) == pytest.approx(0, abs=1e-4)
    assert float(x[:, 3].std()) == pytest.approx(1, abs=1e-3)


def test_a_graph_has_the_registered_spelling_of_its_name() -> None:
    assert load("KARATE").name == "karate"


def test_an_unknown_name_lists_the_known_ones() -> None:
    known = r"there are toy-linear, .*citation.* end in \.npz.*; did you mean cora\?"
    with pytest.raises(DataError, match=f"no graph called 'core'; {known}"):
        load("core")
    with pytest.raises(DataError, match="no graph called 'core'"):
        fetch_dataset("core")


def test_a_path_is_told_from_a_name_by_its_ending(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("a,b\nb,c\n")
    (tmp_path / "mine.labels.csv").write_text("a,x\nb,y\nc,x\n")
    for path in (tmp_path / "mine.csv", str(tmp_path / "mine.csv")):
        data = load(path)
        assert data.name == "mine"
        assert data.num_nodes == 3
    with pytest.raises(DataError, match=r"there is no file .*other\.npz"):
        load(str(tmp_path / "other.npz"))
    with pytest.raises(DataError, match=r"must end in \.npz, \.csv, \.pt, \.zip, got '\.txt'"):
        load(tmp_path / "mine.txt")


def test_a_data_set_is_as_near_as_its_farthest_file(
    data_root: Path, empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = dataset_spec("planetoid-cora").files
    assert locate_dataset("planetoid-cora") == "not here"
    for file in (first, *others):
        copy = empty_home / "data" / file.path
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((data_root / file.path).read_bytes())
        assert locate_dataset("planetoid-cora") == ("cache" if file is others[-1] else "not here")
    assert load("planetoid-cora").num_nodes == 2708
    monkeypatch.setenv("WTAWP_DATA", str(data_root))
    assert locate_dataset("planetoid-cora") == "root"


@pytest.mark.usefixtures("empty_home")
def test_what_can_not_be_fetched_is_a_download_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # nobody listens there: no test may reach the network
    with pytest.raises(DownloadError, match=r"could not fetch metattack_npz/cora\.npz"):
        load("cora")


def test_pooch_is_loaded_only_when_something_is_fetched() -> None:
    code = "from wtawp.graphs import load; load('karate'); import sys; sys.exit('pooch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.usefixtures("offline")
def test_graphs_to_classify_may_have_other_features_and_single_graphs_may_not() -> None:
    widths = {name: load("proteins", features=name)[0].num_features for name in ("attribute", "degree", "constant")}
    assert widths == {"attribute": 4, "degree": 26, "constant": 1}
    assert load("imdb-multi", features="degree")[0].num_features == 89
    with pytest.raises(DataError, match="neither node labels nor attributes"):
        load("imdb-multi", features="attribute")
    for name in ("karate", "cora"):
        with pytest.raises(DataError, match=f"{name} brings its own features"):
            load(name, features="degree")


def path_graph(**_: Any) -> Data:
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    return Data(x=torch.eye(3), edge_index=edges, y=torch.tensor([0, 1, 0]))


@pytest.mark.usefixtures("own_registry")
def test_a_registered_data_set_is_loaded_with_what_its_specification_says() -> None:
    calls: list[dict[str, Any]] = []

    def loader(**options: Any) -> Data:
        calls.append(options)
        return path_graph()

    register_dataset(DatasetSpec(name="plain", loader=loader))
    register_dataset(DatasetSpec(name="drawn", loader=loader, source="generated"))
    register_dataset(DatasetSpec(name="choice", loader=loader, feature_choices=("degree",)))
    assert load("plain", seed=3).name == "plain"
    load("drawn", seed=3)
    load("choice", features="degree")
    assert calls == [{}, {"seed": 3}, {"features": "degree"}]
    assert locate_dataset("plain") == "user"
    assert fetch_dataset("plain") == []
    with pytest.raises(DataError, match="plain brings its own features"):
        load("plain", features="degree")
    with pytest.raises(DataError, match="features must be one of degree, got 'constant'"):
        load("choice", features="constant")


@pytest.mark.usefixtures("own_registry")
def test_a_loader_that_returns_something_else_is_refused() -> None:
    register_dataset(DatasetSpec(name="odd", loader=lambda: torch.ones(2)))  # type: ignore[arg-type, return-value]
    with pytest.raises(DataError, match="the loader of odd must return a PyG Data or a list of them, got Tensor"):
        load("odd")


@pytest.mark.usefixtures("own_registry")
def test_a_graph_without_features_has_the_identity_and_lists_are_refused() -> None:
    bare = Data(edge_index=path_graph().edge_index, y=torch.tensor([0, 1, 0]))
    register_dataset(DatasetSpec(name="bare", loader=lambda: bare))
    with pytest.warns(UserWarning, match=r"loader of bare .* each of its 3 nodes is a feature .* x=torch\.eye\(3\)"):
        assert torch.equal(load("bare").x, torch.eye(3))
    assert bare.x is None
    register_dataset(DatasetSpec(name="bares", loader=lambda: [path_graph(), bare]))
    with pytest.raises(DataError, match="bares returns 1 graphs without features x, such as number 1; give each"):
        load("bares")


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("labels", [[2, 2, 2], [-1, 0, 0], [-1, -1, -1]])
def test_labels_of_a_function_must_tell_apart_two_classes_as_those_of_a_file(labels: list[int]) -> None:
    edges = path_graph().edge_index
    register_dataset(DatasetSpec(name="one", loader=lambda: Data(torch.eye(3), edges, y=torch.tensor(labels))))
    with pytest.raises(DataError, match="loader of one returns labels that must tell apart two classes or more"):
        load("one")
    parts = [Data(torch.eye(3), edges, y=torch.tensor([1])) for _ in range(2)]
    register_dataset(DatasetSpec(name="graphs", loader=lambda: parts))
    with pytest.raises(DataError, match=r"two classes or more, got \[1\]"):
        load("graphs")


def test_a_reference_names_a_loader_without_registration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_graphs.py").write_text("from wtawp.graphs import load\ndef club():\n    return load('karate')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert load("my_graphs:club").num_nodes == 34
    with pytest.raises(DataError, match="the loader my_graphs:nothing of a data set cannot be imported"):
        load("my_graphs:nothing")


@pytest.mark.usefixtures("own_registry")
def test_an_error_of_a_loader_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "from wtawp.graphs import load\ndef burns(): raise RuntimeError('disk on fire')\n"
    (tmp_path / "graphs_that_fail.py").write_text(
        f"{source}def absent(): return {{}}['x']\ndef other(): load('coral')\n"
    )
    (tmp_path / "graphs_that_end.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DataError, match="loader graphs_that_fail:burns fails: RuntimeError: disk on fire") as error:
        load("graphs_that_fail:burns")
    assert isinstance(error.value.__cause__, RuntimeError)
    with pytest.raises(DataError, match="loader graphs_that_fail:absent fails: KeyError: 'x'"):
        load("graphs_that_fail:absent")
    with pytest.raises(
        DataError, match="graphs_that_end:burns cannot be imported: ZeroDivisionError: division by zero"
    ):
        load("graphs_that_end:burns")
    with pytest.raises(DataError, match=r"^there is no graph called 'coral'"):
        load("graphs_that_fail:other")

    def mine() -> Data:
        raise OSError

    register_dataset(DatasetSpec(name="mine", loader=mine, source="generated"))
    with pytest.raises(DataError, match=r"mine of the data set mine fails: (OSError|TypeError)"):
        load("mine")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (None, r"such as 'cora', .* got NoneType$"),
        (3, "got int$"),
        (Data(edge_index=torch.ones(2, 0)), "got Data; it is loaded already, so pass it on as it is"),
        ([Data()], "got list; it is loaded already"),
    ],
)
def test_what_is_no_name_is_not_loaded(wrong: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        load(wrong)
