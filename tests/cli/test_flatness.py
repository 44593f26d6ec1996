import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from wtawp.cli import app

RUN = CliRunner()
SHORT = ("wine", "--epochs", 2)


def invoke(*arguments: object, code: int = 0) -> str:
    result: Result = RUN.invoke(app, [*map(str, arguments)])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return " ".join((result.stdout if "--json" in arguments else result.output).split())


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("landscape", ("--points", 5, "--directions", 2)),
        ("landscape", ("--points", 5, "--plane")),
        ("smoothness", ("--samples", 2)),
        ("sharpness", ("--points", 2, "--steps", 2, "--top", 1)),
        ("bound", ("--at", 0.1)),
    ],
)
def test_each_command_shows_a_table_and_writes_figure_and_numbers(
    command: str, options: tuple[object, ...], tmp_path: Path
) -> None:
    shown = invoke(command, *SHORT, *options, "--out", tmp_path)
    assert f"{command} of GCN on wine" in shown
    assert "GCN+WT-AWP" in shown
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        f"{command}-wine-GCN.{kind}" for kind in ("json", "png", "svg")
    ]
    told = json.loads(invoke(command, *SHORT, *options, "--plain", "--json"))
    assert "GCN+WT-AWP" not in json.dumps(told)


def test_a_checkpoint_of_ones_own_is_looked_at_and_of_another_architecture_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    invoke("train", *SHORT, "--save", path)
    shown = invoke("sharpness", "wine", "--checkpoint", path, "--points", 1, "--top", 1)
    assert "GCN+WT-AWP" not in shown
    assert "of another architecture than GAT" in invoke("bound", "wine", "--model", "GAT", "--checkpoint", path, code=1)
    assert "there is no checkpoint" in invoke("bound", "wine", "--checkpoint", tmp_path / "no.pt", code=1)


def test_bad_values_are_refused_in_plain_words() -> None:
    assert "reach finite and > 0" in invoke("landscape", *SHORT, "--reach", 0, code=2)
    assert "lam must lie in" in invoke("sharpness", "wine", "--lam", 2, code=2)
    assert "delta must lie in" in invoke("bound", *SHORT, "--delta", 2, code=2)
