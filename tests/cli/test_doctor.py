import json
import random
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from wtawp import __version__
from wtawp.cli import app
from wtawp.cli import doctor as module
from wtawp.cli.doctor import parse_requirement
from wtawp.experiments.store import Store

RUN = CliRunner()
DECLARED = ["torch>=2.6", "jinja2>=3.1", "numba>=0.60; extra == 'fast'", 'ray>=2.40; extra == "cluster"',
            "furo; extra == 'docs'"]  # fmt: skip


def examine(code: int = 0) -> dict[str, dict[str, Any]]:
    """The findings by their names."""
    result = RUN.invoke(app, ["doctor", "--json"])
    assert result.exit_code == code, result.output
    document = json.loads(result.stdout)
    assert document["ok"] == (code == 0)
    return {each["name"]: each for each in document["findings"]}


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The versions of the packages that seem to be installed."""
    versions = {"torch": "2.6.0+cpu", "jinja2": "3.10", "numba": "0.60.0rc1"}

    def version(name: str) -> str:
        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(module, "requires", lambda _: DECLARED)
    monkeypatch.setattr(module, "version", version)
    return versions


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("scikit-learn>=1.4", ("scikit-learn", "1.4", None)),
        ("furo; extra == 'docs'", ("furo", "", "docs")),
        ('ray>=2.40; extra == "cluster"', ("ray", "2.40", "cluster")),
    ],
)
def test_requirements_are_read(text: str, parts: tuple[str, str, str | None]) -> None:
    assert parse_requirement(text) == parts


def test_a_healthy_machine_has_absences_with_remedies_and_no_problem(empty_home: Path) -> None:
    findings = examine()
    assert findings["wtawp"]["detail"] == __version__
    assert {name: findings[name]["state"] for name in ("python", "torch", "jinja2", "numba", "ray", "cpu", "home")} == {
        "python": "ok", "torch": "ok", "jinja2": "ok", "numba": "ok", "ray": "absent", "cpu": "ok", "home": "ok",
    }  # fmt: skip
    assert findings["ray"]["remedy"] == "for --engine ray: pip install 'wtawp[cluster]'"
    assert "furo" not in findings
    assert str(empty_home) in findings["home"]["detail"]
    assert findings["store"]["state"] == "absent"
    assert not empty_home.exists(), "looking changes nothing"
    assert "karate" in findings["data sets"]["detail"]
    assert "cora" in findings["not here"]["detail"]
    assert "wtawp data get" in findings["not here"]["remedy"]


@pytest.mark.usefixtures("empty_home")
def test_what_every_command_needs_is_a_problem_if_it_is_missing_or_old(installed: dict[str, str]) -> None:
    del installed["jinja2"]
    installed["torch"], installed["numba"] = "2.5.1", "0.9"
    findings = examine(code=1)
    remedies = {name: findings[name]["remedy"] for name in ("jinja2", "torch", "numba")}
    assert remedies == {"jinja2": "pip install 'jinja2>=3.1'", "torch": "pip install 'torch>=2.6'",
                        "numba": "pip install 'numba>=0.60'"}  # fmt: skip
    assert findings["torch"]["detail"] == "2.5.1, which is older than 2.6"


@pytest.mark.usefixtures("empty_home")
def test_a_folder_that_is_none_is_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("WTAWP_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setenv("WTAWP_HOME", str(tmp_path / "file"))
    findings = examine(code=1)
    assert findings["data root"]["remedy"] == "make the folder that WTAWP_DATA names, or unset the variable"
    assert findings["home"]["remedy"] == "set WTAWP_HOME to a folder in which you may write"


def test_a_store_that_cannot_be_read_is_a_problem(empty_home: Path) -> None:
    store = empty_home / "results.sqlite"
    with Store(store):
        pass
    assert examine()["store"]["state"] == "ok"
    store.write_bytes(random.Random(0).randbytes(20_000))
    finding = examine(code=1)["store"]
    assert finding["state"] == "problem"
    assert f"cannot read {store}" in finding["detail"]
    assert "wtawp results export saved.jsonl --salvage" in finding["remedy"]
    assert [path.name for path in empty_home.iterdir()] == ["results.sqlite"], "looking changes nothing"


@pytest.mark.usefixtures("empty_home")
def test_people_get_a_table_and_below_it_what_to_do() -> None:
    result = RUN.invoke(app, ["doctor"])
    assert result.exit_code == 0, result.output
    shown = " ".join(result.output.split())
    assert "- for --engine ray: pip install 'wtawp[cluster]'" in shown
    assert shown.endswith("Everything that the commands need is there.")


def test_a_package_that_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> list[str]:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(module, "requires", requires)
    assert "not installed" in examine()["packages"]["detail"]
