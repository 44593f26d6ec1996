"""What tests of the command line share: a command, run in this process."""

from click.testing import Result
from typer.testing import CliRunner

from wtawp.cli import app

RUN = CliRunner()


def invoke(*arguments: object, code: int = 0) -> str:
    """Run a command and return what it printed, on one line; with --json, its standard output alone."""
    result: Result = RUN.invoke(app, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return " ".join((result.stdout if "--json" in arguments else result.output).split())
