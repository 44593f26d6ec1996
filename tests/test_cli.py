import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wtawp import __version__
from wtawp.cli import app
from wtawp.experiments import Store
from wtawp.experiments.records import Record
from wtawp.graphs import NAMES

RUN = CliRunner()


def test_version_is_printed() -> None:
    result = RUN.invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output.strip() == f"wtawp {__version__}"


def test_without_a_command_help_is_shown() -> None:
    assert "demo" in RUN.invoke(app, []).output


@pytest.mark.slow
def test_the_demo_prints_a_verdict_and_writes_its_page(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    result = RUN.invoke(app, ["demo", "--out", str(out), "--splits", "2", "--epochs", "2", "--dataset", "wine"])
    assert result.exit_code == 0, result.output
    flat = " ".join(result.output.split())
    assert "95 % interval" in flat
    assert "WT-AWP is" in flat
    assert out.name in flat
    assert "Adversarial weight perturbation, demonstrated" in out.read_text(encoding="utf-8")


def test_a_folder_that_is_not_there_is_named_before_any_work(tmp_path: Path) -> None:
    result = RUN.invoke(app, ["demo", "--out", str(tmp_path / "missing" / "page.html")])
    assert result.exit_code == 2
    assert "is not a folder" in " ".join(result.output.replace("│", " ").split())  # a long path wraps in its frame


@pytest.mark.usefixtures("empty_home")
def test_data_list_names_everything_and_where_it_is() -> None:
    result = RUN.invoke(app, ["data", "list"])
    assert result.exit_code == 0, result.output
    rows = {cells[0]: cells for line in result.output.splitlines() if len(cells := line.strip("│ ").split("│")) == 6}
    rows = {name.strip(): [cell.strip() for cell in cells] for name, cells in rows.items()}
    assert set(NAMES) <= set(rows)
    assert rows["karate"] == ["karate", "nodes", "34", "78", "4", "embedded"]
    assert rows["proteins"] == ["proteins", "graphs", "43,471", "81,044", "2", "not here"]


@pytest.mark.usefixtures("empty_home")
def test_data_get_says_what_to_put_where_when_nothing_can_be_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # nobody listens there
    result = RUN.invoke(app, ["data", "get", "karate", "polblogs"])
    assert result.exit_code == 1
    flat = " ".join(result.output.split())
    assert "karate: comes with the package" in flat
    assert "could not fetch metattack_npz/polblogs.npz (sha256 cd0983c2" in flat
    assert "Traceback" not in flat


def test_data_get_refuses_an_unknown_name_before_it_fetches() -> None:
    result = RUN.invoke(app, ["data", "get", "cora", "core"])
    assert result.exit_code == 1
    assert "no graph called 'core'" in " ".join(result.output.split())


def test_data_get_finds_what_is_here(offline: Path) -> None:
    result = RUN.invoke(app, ["data", "get", "polblogs"])
    assert result.exit_code == 0, result.output
    assert f"polblogs: in {offline / 'metattack_npz'}" in result.output


def test_data_check_tells_intact_missing_and_damaged_apart(
    empty_home: Path, data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    result = RUN.invoke(app, ["data", "check"])
    assert (result.exit_code, result.output.strip()) == (0, "No published file is here.")
    assert RUN.invoke(app, ["data", "check", "polblogs"]).exit_code == 1  # named, and missing
    cached = empty_home / "data/metattack_npz/polblogs.npz"
    cached.parent.mkdir(parents=True)
    cached.write_bytes((data_root / "metattack_npz/polblogs.npz").read_bytes())
    result = RUN.invoke(app, ["data", "check"])
    assert result.exit_code == 0
    assert "ok" in result.output
    cached.write_bytes(b"tampered")
    result = RUN.invoke(app, ["data", "check"])
    assert result.exit_code == 1
    assert "DAMAGED" in result.output


def test_data_info_describes_names_and_files(tmp_path: Path) -> None:
    result = RUN.invoke(app, ["data", "info", "karate"])
    assert result.exit_code == 0, result.output
    cells = " ".join(result.output.replace("│", " ").split())
    for fact in ("nodes 34", "undirected edges 78", "classes 4", "mean degree 4.59", "edge homophily 0.756"):
        assert fact in cells
    (tmp_path / "g.csv").write_text("0,1\n")
    result = RUN.invoke(app, ["data", "info", str(tmp_path / "g.csv")])
    assert result.exit_code == 1
    assert "needs its labels beside it" in " ".join(result.output.split())


@pytest.mark.usefixtures("offline")
def test_data_info_counts_the_graphs_of_a_collection() -> None:
    result = RUN.invoke(app, ["data", "info", "imdb-binary"])
    cells = " ".join(result.output.replace("│", " ").split())
    assert "graphs 1,000" in cells
    assert "majority share 0.5000" in cells
    assert "homophily" not in cells


@pytest.fixture
def filled(empty_home: Path, make_record: Callable[..., Record], monkeypatch: pytest.MonkeyPatch) -> list[Record]:
    """The default store with two runs done, one of them on two devices, and one that failed."""
    monkeypatch.setenv("COLUMNS", "200")
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
    told = results("import", part, whole, *other)
    assert f"{part}: 1 new, 0 known" in told
    assert f"{whole}: 3 new, 1 known" in told
    assert json.loads(results("ls", "--json", *other)) == json.loads(results("ls", "--json"))
    part.write_text("{}\n")
    assert f"{part}, line 1: a record has the fields" in results("import", part, *other, code=1)


@pytest.mark.usefixtures("filled")
def test_results_prune_asks_first() -> None:
    assert "say what to delete" in results("prune", code=2)
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
