import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wtawp.cli import app
from wtawp.experiments import Store
from wtawp.experiments.spec import Record

RUN = CliRunner()


@pytest.fixture
def filled(empty_home: Path, make_record: Callable[..., Record]) -> list[Record]:
    """The default store with two runs done, one of them on two devices, and one that failed."""
    failure = {"status": "failed", "accuracy": None, "loss": None, "error": "Traceback:\nValueError: [bold]no[/bold]"}
    records = [make_record(0), make_record(1), make_record(1, device="gpu [1]"), make_record(2, **failure)]
    with Store() as store:
        store.add(records)
    assert store.path.parent == empty_home
    return records


def results(*arguments: object, code: int = 0, typed: str | None = None) -> str:
    result = RUN.invoke(app, ["results", *map(str, arguments)], input=typed)
    assert result.exit_code == code, result.output
    assert "Traceback (most recent" not in result.output
    return result.output


def test_results_ls_summarises_and_lists_failures(filled: list[Record]) -> None:
    cells = " ".join(results("ls").replace("│", " ").split())
    assert f"GCN on karate, plain cpu 2 1 80.00 2023-02-07T00:00 {max(r.key for r in filled)}" in cells
    assert "GCN on karate, plain gpu [1] 1 0 85.00" in cells
    cells = " ".join(results("ls", "--failed").replace("│", " ").split())
    assert f"{filled[3].key} GCN on karate, plain 2 0 cpu ValueError: [bold]no[/bold]" in cells
    rows = json.loads(results("ls", "--json"))
    assert [(row["device"], row["done"], row["failed"]) for row in rows] == [("cpu", 2, 1), ("gpu [1]", 1, 0)]
    assert [row["key"] for row in json.loads(results("ls", "--failed", "--json"))] == [filled[3].key]


def test_results_show_prints_every_device_and_the_traceback(filled: list[Record]) -> None:
    cells = " ".join(results("show", filled[1].key[:10]).replace("│", " ").split())
    known = ("accuracy, test 0.8500", "version, torch 2.6.0", "version, commit abc", "selected epoch 7")
    for part in (f"{filled[1].key} on cpu: done", "on gpu [1]: done", "split, initialisation 1, 0", *known):
        assert part in cells
    assert "ValueError: [bold]no[/bold]" in results("show", filled[3].key)
    assert [row["device"] for row in json.loads(results("show", filled[1].key, "--json"))] == ["cpu", "gpu [1]"]
    assert "starts the key of 3 runs" in results("show", "", code=1)


def test_results_move_between_stores(filled: list[Record], tmp_path: Path) -> None:
    whole, part, other = tmp_path / "all.jsonl.gz", tmp_path / "gpu.jsonl", ("--store", tmp_path / "other.sqlite")
    assert f"{len(filled)} records in {whole}" in results("export", whole)
    assert "1 records in" in results("export", part, "--device", "gpu [1]")
    output = results("import", part, whole, *other)
    assert f"{part}: 1 new, 0 known" in output
    assert f"{whole}: 3 new, 1 known" in output
    assert json.loads(results("ls", "--json", *other)) == json.loads(results("ls", "--json"))
    part.write_text("{}\n")
    assert f"{part}, line 1: a record has the fields" in results("import", part, *other, code=1)


@pytest.mark.usefixtures("filled")
def test_results_prune_asks_first() -> None:
    assert "choose what to delete" in results("prune", code=2)
    assert "Delete 1 records from" in results("prune", "--failed", code=1, typed="n\n")
    assert "1 records deleted" in results("prune", "--failed", typed="y\n")
    assert "0 records deleted" in results("prune", "--failed")  # nothing to ask about
    assert "2 records deleted" in results("prune", "--device", "cpu", "--yes")
    assert [row["device"] for row in json.loads(results("ls", "--json"))] == ["gpu [1]"]


def test_results_without_a_store_say_so_and_make_none(empty_home: Path, tmp_path: Path) -> None:
    for command in (["ls"], ["show", "ab"], ["export", tmp_path / "x.jsonl"], ["prune", "--failed"]):
        assert "Error: there is no store of results at" in results(*command, code=1)
    assert not empty_home.exists()
    Store(tmp_path / "empty.sqlite").close()
    assert results("ls", "--store", tmp_path / "empty.sqlite").strip() == "No runs."
    assert results("ls", "--failed", "--store", tmp_path / "empty.sqlite").strip() == "No failed runs."
