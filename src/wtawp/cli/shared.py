"""What all commands share: the app, the console, how errors and progress are shown."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from wtawp import __version__

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Adversarial weight perturbation for graph networks."
)
console = Console()
stderr_console = Console(stderr=True)  # errors and progress: what is on standard output can be read by machines


def _print_version(wanted: bool) -> None:
    if wanted:
        console.print(f"wtawp {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Hold the options that come before a command."""


@contextmanager
def errors_in_plain_words() -> Iterator[None]:
    """Our own errors say what to do; a traceback would bury that."""
    from wtawp.base import WtawpError  # here, because it loads torch

    try:
        yield
    except WtawpError as error:
        stderr_console.print(f"Error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(1) from error


@contextmanager
def progress_bar(what: str, *, quiet: bool = False) -> Iterator[Callable[[float, str], None]]:
    """A bar with the time left; what it yields is told the share done and what was done last."""
    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=stderr_console, disable=quiet) as bar:
        task = bar.add_task(what, total=1.0)
        yield lambda share, last: bar.update(task, completed=share, description=last[:44])
