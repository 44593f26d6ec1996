"""The command line: every command is a few lines over `experiments`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from wtawp import __version__

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Adversarial weight perturbation for graph networks."
)
console = Console()


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


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("wtawp-demo.html"),
    splits: Annotated[int, typer.Option(min=2, help="Paired splits.")] = 3,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs; WT-AWP needs more than plain training.")] = 500,
) -> None:
    """See it work: the paper's toy story, and a GCN with and without WT-AWP, as a table and a page."""
    from wtawp.experiments import demo_page, run_demo
    from wtawp.experiments.demo import SHARPNESS_RHO, TOY_RHO
    from wtawp.experiments.page import demo_gain, demo_rows

    if not out.parent.is_dir():
        raise typer.BadParameter(f"{out.parent} is not a folder; make it first or choose another --out")
    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("training", total=1.0)
        result = run_demo(
            num_splits=splits,
            epochs=epochs,
            progress=lambda share, what: bar.update(task, completed=share, description=what),
        )
    toys = Table("variant", "test accuracy", "last training loss", title=f"Toy: 200 points, rho = {TOY_RHO}")
    for panel in result.toys:
        toys.add_row(panel.name, f"{panel.fit.accuracy['test']:.2f}", f"{panel.fit.history['train_loss'][-1]:.3f}")
    table = Table(
        "method",
        "test accuracy, %",
        f"sharpness at rho {SHARPNESS_RHO}",
        "selected epochs",
        title=f"{result.dataset}, {splits} paired splits",
    )
    for row in demo_rows(result):
        table.add_row(*row)
    console.print(toys, table)
    console.print(f"Difference: {demo_gain(result)}.", highlight=False)
    console.print(result.verdict, highlight=False)
    out.write_text(demo_page(result), encoding="utf-8")
    console.print(f"The page with curves and landscapes: {out.resolve()}", highlight=False, soft_wrap=True)
