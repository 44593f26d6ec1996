import subprocess
import sys
from typing import Any

import pytest
from torch_geometric.data import Data

from wtawp.base import DataError, resolve
from wtawp.graphs import DatasetSpec, dataset_names, dataset_spec, register_dataset
from wtawp.graphs.download import RemoteFile
from wtawp.graphs.published_files import FILES
from wtawp.graphs.registry import level_of

HEAVY = {"torch", "torch_geometric", "numba", "matplotlib", "sklearn", "scipy", "pooch"}


def modules_after(statement: str) -> set[str]:
    """The packages that `statement` imports, less those that `wtawp.base` imports."""
    packages = "{m.split('.')[0] for m in sys.modules}"
    code = f"import sys; import wtawp.base; base = {packages}; {statement}; print(*({packages} - base))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    "statement",
    ["import wtawp.graphs.registry", "from wtawp.graphs import dataset_names, locate_dataset, load, is_intact"],
)
def test_the_registry_imports_nothing_that_computes(statement: str) -> None:
    assert not modules_after(statement) & HEAVY


def test_every_built_in_loader_can_be_imported() -> None:
    for name in dataset_names():
        loader = dataset_spec(name).loader
        assert isinstance(loader, str)
        assert callable(resolve(loader))


def test_every_published_file_belongs_to_a_data_set() -> None:
    assert {file.path for name in dataset_names() for file in dataset_spec(name).files} == set(FILES)


def test_the_toys_alone_are_redrawn() -> None:
    redrawn = {name for name in dataset_names() if dataset_spec(name).is_redrawn}
    assert redrawn == {"toy-linear", "toy-moons", "toy-rings", "toy-gaussians"}


@pytest.mark.usefixtures("own_registry")
def test_a_data_set_can_be_registered_once() -> None:
    spec = DatasetSpec(name="mine", loader="somewhere:load", nodes=3)
    register_dataset(spec)
    assert dataset_names()[-1] == "mine"
    assert dataset_spec("mine") is spec
    for taken in ("mine", "cora"):
        with pytest.raises(DataError, match=f"there is a data set called '{taken}' already"):
            register_dataset(DatasetSpec(name=taken, loader=Data))
    for name in ("", "mine.npz", "my:graph"):
        with pytest.raises(DataError, match="the name of a data set must not be empty"):
            register_dataset(DatasetSpec(name=name, loader=Data))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": "edge"}, "level must be one of node, graph"),
        ({"source": "here"}, "source one of embedded, generated, published, user"),
        ({"source": "published"}, "a published data set needs files"),
        ({"files": (RemoteFile("a", "b", ()),)}, "got 1 files with source='user'"),
        ({"is_redrawn": True}, "only generated data can be redrawn"),
    ],
)
def test_contradictions_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        DatasetSpec(name="mine", loader=Data, **options)


@pytest.mark.parametrize("name", dataset_names())
def test_upper_and_lower_case_do_not_matter(name: str) -> None:
    assert dataset_spec(name.upper()) is dataset_spec(name.title()) is dataset_spec(name)
    with pytest.raises(DataError, match=f"there is a data set called '{name}' already"):
        register_dataset(DatasetSpec(name=name.upper(), loader=Data))


def test_what_is_classified_is_known_without_reading() -> None:
    levels = {name: level_of(name) for name in ("IMDB-Binary", "cora", "g.npz", "some/folder/g.zip", "a.b:load")}
    assert list(levels.values()) == ["graph", "node", "node", "graph", "node"]
    with pytest.raises(DataError, match="no graph called 'zzz'"):
        level_of("zzz")


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(DataError, match=r"no graph called 'pol-blogs'; there are .*; did you mean polblogs\?$"):
        dataset_spec("pol-blogs")
    with pytest.raises(DataError, match="no graph called 'zzz'; there are"):
        dataset_spec("zzz")
    with pytest.raises(DataError, match="no graph called"):
        dataset_spec("C:/graph.npz")


def test_a_reference_is_a_specification_of_its_own() -> None:
    spec = dataset_spec("my_package.data:load")
    assert (spec.loader, spec.source, spec.nodes) == ("my_package.data:load", "user", None)
