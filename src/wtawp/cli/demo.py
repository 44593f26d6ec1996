"""`wtawp demo`: a demonstration that takes a minute, as tables and a page."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from wtawp.base import DataError, matching_name, write_atomic
from wtawp.cli.completion import complete_dataset
from wtawp.cli.options import Json, check_outputs
from wtawp.cli.shared import app, console, errors_without_traceback, example, progress_bar, stderr_console
from wtawp.graphs.registry import dataset_names, level_of

if TYPE_CHECKING:
    from wtawp.experiments.demo.runner import Demo

PAGE = "wtawp-demo.html"
OnDataset = Annotated[
    str | None,
    typer.Argument(
        autocompletion=complete_dataset,
        help="The name or the file of a graph whose nodes are classified.",
        show_default="Cora if it is available",
    ),
]


@app.command(epilog=example("wtawp demo", "wtawp demo wine --epochs 100 --html wine.html"))
def demo(
    dataset: OnDataset = None,
    html: Annotated[Path | None, typer.Option(help="File of the HTML page.", show_default=PAGE)] = None,
    splits: Annotated[int, typer.Option(min=2, help="Number of splits, paired with and without WT-AWP.")] = 5,
    epochs: Annotated[
        int, typer.Option(min=1, help="Epochs of training; WT-AWP needs more than plain training.")
    ] = 600,
    out: Annotated[Path | None, typer.Option(hidden=True, help="The former name of --html.")] = None,
    named: Annotated[str | None, typer.Option("--dataset", hidden=True, help="The former form of DATASET.")] = None,
    as_json: Json = False,
) -> None:
    """Demonstrate WT-AWP: the toy example of the paper, and a GCN with and without WT-AWP, as tables and a page."""
    dataset, html = dataset or named, html or out or Path(PAGE)
    check_outputs({"--html": html}, [dataset])
    with errors_without_traceback():
        if dataset is not None and level_of(dataset) != "node":
            raise DataError(
                f"{dataset} is a list of graphs, and the demonstration classifies the nodes of one graph; choose "
                f"another data set, or use `wtawp compare {dataset}`"
            )
        from wtawp.experiments import demo_page, run_demo
        from wtawp.experiments.demo.runner import demo_dataset

        if dataset is None:
            chosen, reason = demo_dataset()
        else:
            chosen, reason = matching_name(dataset, dataset_names()) or dataset, "as requested"
        stderr_console.print(f"Comparing on {chosen}: {reason}.", highlight=False)
        with progress_bar("training", quiet=as_json) as progress:
            result = run_demo(dataset=chosen, num_splits=splits, epochs=epochs, progress=progress)
        _show(result, as_json)
        write_atomic(html, demo_page(result).encode())
    stderr_console.print(
        f"The page with curves and landscapes: {html.resolve()}", highlight=False, markup=False, soft_wrap=True
    )


def _show(result: "Demo", as_json: bool) -> None:
    """Print the tables and what follows from them, or their numbers as JSON."""
    from wtawp.experiments.demo.page import demo_gain, demo_rows
    from wtawp.experiments.demo.runner import PAIR, SHARPNESS_RHO, TOY_RHO

    if as_json:
        accuracies = {name: result.accuracies(name) for name in PAIR}
        toys = {panel.name: panel.fit.accuracy["test"] for panel in result.toys}
        gain = vars(result.gain)
        typer.echo(json.dumps({"dataset": result.dataset, "toys": toys, "accuracies": accuracies, "gain": gain}))
        return
    toys_table = Table("variant", "test accuracy", "last training loss", title=f"Toy: 200 points, rho = {TOY_RHO}")
    for panel in result.toys:
        losses = panel.fit.history["train_loss"]
        toys_table.add_row(panel.name, f"{panel.fit.accuracy['test']:.2f}", f"{losses[-1]:.3f}")
    num_splits = result.gain.num_pairs
    headers = ("method", "test accuracy, %", f"sharpness at rho {SHARPNESS_RHO}", "selected epochs")
    table = Table(*headers, title=f"{result.dataset}, {num_splits} paired splits")
    for row in demo_rows(result):
        table.add_row(*row)
    console.print(toys_table, table)
    console.print(f"Difference: {demo_gain(result)}.", highlight=False)
    console.print(result.verdict, highlight=False)
