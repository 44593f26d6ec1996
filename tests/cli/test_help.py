"""Every command explains itself: its help shows calls that the command accepts."""

import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from wtawp.cli import app
from wtawp.cli.shared import StrictCommand

RUN = CliRunner()
PRINTS_NO_TABLE = {"data get", "results export", "results import", "results prune"}
ON_PURPOSE = {"scale", "device"}  # of plans and of directions; where to train, and of which device records are


def commands(group: Any, *path: str) -> Iterator[tuple[str, Any]]:
    """Every command with its name, such as "data list"; of which class it is, depends on the version of typer."""
    if hasattr(group, "commands"):
        for name, command in group.commands.items():
            yield from commands(command, *path, name)
    else:
        yield " ".join(path), group


COMMANDS = dict(commands(get_command(app)))


def type_name(annotation: Any) -> str:
    """The type of an option's values, whether or not there is a default."""
    kind = get_args(annotation)[0]
    values = get_args(kind) if type(None) in get_args(kind) else (kind,)
    return str([each for each in values if each is not type(None)])


def examples_in(command: Any) -> list[list[str]]:
    """The words of each call at the end of a command's help."""
    return [shlex.split(line) for line in re.findall(r"^\$ (.*)$", command.epilog or "", re.MULTILINE)]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_shows_calls_that_the_command_accepts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = COMMANDS[name]
    calls = examples_in(command)
    assert calls
    for call in calls:
        words = name.split()
        assert call[: 1 + len(words)] == ["wtawp", *words]
        assert len(" ".join(call)) <= 76, "it would be wrapped"
        command.make_context(name, call[1 + len(words) :])  # parses and checks the options, runs nothing
    shown = RUN.invoke(app, [*name.split(), "--help"])
    assert shown.exit_code == 0
    assert " ".join(calls[0]) in " ".join(shown.output.split())


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - PRINTS_NO_TABLE))
def test_what_is_printed_as_a_table_can_be_had_as_json(name: str) -> None:
    assert "--json" in {option for parameter in COMMANDS[name].params for option in parameter.opts}


def test_an_option_has_one_type_in_all_commands() -> None:
    kinds: dict[str, set[str]] = {}
    for command in COMMANDS.values():
        for parameter in inspect.signature(command.callback).parameters.values():
            if get_origin(parameter.annotation) is Annotated:
                kinds.setdefault(parameter.name, set()).add(type_name(parameter.annotation))
    several = {option: found for option, found in kinds.items() if len(found) > 1}
    assert several.keys() == ON_PURPOSE, several
    assert len(kinds) > 60


def test_a_default_that_a_command_changes_is_the_one_in_its_help() -> None:
    for name, default in (("certify", "0.5"), ("smoothness", "0.5"), ("train", "0.7")):
        shown = " ".join(RUN.invoke(app, [name, "--help"]).output.replace("│", " ").split())
        lam = shown[shown.index("--lam") :]
        assert re.search(r"\[default: \(?([0-9.]+)", lam).group(1) == default  # type: ignore[union-attr]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_refuses_options_that_are_given_twice(name: str) -> None:
    assert isinstance(COMMANDS[name], StrictCommand)
