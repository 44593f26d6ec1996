from typer.testing import CliRunner

from wtawp import __version__
from wtawp.cli import app

RUN = CliRunner()


def test_version_is_printed() -> None:
    result = RUN.invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output.strip() == f"wtawp {__version__}"


def test_without_a_command_help_is_shown() -> None:
    assert "demo" in RUN.invoke(app, []).output
