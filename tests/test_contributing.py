"""The worked examples of CONTRIBUTING.md run as they are printed: a model, an attack and a measure of a user."""

import json
import re
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from wtawp.attacks import registry as attacks
from wtawp.cli import app
from wtawp.experiments.measures.shared import registry as measures
from wtawp.experiments.plans.toml_plan import read_plan
from wtawp.experiments.report import reporters
from wtawp.experiments.report.figures import figure_spec
from wtawp.experiments.results.summary import summarise
from wtawp.experiments.store.database import Store
from wtawp.models import registry as models

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
TOML = re.findall(r"```toml\n(.*?)```", TEXT, flags=re.DOTALL)
REGISTRIES = ((models, "_SPECS"), (attacks, "_SPECS"), (measures, "_REGISTERED"), (reporters, "_registered"))


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The three examples, run as one module; afterwards the registries are as before."""
    for registry, name in REGISTRIES:
        monkeypatch.setattr(registry, name, dict(getattr(registry, name)))
    module = ModuleType("contributing_example")
    monkeypatch.setitem(__import__("sys").modules, module.__name__, module)
    assert len(PYTHON) == 3
    for block in PYTHON:
        exec(compile(block, "CONTRIBUTING.md", "exec"), module.__dict__)  # our own text
    return module


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_model_is_trained_by_its_name_with_the_defaults_of_its_entry(example: ModuleType) -> None:
    trained = json.loads(invoke("train", "wine", "--model", "OneHop", "--epochs", "5", "--json"))
    assert trained["setting"]["weight_decay"] == 1e-3
    assert trained["setting"]["awp"]["layers"] == "all-but-last"
    assert isinstance(models.model_spec("OneHop").build(13, 3, {}, __import__("torch").Generator()), example.OneHop)
    assert 0 < trained["accuracy"]["test"] <= 1


@pytest.mark.usefixtures("example")
def test_the_attack_is_run_by_its_name(tmp_path: Path) -> None:
    store = str(tmp_path / "s.sqlite")
    shown = json.loads(invoke("attack", "wine", "--attack", "hubs", "--budget", "20", "--splits", "2", "--epochs", "5",
                              "--plain", "--workers", "1", "--store", store, "--json"))  # fmt: skip
    assert [cell["column"] for cell in shown[0]["cells"]] == ["no attack", "20 edges"]
    with Store(store, create=False) as opened:
        results = [record.measured[0] for record in opened.records() if record.measured]
    assert {(result["added"], result["removed"]) for result in results} == {(0, 20)}


def test_the_measure_is_run_from_a_plan_printed_as_a_table_and_drawn(example: ModuleType, tmp_path: Path) -> None:
    plan, store = tmp_path / "plan.toml", tmp_path / "s.sqlite"
    plan.write_text(TOML[0], encoding="utf-8")
    printed = invoke("run", str(plan), "--workers", "1", "--store", str(store))
    assert "Mean probability of the predicted class." in printed
    with Store(store, create=False) as opened:
        records = opened.records()
    values = [record.measured[0]["confidence"] for record in records if record.measured]
    assert len(values) == 2
    assert all(1 / 3 <= value <= 1 and round(value, 3) == value for value in values)
    report = summarise(read_plan(plan), records)
    assert example.means(report) == {"GCN": pytest.approx(sum(values) / 2)}
    assert figure_spec("confidence_bars").draw(report).startswith("<svg")


@pytest.mark.usefixtures("example")
def test_the_measure_s_options_are_checked_before_anything_is_trained(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(TOML[0].replace("digits = 3", "digits = 0"), encoding="utf-8")
    result = CliRunner().invoke(app, ["run", str(plan), "--store", str(tmp_path / "s.sqlite")])
    assert result.exit_code == 1
    assert "digits must be a whole number >= 1, got 0" in result.output
