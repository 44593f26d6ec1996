import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from wtawp.cli import app
from wtawp.experiments.tuning import runner

pytest.importorskip("optuna", reason="SEARCHES NOT CHECKED: pip install 'wtawp[tune]'")
RUN = CliRunner()
MODEL = """
from torch import Tensor, nn

class OneHop(nn.Module):
    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(d_in, 8), nn.Linear(8, d_out)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.last(self.first(x.index_add(0, edge_index[1], x[edge_index[0]])).relu())
"""


def arguments(folder: Path, *more: object, trials: int = 2) -> list[str]:
    files = ("--study", folder / "s.sqlite", "--store", folder / "r.sqlite")
    return [str(a) for a in ("--trials", trials, "--splits", 2, "--epochs", 3, "--workers", 1, *files, *more)]


def invoke(*given: object, code: int = 0) -> Result:
    result: Result = RUN.invoke(app, list(map(str, given)))
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def without_times(report: dict[str, Any]) -> dict[str, Any]:
    for arm in report["arms"].values():
        for trial in arm["trials"]:
            del trial["seconds"]
    return report


def test_the_result_is_trained_by_the_command_that_is_printed_and_the_page_is_written(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    report = json.loads(invoke("tune", "wine", *arguments(tmp_path, "--html", page, "--json")).stdout)
    assert "<svg" in page.read_text(encoding="utf-8")
    assert [len(arm["trials"]) for arm in report["arms"].values()] == [2, 2]
    assert [cell["runs"] for cell in report["comparison"]["cells"]] == [2] * 4
    for arm in report["arms"].values():
        command = shlex.split(arm["command"])
        assert json.loads(invoke(*command[1:], "--json").stdout)["setting"] == arm["setting"]
    again = invoke("tune", "wine", *arguments(tmp_path)).output
    assert "continues after 4 trials" in again
    assert all(arm["command"] in " ".join(again.split()) for arm in report["arms"].values())
    assert "splits that the search (splits 1000000" in " ".join(again.split())
    other = invoke("tune", "wine", *arguments(tmp_path, "--lr", 0.05), code=1).output
    assert "belongs to another search" in " ".join(other.split())


def test_other_methods_are_tuned_with_as_many_trials_and_compared_with_plain_training(tmp_path: Path) -> None:
    chosen = ("SAM", "EMA", "WT-AWP auto")
    options = [text for name in chosen for text in ("--method", name)]
    report = json.loads(invoke("tune", "wine", *arguments(tmp_path, *options, "--json", trials=1)).stdout)
    assert [len(report["arms"][arm]["trials"]) for arm in ("plain", "WT-AWP", *chosen)] == [1] * 5
    rows = [cell["row"] for cell in report["comparison"]["cells"]]
    assert rows[2:5] == [f"GCN+{name}, tuned" for name in chosen]
    assert {("GCN, tuned", row) for row in rows[1:]} <= {
        (pair["before"], pair["after"]) for pair in report["comparison"]["pairs"]
    }
    for name in ("EMA", "WT-AWP auto"):
        arm = report["arms"][name]
        command = shlex.split(arm["command"])
        assert json.loads(invoke(*command[1:], "--json").stdout)["setting"] == arm["setting"]
    call = report["arms"]["SAM"]["command"]
    assert call.startswith("fit(model, data, split, seed=0, awp=")
    assert call.endswith("  # model: GCN, dropout=0.5")
    assert "awp=AwpConfig(rho=0.05, lam=1.0, layers='*', radius='global')" in call
    fewer = " ".join(invoke("tune", "wine", *arguments(tmp_path, trials=1), code=1).output.split())
    assert "belongs to another search: its space is" in fewer
    both = " ".join(invoke("tune", "wine", "--rho", 1, "--method", "SAM", *arguments(tmp_path), code=2).output.split())
    assert "would have to mean the same for every method" in both.replace("│ ", "")
    unknown = " ".join(invoke("tune", "wine", "--method", "smm", *arguments(tmp_path), code=2).output.split())
    assert "WT-AWP auto, W-AWP, SAM," in unknown.replace("│ ", "")


def test_a_model_of_ones_own_without_dropout_is_tuned_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tuned_models.py").write_text(MODEL, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    output = " ".join(
        invoke("tune", "wine", "--model", "tuned_models:OneHop", *arguments(tmp_path, trials=1)).output.split()
    )
    assert "Dropout is not varied: tuned_models:OneHop has no argument dropout" in output
    assert "wtawp train wine --model tuned_models:OneHop --lr" in output


def test_what_cannot_be_tuned_is_refused(tmp_path: Path) -> None:
    assert "cannot be perturbed" in invoke("tune", "wine", "--model", "RGCN", *arguments(tmp_path), code=2).output
    assert "auto is no number" in invoke("tune", "wine", "--lam", "auto", *arguments(tmp_path), code=2).output
    assert "no folds" in invoke("tune", "wine", "--split", "k-fold", *arguments(tmp_path), code=2).output
    (tmp_path / "s.sqlite").write_text("no database", encoding="utf-8")
    refused = " ".join(invoke("tune", "wine", *arguments(tmp_path), code=1).output.split())
    assert "is no study of `wtawp tune`, or is damaged" in refused
    assert (tmp_path / "s.sqlite").read_text(encoding="utf-8") == "no database"


def test_an_interrupt_keeps_the_trials_and_says_how_to_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run_comparison", interrupt)
    output = " ".join(invoke("tune", "wine", *arguments(tmp_path, trials=1), code=130).output.split())
    assert "Stopped. Finished trials are in" in output
    assert "the same command continues from here" in output
    monkeypatch.undo()
    assert "continues after 2 trials" in invoke("tune", "wine", *arguments(tmp_path, trials=1)).output


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
def test_a_killed_search_is_continued_by_the_same_command_to_the_same_result(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    trials = 3
    whole = json.loads(invoke("tune", "wine", *arguments(tmp_path / "whole", "--json", trials=trials)).stdout)
    command = [sys.executable, "-m", "wtawp.cli", "tune", "wine", *arguments(tmp_path, trials=100)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while finished_trials(tmp_path / "s.sqlite") < 3 and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = finished_trials(tmp_path / "s.sqlite")
    assert before >= 3
    more = max(trials, before // 2 + 1)
    continued = json.loads(invoke("tune", "wine", *arguments(tmp_path, "--json", trials=more)).stdout)
    expected = without_times(whole)["arms"]
    for name, arm in without_times(continued)["arms"].items():
        assert len(arm["trials"]) == more
        assert arm["trials"][:trials] == expected[name]["trials"]


def finished_trials(path: Path) -> int:
    """How many trials a file has; 0 where there is none."""
    if not path.exists():
        return 0
    db = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    try:
        return int(db.execute("SELECT count(*) FROM trials WHERE state = 'COMPLETE'").fetchone()[0])
    except sqlite3.OperationalError:  # it is being written
        return 0
    finally:
        db.close()
