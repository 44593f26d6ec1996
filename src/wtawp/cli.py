"""The command line: every command is a few lines over `experiments` or `graphs`."""

from collections.abc import Iterator
from contextlib import contextmanager
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
    splits: Annotated[int, typer.Option(min=2, help="Paired splits.")] = 5,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs; WT-AWP needs more than plain training.")] = 600,
    dataset: Annotated[str | None, typer.Option(help="Any node-level graph; Cora where it can be had.")] = None,
) -> None:
    """See it work: the paper's toy story, and a GCN with and without WT-AWP, as a table and a page."""
    from wtawp.experiments import demo_page, run_demo
    from wtawp.experiments.demo import SHARPNESS_RHO, TOY_RHO, demo_dataset
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
    chosen, why = (dataset, "as asked") if dataset is not None else demo_dataset()
    console.print(f"Comparing on {chosen}: {why}.", highlight=False)
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("training", total=1.0)
        result = run_demo(
            dataset=chosen,
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


data_app = typer.Typer(no_args_is_help=True, help="Data sets: what there is, where it is, what it is like.")
app.add_typer(data_app, name="data")
Names = Annotated[list[str] | None, typer.Argument(help="Names as `wtawp data list` shows them.", show_default=False)]


@contextmanager
def _errors_in_plain_words() -> Iterator[None]:
    """Our own errors say what to do; a traceback would bury that."""
    from wtawp.base import WtawpError  # here, because it loads torch

    try:
        yield
    except WtawpError as error:
        console.print(f"Error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(1) from error


@data_app.command("list")
def data_list() -> None:
    """List every data set, its size, and where its files are."""
    from wtawp.graphs import EMBEDDED, NAMES, PUBLISHED, describe, load, place_of

    table = Table("name", "classifies", "nodes", "edges", "classes", "where")
    with _errors_in_plain_words():
        for name in NAMES:
            about = describe(load(name)) if name in EMBEDDED else PUBLISHED[name]
            kind = PUBLISHED[name].kind if name in PUBLISHED else "node"
            sizes = (f"{size:,}" for size in (about.nodes, about.edges, about.classes))
            table.add_row(name, f"{kind}s", *sizes, place_of(name))
    console.print(table)


@data_app.command("get")
def data_get(names: Annotated[list[str], typer.Argument(help="Names as `wtawp data list` shows them.")]) -> None:
    """Fetch data sets that are not here yet, and verify those that are."""
    from wtawp.graphs import files_of, get

    with _errors_in_plain_words():
        for name in names:
            files_of(name)  # an unknown name is noticed before anything is fetched
        for name in names:
            paths = get(name)
            folder = f"in {paths[0].parent}" if paths else "comes with the package"
            console.print(f"{name}: {folder}", highlight=False, soft_wrap=True)


@data_app.command("check")
def data_check(names: Names = None) -> None:
    """Verify the sha256 of files that are here; of named data sets, every file must be."""
    from wtawp.graphs import PUBLISHED, files_of, is_intact, locate

    failed, table = False, Table("file", "where", "state")
    with _errors_in_plain_words():
        for file in (file for name in names or PUBLISHED for file in files_of(name)):
            place, path = locate(file)
            state = "missing" if place == "not here" else "ok" if is_intact(file, path) else "DAMAGED"
            failed |= state == "DAMAGED" or (state == "missing" and bool(names))
            if names or state != "missing":
                table.add_row(file.path, place, state)
    console.print(table if table.row_count else "No published file is here.")
    if failed:
        raise typer.Exit(1)


@data_app.command("info")
def data_info(name: Annotated[str, typer.Argument(help="A name, or the path of a graph of your own.")]) -> None:
    """Print what a data set is like; it is fetched if it is not here."""
    from wtawp.graphs import describe, load

    with _errors_in_plain_words():
        about = describe(load(name))
    table = Table(title=name, show_header=False)
    if about.homophily is None:
        table.add_row("graphs", f"{about.graphs:,}")
    table.add_row("nodes", f"{about.nodes:,}")
    table.add_row("undirected edges", f"{about.edges:,}")
    table.add_row("features", f"{about.features:,}")
    table.add_row("classes", f"{about.classes:,}")
    table.add_row("labelled", f"{about.labelled:,}")
    table.add_row("majority share", f"{about.majority:.4f}")
    table.add_row("mean degree", f"{about.mean_degree:.2f}")
    if about.homophily is not None:
        table.add_row("edge homophily", f"{about.homophily:.3f}")
    console.print(table)
