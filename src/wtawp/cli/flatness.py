"""`wtawp landscape | smoothness | sharpness | bound`: how flat is a model in its weights, how smooth in its inputs?

Of a model trained here, with and without WT-AWP, or of a checkpoint of one's own.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from wtawp.cli.printing import print_table
from wtawp.cli.shared import app, asides, errors_in_plain_words, progress_bar
from wtawp.cli.sweeps import Dataset, Device, Epochs, Json, Lam, Model, Rho, values_are_parameters

if TYPE_CHECKING:
    from wtawp.experiments.look import Look, Looked

Checkpoint = Annotated[
    Path | None, typer.Option(help="Look at these weights (a state dict of --model) and train nothing.")
]
Plain = Annotated[bool, typer.Option("--plain", help="Only without WT-AWP.")]
SplitSeed = Annotated[int, typer.Option("--split", help="Seed of the split.")]
Init = Annotated[int, typer.Option(help="Seed of the initial weights and of dropout.")]
Out = Annotated[Path | None, typer.Option(help="Write the figure (SVG, PNG) and the numbers (JSON) into this folder.")]
Scale = Annotated[
    Literal["unit", "layer", "filter"], typer.Option(help="Length of directions: 1, or that of each layer or filter.")
]


@app.command()
def landscape(
    dataset: Dataset,
    model: Model = "GCN",
    scale: Scale = "layer",
    reach: Annotated[float, typer.Option(help="Largest distance.")] = 1.0,
    points: Annotated[int, typer.Option(min=3, help="Along a line, or a side of the plane.")] = 51,
    directions: Annotated[int, typer.Option(min=1, help="Random lines.")] = 10,
    plane: Annotated[bool, typer.Option("--plane", help="On the plane of two random directions.")] = False,
    adversarial: Annotated[bool, typer.Option("--adversarial", help="Along the adversarial direction.")] = False,
    checkpoint: Checkpoint = None,
    rho: Rho = 1.0,
    lam: Lam = 0.7,
    plain: Plain = False,
    split: SplitSeed = 0,
    init: Init = 0,
    epochs: Epochs = 200,
    device: Device = "cpu",
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Draw the training loss around a model, along random lines or on a plane through its weights."""
    with errors_in_plain_words():
        from wtawp.experiments import look

        looked = _looked(dataset, model, checkpoint, rho, lam, plain, split, init, epochs, device, as_json)
        with values_are_parameters():
            found = look.landscape(looked, scale=scale, reach=reach, points=points, directions=directions, plane=plane,
                                   adversarial=adversarial)  # fmt: skip
        _tell("landscape", dataset, model, found, out, as_json)


@app.command()
def smoothness(
    dataset: Dataset,
    model: Model = "GCN",
    noise: Annotated[float, typer.Option(help="Standard deviation of the noise, or its length as a whole.")] = 0.0005,
    samples: Annotated[int, typer.Option(min=1, help="Noisy inputs.")] = 100,
    checkpoint: Checkpoint = None,
    rho: Rho = 1.0,
    lam: Lam = 0.5,
    plain: Plain = False,
    split: SplitSeed = 0,
    init: Init = 0,
    epochs: Epochs = 200,
    device: Device = "cpu",
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Measure the norm of the loss gradient by graph and features at noisy inputs, in both definitions."""
    with errors_in_plain_words():
        from wtawp.experiments import look

        looked = _looked(dataset, model, checkpoint, rho, lam, plain, split, init, epochs, device, as_json)
        with values_are_parameters():
            found = look.smoothness(looked, noise=noise, samples=samples)
        _tell("smoothness", dataset, model, found, out, as_json)


@app.command()
def sharpness(
    dataset: Dataset,
    model: Model = "GCN",
    radius: Annotated[float, typer.Option(help="The largest radius at which to look.")] = 0.2,
    points: Annotated[int, typer.Option(min=1, help="Radii up to it.")] = 8,
    steps: Annotated[int, typer.Option(min=1, help="Of the climb.")] = 10,
    top: Annotated[int, typer.Option(min=1, help="Eigenvalues of the Hessian.")] = 5,
    checkpoint: Checkpoint = None,
    rho: Rho = 1.0,
    lam: Lam = 0.7,
    plain: Plain = False,
    split: SplitSeed = 0,
    init: Init = 0,
    epochs: Epochs = 200,
    device: Device = "cpu",
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Measure how far the training loss rises near a model, and the curvature of that loss."""
    with errors_in_plain_words():
        from wtawp.experiments import look

        looked = _looked(dataset, model, checkpoint, rho, lam, plain, split, init, epochs, device, as_json)
        with values_are_parameters():
            found = look.sharpness(looked, rho=radius, points=points, steps=steps, top=top)
        _tell("sharpness", dataset, model, found, out, as_json)


@app.command()
def bound(
    dataset: Dataset,
    model: Model = "GCN",
    at: Annotated[list[float], typer.Option("--at", help="Radius, relative to each layer; may be repeated.")] = [  # noqa: B006, typer copies it
        0.01,
        0.03,
        0.1,
        0.3,
        1.0,
        3.0,
    ],
    delta: Annotated[float, typer.Option(help="How likely the bound may be wrong.")] = 0.05,
    epsilon: Annotated[float, typer.Option(help="epsilon_all of Theorem 1.")] = 1.0,
    constant: Annotated[float, typer.Option(help="The factor hidden in its Theta.")] = 1.0,
    checkpoint: Checkpoint = None,
    rho: Rho = 1.0,
    lam: Lam = 0.7,
    plain: Plain = False,
    split: SplitSeed = 0,
    init: Init = 0,
    epochs: Epochs = 200,
    device: Device = "cpu",
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Evaluate the generalisation bound of Theorem 1 term by term, beside the true gap."""
    with errors_in_plain_words():
        from wtawp.experiments import look

        looked = _looked(dataset, model, checkpoint, rho, lam, plain, split, init, epochs, device, as_json)
        with values_are_parameters():
            found = look.bound(looked, rhos=sorted(set(at)), delta=delta, epsilon=epsilon, constant=constant)
        _tell("bound", dataset, model, found, out, as_json)


def _looked(
    dataset: str, model: str, checkpoint: Path | None, rho: float, lam: float, plain: bool, split: int, init: int,
    epochs: int, device: str, quiet: bool,
) -> "Looked":  # fmt: skip
    from wtawp.core import AwpConfig
    from wtawp.experiments.look import look_at
    from wtawp.experiments.plan import Run, Setting

    name = model.rpartition(":")[2]
    with values_are_parameters():
        decay = 0.0 if model == "RGCN" else 5e-4
        rows: dict[str, AwpConfig | None] = {name: None}
        if checkpoint is None and not plain and model != "RGCN":
            rows[f"{name}+WT-AWP"] = AwpConfig(rho=rho, lam=lam)
        runs = {
            row: Run(Setting(dataset=dataset, model=model, awp=awp, epochs=epochs, weight_decay=decay), split, init)
            for row, awp in rows.items()
        }
    with progress_bar("training", quiet=quiet) as progress:
        return look_at(runs, checkpoint=checkpoint, device=device, progress=progress)


def _tell(what: str, dataset: str, model: str, found: "Look", out: Path | None, as_json: bool) -> None:
    if as_json:
        typer.echo(found.to_json())
    else:
        print_table(f"{what} of {model} on {dataset}", found.table)
    if out is not None:
        name = f"{what}-{Path(dataset).stem}-{model.rpartition(':')[2]}"
        paths = found.write(out, name)
        asides.print(f"Written: {paths[0].resolve()}, .png and .json", highlight=False, soft_wrap=True)
