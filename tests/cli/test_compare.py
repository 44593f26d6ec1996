import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from wtawp.cli import app
from wtawp.experiments.store import Store

RUN = CliRunner()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "results.sqlite"


def invoke(*arguments: object, code: int = 0) -> str:
    result: Result = RUN.invoke(app, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return " ".join((result.stdout if "--json" in arguments else result.output).split())


def test_a_comparison_says_by_how_much(store: Path) -> None:
    (report,) = json.loads(
        invoke("compare", "wine", "--rho", 0.1, "--lam", 0.5, "--splits", 2, "--inits", 1, "--epochs", 3,
               "--workers", 1, "--store", store, "--json")
    )  # fmt: skip
    assert report["plan"] == "comparison"
    assert report["pairs"][0]["gain"]["mean"] == pytest.approx(report["cells"][1]["mean"] - report["cells"][0]["mean"])


def test_a_weight_that_follows_the_training_is_one_word(store: Path) -> None:
    (report,) = json.loads(
        invoke("compare", "wine", "--lam", "auto", "--rho", 0.5, "--epochs", 2, "--splits", 2, "--inits", 1,
               "--workers", 1, "--store", store, "--json")
    )  # fmt: skip
    assert [cell["row"] for cell in report["cells"]] == ["GCN", "GCN+WT-AWP auto"]
    measured = json.loads(invoke("train", "wine", "--lam", "auto", "--epochs", 2, "--json"))
    assert (measured["setting"]["awp"]["lam"], measured["setting"]["awp"]["balance"]) == ("auto", "auto")
    with Store(store) as opened:
        rules = {record.setting["awp"]["lam"] for record in opened.records() if record.setting["awp"]}
    assert rules == {"auto"}


def test_a_comparison_of_a_small_graph_imports_what_it_needs_alone(tmp_path: Path) -> None:
    nodes = [f"n{i},{'abc'[i % 3]},{i % 3}" for i in range(120)]
    (tmp_path / "g.labels.csv").write_text("\n".join(["node,label,x", *nodes]))
    (tmp_path / "g.csv").write_text("\n".join(["source,target", *(f"n{i},n{(i * 7 + 1) % 120}" for i in range(120))]))
    program = """
import gc, sys
from wtawp.cli import app
app(["compare", *sys.argv[1:], "--splits", "2", "--epochs", "2"], standalone_mode=False)
unneeded = ("sklearn", "scipy.stats", "matplotlib", "wtawp.experiments.report.html", "ray", "pooch")
print("imported:", *(name for name in unneeded if name in sys.modules))
print("permanent:", gc.get_freeze_count() > 100_000, "collected:", gc.isenabled())
"""
    command = [sys.executable, "-c", program, str(tmp_path / "g.csv"), "--store", str(tmp_path / "s.sqlite")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "runs trained, 0 known before, 0 failed" in done.stderr
    assert done.stdout.splitlines()[-2:] == ["imported:", "permanent: True collected: True"]
