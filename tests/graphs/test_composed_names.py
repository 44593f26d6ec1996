from pathlib import Path

import pytest

from wtawp.base import DataError
from wtawp.graphs.composed_names import ComposedName, composed_name, files_of_name, short_name


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("cora@adj.npz", ("cora", "adj.npz", None)),
        ("cora@splits.json", ("cora", None, "splits.json")),
        ("cora@a/adj_0.05.npz@b/splits.json", ("cora", "a/adj_0.05.npz", "b/splits.json")),
        ("cora@/home/a@b/adj.npz@/home/a@b/s.json", ("cora", "/home/a@b/adj.npz", "/home/a@b/s.json")),
        ("mine.csv@adj.npz", ("mine.csv", "adj.npz", None)),
        ("package.module:function@s.json", ("package.module:function", None, "s.json")),
    ],
)
def test_a_composed_name_is_read_and_written(text: str, parts: tuple[str, str | None, str | None]) -> None:
    name = composed_name(text)
    assert name == ComposedName(base=parts[0], edges=parts[1], split=parts[2])
    assert str(name) == text


@pytest.mark.parametrize(
    "text", ["cora", "graph.npz", "/home/a@b/graph.npz", "cora@", "cora@graph.csv", "nothing@a.npz"]
)
def test_other_names_and_paths_with_the_sign_are_not_composed(text: str) -> None:
    assert composed_name(text) is None


def test_the_case_of_a_data_set_does_not_matter() -> None:
    assert composed_name("Cora@Adj.npz") == ComposedName(base="cora", edges="Adj.npz")


def test_a_composed_name_needs_a_file_of_the_right_ending() -> None:
    with pytest.raises(DataError, match="got neither"):
        ComposedName(base="cora")
    with pytest.raises(DataError, match=r"must end in \.npz, got 'adj\.pt'"):
        ComposedName(base="cora", edges="adj.pt")
    with pytest.raises(DataError, match=r"must end in \.json, got 'split\.txt'"):
        ComposedName(base="cora", split="split.txt")


def test_the_files_of_a_name_are_those_of_the_user() -> None:
    assert files_of_name("cora") == ()
    assert files_of_name("mine.npz") == (Path("mine.npz"),)
    assert files_of_name("cora@a.npz@s.json") == (Path("a.npz"), Path("s.json"))
    assert files_of_name("~/g.csv") == (Path.home() / "g.csv", Path.home() / "g.labels.csv")


def test_short_names_keep_what_tells_files_apart() -> None:
    assert short_name("cora") == "cora"
    assert short_name("folder/mine.npz", keeps_endings=True) == "mine.npz"
    names = {short_name(f"cora@x/cora_meta_adj_{rate}.npz@y/s.json") for rate in (0.0, 0.05, 0.1)}
    assert names == {f"cora@cora_meta_adj_{rate}@s" for rate in (0.0, 0.05, 0.1)}
