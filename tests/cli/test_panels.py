import pytest
import typer
from typer.testing import CliRunner

from wtawp.cli import app
from wtawp.cli.panels import PANELS, arrange


def test_the_help_lists_every_command_in_its_panel_and_in_order() -> None:
    lines = CliRunner().invoke(app, ["--help"]).output.splitlines()
    shown: dict[str, list[str]] = {}
    panel = ""
    for line in lines:
        if line.startswith("╭"):
            panel = line.strip("╭─╮ ")
        elif line.startswith("│ ") and line[2:3].isalpha() and panel in PANELS:
            shown.setdefault(panel, []).append(line[2:].split()[0])
    assert {panel: tuple(names) for panel, names in shown.items()} == PANELS


def test_a_command_without_a_panel_is_noticed() -> None:
    other = typer.Typer()
    other.command("forgotten")(lambda: None)
    with pytest.raises(KeyError, match="forgotten"):
        arrange(other)
