"""`wtawp train`: train one model and print its accuracies."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from wtawp.cli.options import Json, check_outputs
from wtawp.cli.shared import announce, app, console, example, import_torch_geometric, progress_bar
from wtawp.cli.training_options import Init, SplitSeed, Training, takes


@app.command(epilog=example("wtawp train cora --model GAT", "wtawp train wine --plain --epochs 50 --save weights.pt"))
@takes(Training)
def train(
    training: Training,
    *,
    plain: Annotated[bool, typer.Option("--plain", help="Train without WT-AWP.")] = False,
    split_seed: SplitSeed = 0,
    init: Init = 0,
    save: Annotated[
        Path | None, typer.Option(help="Write the weights of the selected epoch to this file (a state dict).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train one model and print its accuracies and losses."""
    check_outputs({"--save": save}, [training.dataset])
    awp = None if plain else training.awp()
    if awp is None and not plain:
        raise typer.BadParameter(f"the weights of {training.model} cannot be perturbed; train it with --plain")
    import_torch_geometric()
    from wtawp.experiments.execution.building import describe_split
    from wtawp.experiments.execution.training import train_one
    from wtawp.experiments.spec import Run

    run = Run(training.setting(training.split_rule(), awp=awp), split_seed, init)
    announce(describe_split(run.setting, split_seed))
    with progress_bar("training", quiet=as_json) as progress:
        fit = train_one(run, device=training.device, save=save, progress=progress)
    if as_json:
        measured = {"epoch": fit.epoch, "accuracy": fit.accuracy, "loss": fit.loss}
        typer.echo(json.dumps({"setting": run.setting.content, **measured}))
        return
    table = Table("part", "accuracy, %", "loss", title=f"{run.setting}, epoch {fit.epoch} of {training.epochs}")
    for part in ("train", "val", "test"):
        table.add_row(part, f"{100 * fit.accuracy[part]:.2f}", f"{fit.loss[part]:.3f}")
    console.print(table)
