import errno
import json
import os
import re
from pathlib import Path

import pytest
from commands import invoke

from wtawp.experiments import Store


def test_part_of_the_paper_at_smoke_scale_and_its_report(tmp_path: Path, store: Path) -> None:
    shown = invoke("reproduce", "claim:second-layer", "--scale", "smoke", "--workers", 1, "--store", store)
    assert "Perturbing only the second layer" in shown
    folder, page, exported = tmp_path / "out", tmp_path / "page.html", tmp_path / "records.jsonl.gz"
    invoke("results", "export", exported, "--store", store)
    same = ["report", "claim:second-layer", "--scale", "smoke"]
    invoke(*same, "--records", exported, "--folder", folder, "--html", page)
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert "claim:second-layer" in text
    assert (folder / "datasets.md").is_file()
    assert "<!doctype html>" in page.read_text(encoding="utf-8").lower()
    (report,) = json.loads(invoke(*same, "--store", store, "--json"))
    assert [cell["runs"] for cell in report["cells"]] == [2, 2]
    assert report["claims"] == []  # two short runs prove nothing
    page = tmp_path / "page.md"
    page.write_text("2<!-- = claim:second-layer; first layer; accuracy; runs --> runs", encoding="utf-8")
    assert "Marked numbers that are those of the records: 1, which is all." in invoke(
        *same, "--store", store, "--verify", page
    )
    page.write_text("3<!-- = claim:second-layer; first layer; accuracy; runs --> runs", encoding="utf-8")
    wrong = invoke(*same, "--store", store, "--verify", page, code=1)
    assert "'claim:second-layer; first layer; accuracy; runs' is 2, and the text says 3" in " ".join(wrong.split())
    assert "corrected: " in invoke(*same, "--store", store, "--verify", page, "--correct")
    assert page.read_text(encoding="utf-8") == "2<!-- = claim:second-layer; first layer; accuracy; runs --> runs"
    assert "add --verify FILE" in " ".join(invoke(*same, "--store", store, "--correct", code=2).split())
    missing = invoke(*same, "--store", store, "--verify", tmp_path / "none.md", code=2)
    assert "does not exist" in " ".join(missing.replace("│", " ").split())  # a long path breaks the line
    page.write_text("3 runs", encoding="utf-8")
    assert "no number is marked there" in " ".join(invoke(*same, "--store", store, "--verify", page, code=2).split())


def test_numbers_are_not_checked_without_records_and_a_plan_without_some_is_named(tmp_path: Path, store: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("3<!-- = tab:graphclass; GCN; proteins; mean -->, 9<!-- = fact; main claims -->", encoding="utf-8")
    with Store(store) as opened:
        opened.add([])
    for labels in ((), ("tab:natacc",)):
        refused = invoke("report", *labels, "--store", store, "--verify", page, code=2)
        refused = " ".join(refused.replace("│", " ").split())
        assert "is stored, so no number can be checked; import the records first: wtawp results import" in refused
    plan = tmp_path / "plan.toml"
    plan.write_text('splits = 2\ninits = 1\n[base]\ndataset = "wine"\nepochs = 1\n[[cell]]\nrow = "GCN"\n')
    invoke("run", plan, "--store", store, "--workers", 1)
    wrong = " ".join(invoke("report", "--store", store, "--verify", page, code=1).split())
    assert "page.md:1: this needs the plan tab:graphclass, of which nothing is stored; import the records" in wrong
    assert "page.md:1: this needs the plan extra:flatness, of which nothing is stored; import the records" in wrong
    assert "there is no plan" not in wrong


def test_a_comparison_and_a_plan_of_ones_own_have_a_page_and_are_in_the_report(tmp_path: Path, store: Path) -> None:
    compared, ran, reported = (tmp_path / f"{name}.html" for name in ("compare", "run", "report"))
    short = ("--epochs", 2, "--splits", 2, "--inits", 1, "--workers", 1, "--store", store)
    shown = invoke("compare", "wine", *short, "--html", compared)
    assert "6 runs to train in 6 chunks" in shown
    assert "points of test accuracy" in shown
    plan = tmp_path / "plan.toml"
    plan.write_text('splits = 2\ninits = 1\n[base]\ndataset = "wine"\nepochs = 2\n[[cell]]\nrow = "GCN"\n')
    invoke("run", plan, "--store", store, "--workers", 1, "--html", ran)
    invoke("report", "--store", store, "--html", reported)
    for page in (compared, ran, reported):
        text = page.read_text(encoding="utf-8")
        assert "<h1>Results</h1>" in text
        assert "paper" not in re.sub("<style>.*?</style>", "", text, flags=re.DOTALL)
    assert re.search("<h1>Results</h1>\\s*<div class=.summary.>\\s*<p>GCN\\+WT-AWP .wine.", compared.read_text())
    assert "GCN on wine" in reported.read_text()
    assert "your own runs, epochs=2" in reported.read_text()
    refusal = invoke("compare", "wine", *short, "--html", tmp_path, code=2).replace("│ │", "")
    assert "cannot be a file" in " ".join(refusal.split())


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="FULL DISK NOT CHECKED: there is no /dev/full")
@pytest.mark.parametrize(
    "command", [("train", "wine", "--plain", "--epochs", 1, "--save"), ("report", "tab:natacc", "--html"),
                ("report", "tab:natacc", "--markdown")]
)  # fmt: skip
def test_a_full_disk_is_named_without_a_traceback(empty_home: Path, command: tuple[object, ...]) -> None:
    with Store() as store:
        assert store.path.parent == empty_home
    assert "cannot write /dev/full: No space left on device" in invoke(*command, "/dev/full", code=1)


def test_a_full_disk_leaves_neither_an_empty_page_nor_empty_weights(
    empty_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    Store().close()
    assert empty_home.is_dir()
    monkeypatch.setattr(os, "fsync", full)
    for command in (("train", "wine", "--plain", "--epochs", 1, "--save"), ("report", "tab:natacc", "--html")):
        file = tmp_path / "output"
        assert "No space left on device" in invoke(*command, file, code=1)
        assert not file.exists()
        file.write_text("old")
        assert "No space left on device" in invoke(*command, file, code=1)
        assert file.read_text() == "old"
        file.unlink()
