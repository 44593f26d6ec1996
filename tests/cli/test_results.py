import json
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from wtawp.cli import app
from wtawp.cli.shared import console
from wtawp.experiments import Store
from wtawp.experiments.plans.catalogue import plan
from wtawp.experiments.plans.scale import at_scale
from wtawp.experiments.spec import Record, Run, Setting, key_of
from wtawp.experiments.store import UnreadableRecordWarning

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
    assert f"{max(r.key for r in filled)[:10]} 2 1 80.00 2023-02-07 GCN on karate, plain" in cells
    assert cells.startswith("cpu key done failed test %")
    assert "gpu [1] key done test %" in cells
    assert "1 85.00 2023-02-07 GCN on karate, plain" in cells
    cells = " ".join(results("ls", "--failed").replace("│", " ").split())
    assert f"{filled[3].key[:10]} 2 0 ValueError: [bold]no[/bold] GCN on karate, plain" in cells
    rows = json.loads(results("ls", "--json"))
    assert [(row["device"], row["done"], row["failed"]) for row in rows] == [("cpu", 2, 1), ("gpu [1]", 1, 0)]
    assert [row["key"] for row in json.loads(results("ls", "--failed", "--json"))] == [filled[3].key]


def test_the_list_fits_a_narrow_terminal(
    make_record: Callable[..., Record], empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not empty_home.exists()
    measures = [{"name": "evasion", "options": [["attack", "pgd"], ["budget", 0.05], ["labels", "true"]]}]
    with Store() as store:
        store.add([with_setting(make_record(0), measures=measures, epochs=500, weight_decay=0.002)])
    monkeypatch.setattr(console, "_width", 80)
    lines = results("ls").splitlines()
    assert len(lines) <= 6, "the device, the head, a rule, and three lines for the setting"
    assert max(map(len, lines)) <= 80
    assert "evasion" in " ".join(lines)


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
    assert "`wtawp results import` makes one. No runs." in " ".join(results("ls").split())
    assert json.loads(RUN.invoke(app, ["results", "ls", "--json"]).stdout) == []
    assert "there is no store" in results("ls", "--store", tmp_path / "not-there.sqlite", code=1)
    for command in (["show", "ab"], ["export", tmp_path / "x.jsonl"], ["prune", "--failed"]):
        assert "Error: there is no store of results at" in results(*command, code=1)
    assert not empty_home.exists()
    Store(tmp_path / "empty.sqlite").close()
    assert results("ls", "--store", tmp_path / "empty.sqlite").strip() == "No runs."
    assert results("ls", "--failed", "--store", tmp_path / "empty.sqlite").strip() == "No failed runs."


def with_setting(record: Record, **changed: Any) -> Record:
    """A record of another setting, under the key of its content."""
    setting = record.setting | changed
    return replace(record, setting=setting, key=key_of(setting, record.split, record.init))


def test_listing_records_runs_no_code(filled: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hostile").mkdir()
    (tmp_path / "hostile" / "__init__.py").write_text("import pathlib\npathlib.Path('was_run').touch()\n")
    (tmp_path / "hostile" / "inner.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    model = with_setting(filled[0], model="hostile.inner:Net")
    data = with_setting(filled[3], dataset="hostile.inner:load")
    file = tmp_path / "records.jsonl"
    file.write_text(f"{model.to_json()}\n{data.to_json()}\n")
    assert "2 new" in results("import", file)
    assert "hostile.inner:Net on karate, plain" in results("ls")
    assert "GCN on hostile.inner:load, plain" in results("ls", "--failed")
    for record in (model, data):
        assert "hostile.inner:" in results("show", record.key)
    for source in ([], ["--records", str(file)]):
        report = RUN.invoke(app, ["report", "claim:second-layer", "--scale", "smoke", *source])
        assert report.exit_code == 0, report.output
    assert not (tmp_path / "was_run").exists()
    assert not [name for name in sys.modules if name.startswith("hostile")]


@pytest.mark.parametrize(
    "changed",
    [{"accuracy": {"test": 5.0}}, {"accuracy": {"test": float("nan")}}, {"accuracy": None}, {"seconds": "1"},
     {"epoch": "7"}, {"setting": {"model": 5}}, {"setting": {"lr": 10**400}}],
)  # fmt: skip
def test_import_refuses_a_wrong_outcome_with_its_line_and_adds_nothing(
    filled: list[Record], make_record: Callable[..., Record], tmp_path: Path, changed: dict[str, Any]
) -> None:
    wrong = with_setting(filled[0], **changed["setting"]) if "setting" in changed else replace(filled[0], **changed)
    file, other = tmp_path / "records.jsonl", ("--store", tmp_path / "other.sqlite")
    file.write_text(f"{make_record(5).to_json()}\n{wrong.to_json()}\n")
    name = next(iter(changed))
    assert f"{file}, line 2: {name} cannot be right" in results("import", file, *other, code=1)
    assert json.loads(results("ls", "--json", *other)) == []


def test_a_store_that_holds_wrong_records_shows_them_as_unreadable(
    filled: list[Record], make_record: Callable[..., Record]
) -> None:
    wrong = [with_setting(filled[0], model=5), with_setting(filled[0], lr=10**400), with_setting(filled[0], awp=5),
             make_record(5, accuracy={"test": 5.0}), make_record(6, accuracy=None)]  # fmt: skip
    with Store() as store:
        store.add(wrong)  # as versions before the checks did
        for column, text in (("setting", "no JSON"), ("content", "no JSON")):
            store.add([make_record(7, dataset="cora", device=column)])
            with sqlite3.connect(store.path) as db:
                db.execute(f"UPDATE records SET {column} = ? WHERE device = ?", (text, column))
            db.close()
    rows = json.loads(results("ls", "--json"))
    assert sum(row["unreadable"] for row in rows) == len(wrong) + 2
    cells = " ".join(results("ls").replace("│", " ").split())
    assert "2 1 2 80.00 2023-02-07 GCN on karate, plain" in cells
    assert "unreadable: " in cells
    with pytest.warns(UnreadableRecordWarning, match="6 unreadable records in .* are left out"), Store() as store:
        assert {r.key for r in store.records()} == {r.key for r in [*filled, make_record(7, dataset="cora")]}
    assert "is unreadable: accuracy cannot be right" in results("show", wrong[3].key, code=1)
    assert "accuracy, test" in results("show", filled[0].key)
    with Store() as store, pytest.warns(UnreadableRecordWarning):
        assert store.done([wrong[3].key, filled[0].key], "cpu", "2.6.0") == {filled[0].key}
    with Store() as store:  # a run that is trained again replaces the unreadable record
        assert store.add([make_record(5)]) == (1, 0)
        assert [r.accuracy for r in store.find(wrong[3].key)] == [make_record(5).accuracy]


@pytest.mark.usefixtures("filled")
@pytest.mark.filterwarnings("always::wtawp.experiments.store.UnreadableRecordWarning")  # the command prints it
def test_a_report_leaves_unreadable_records_out(make_record: Callable[..., Record]) -> None:
    run = at_scale(plan("claim:second-layer"), "smoke").runs()[0]
    wrong = make_record(run.split, run.init, key=run.key, setting=run.setting.content, epoch=0, accuracy={"test": 5.0})
    command = ["report", "claim:second-layer", "--scale", "smoke", "--json"]
    with Store() as store:
        store.add([wrong])
    report = RUN.invoke(app, command)
    assert report.exit_code == 0, report.output
    assert "Warning: 1 unreadable records in" in report.stderr
    assert run.key in report.stderr
    assert [cell["runs"] for cell in json.loads(report.stdout)[0]["cells"]] == [0, 0]
    with Store() as store:
        store.add([replace(wrong, accuracy={"test": 0.5})])
    assert sum(cell["runs"] for cell in json.loads(RUN.invoke(app, command).stdout)[0]["cells"]) == 1


def test_terminal_escapes_of_imported_records_do_not_reach_the_terminal(filled: list[Record], tmp_path: Path) -> None:
    hostile = "\x1b[31m\x9b2J\x07\r\u202e"
    done = replace(with_setting(filled[0], dataset=f"a{hostile}"), device=f"b{hostile}", created=f"c{hostile}",
                   versions={"torch": f"d{hostile}", f"e{hostile}": f"f{hostile}"})  # fmt: skip
    failed = replace(filled[3], device=f"g{hostile}", error=f"Traceback\nh{hostile}")
    file = tmp_path / "records.jsonl"
    file.write_text(f"{done.to_json()}\n{failed.to_json()}\n")
    output = results("import", file)
    output += results("ls") + results("ls", "--failed") + results("show", done.key) + results("show", failed.key)
    file.write_text(replace(done, epoch=9).to_json() + "\n")
    output += results("import", file, code=1)
    assert "contradicts" in output
    assert not set(hostile[0] + "\x9b\x07\r\u202e") & set(output)
    for letter in "abdefgh":
        assert f"{letter}\\x1b[31m\\x9b2J\\x07\\r\\u202e" in output, letter


def test_results_check_lists_every_problem_and_exits_with_1(filled: list[Record], tmp_path: Path) -> None:
    cells = " ".join(results("check").replace("│", " ").split())
    assert "results.sqlite 3 1 0 0" in cells
    folder = tmp_path / "exported"
    folder.mkdir()
    results("export", folder / "whole.jsonl.gz")
    lines = [record.to_json() for record in filled]
    (folder / "damaged.jsonl").write_text("\n".join([lines[0], lines[1].replace("0.85", "0.86")]) + "\n")
    output = results("check", folder, code=1)
    assert f"{folder / 'damaged.jsonl'}: line 2: the record does not match its checksum" in output
    checks = json.loads(results("check", folder, "--json", code=1))
    assert [(Path(c["path"]).name, c["done"], c["failed"], len(c["problems"])) for c in checks] == [
        ("damaged.jsonl", 1, 0, 1), ("whole.jsonl.gz", 3, 1, 0),
    ]  # fmt: skip
    results("check", folder / "whole.jsonl.gz")
    assert "cannot read" in results("check", tmp_path / "missing.jsonl", code=1)


def test_results_prune_shows_unreadable_records_before_it_deletes_them(filled: list[Record]) -> None:
    with Store() as store:
        store._db.execute("UPDATE records SET content = replace(content, '0.85', '0.86') WHERE device = 'cpu'")
    key = filled[1].key
    assert f"record '{key}': the record does not match its checksum" in results("check", code=1)
    output = results("prune", "--unreadable", code=1, typed="n\n")
    assert f"{key}: the record does not match its checksum" in output
    assert "Delete 1 records from" in output
    assert "0 records deleted" in results("prune", "--unreadable", "--device", "gpu [1]")
    assert "1 records deleted" in results("prune", "--unreadable", "--yes")
    assert sum(row["done"] for row in json.loads(results("ls", "--json"))) == 2
    results("check")


def test_results_export_salvages_a_damaged_store(filled: list[Record], empty_home: Path, tmp_path: Path) -> None:
    path, saved, other = empty_home / "results.sqlite", tmp_path / "saved.jsonl", ("--store", tmp_path / "new.sqlite")
    with path.open("r+b") as file:  # the page of an index
        file.seek(2 * 4096)
        file.write(b"\xff" * 64)
    assert "is damaged; `wtawp results export FILE --salvage`" in results("ls", code=1)
    results("check", code=1)
    assert f"{len(filled)} records in {saved}; 0 rows hold no" in results("export", saved, "--salvage")
    assert f"{len(filled)} new" in results("import", saved, *other)
    assert "--salvage writes the records" in results("export", saved, "--salvage", "--device", "cpu", code=2)


def test_versions_of_data_and_code_are_told_apart(filled: list[Record], tmp_path: Path) -> None:
    store = tmp_path / "versions.sqlite"
    with Store(store) as opened:
        for digit in "12":
            setting = Setting(dataset="mine.pt", model="nets:Net", code=16 * digit, digest=16 * "3")
            run = Run(setting, 0, 0)
            opened.add([replace(filled[0], key=run.key, setting=setting.content, split=0, init=0)])
    cells = " ".join(results("ls", "--store", store).split())
    assert all(f"(code {8 * digit}, data 33333333)" in cells for digit in "12")
