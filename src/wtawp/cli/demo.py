"""`wtawp demo`: a demonstration that takes a minute, as tables and a page."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from wtawp.base import write_atomic
from wtawp.cli.options import check_outputs
from wtawp.cli.shared import app, console, errors_without_traceback, progress_bar


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="File of the HTML page.")] = Path("wtawp-demo.html"),
    splits: Annotated[int, typer.Option(min=2, help="Number of splits, paired with and without WT-AWP.")] = 5,
    epochs: Annotated[
        int, typer.Option(min=1, help="Epochs of training; WT-AWP needs more than plain training.")
    ] = 600,
    dataset: Annotated[
        str | None, typer.Option(help="Any node-level graph.", show_default="Cora if it is available")
    ] = None,
) -> None:
    """Demonstrate WT-AWP: the toy example of the paper, and a GCN with and without WT-AWP, as tables and a page."""
    check_outputs({"--out": out}, [dataset])
    from wtawp.experiments import demo_page, run_demo
    from wtawp.experiments.demo.page import demo_gain, demo_rows
    from wtawp.experiments.demo.runner import SHARPNESS_RHO, TOY_RHO, demo_dataset

    chosen, reason = (dataset, "as requested") if dataset is not None else demo_dataset()
    console.print(f"Comparing on {chosen}: {reason}.", highlight=False)
    with progress_bar("training") as progress:
        result = run_demo(dataset=chosen, num_splits=splits, epochs=epochs, progress=progress)
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
    with errors_without_traceback():
        write_atomic(out, demo_page(result).encode())
    console.print(f"The page with curves and landscapes: {out.resolve()}", highlight=False, soft_wrap=True)
