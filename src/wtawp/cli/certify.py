"""`wtawp certify`: the flips that provably do not change predictions, with and without WT-AWP."""

from pathlib import Path
from typing import Annotated

import typer

from wtawp.base import write_atomic
from wtawp.cli.options import (
    Dataset,
    Device,
    Epochs,
    Json,
    Model,
    Plain,
    Rho,
    StorePath,
    Tf32,
    TimeLimit,
    Workers,
    as_bad_parameter,
)
from wtawp.cli.shared import app, errors_without_traceback, stderr_console
from wtawp.cli.sweeps import make_engine, reports_of, sweep

On = Annotated[
    list[str],
    typer.Option("--on", help="What is flipped: features or edges; may be repeated for one certificate of each."),
]
PAdd = Annotated[float | None, typer.Option(help="Probability that the noise adds one.", show_default="the paper's")]
PDel = Annotated[float | None, typer.Option(help="Probability that the noise deletes one.", show_default="the paper's")]


@app.command()
def certify(
    dataset: Dataset,
    on: On = ["features"],  # noqa: B006, typer copies it
    p_add: PAdd = None,
    p_del: PDel = None,
    samples: Annotated[int, typer.Option(min=1, help="Noisy copies of the graph that vote.")] = 10_000,
    alpha: Annotated[float, typer.Option(help="Probability that the guarantee of a node is wrong.")] = 0.01,
    model: Model = "GCN",
    rho: Rho = None,
    lam: Annotated[float | None, typer.Option(help="Weight of the perturbed loss.", show_default="0.5")] = None,
    under_noise: Annotated[bool, typer.Option("--train-under-noise", help="Train under the same noise.")] = False,
    plain: Plain = False,
    splits: Annotated[int, typer.Option(min=1, help="Number of splits, paired with and without WT-AWP.")] = 1,
    inits: Annotated[int, typer.Option(min=1, help="Number of initialisations of each split.")] = 1,
    epochs: Epochs = 200,
    device: Device = "cpu",
    tf32: Tf32 = False,
    workers: Workers = None,
    time_limit: TimeLimit = None,
    store: StorePath = None,
    out: Annotated[Path | None, typer.Option(help="Write the figure as SVG and PNG to this folder.")] = None,
    as_json: Json = False,
) -> None:
    """Certify a smoothed model: certified accuracy over the numbers of additions and deletions.

    Votes are stored: a later call with more samples adds to them.
    """
    with errors_without_traceback():
        from wtawp.experiments.plans.defaults import default_awp
        from wtawp.experiments.plans.robustness import certificate_plan, certifying, noise_of
        from wtawp.experiments.spec import Setting

        with as_bad_parameter():
            if len(set(on)) > 1 and (p_add, p_del) != (None, None):
                raise ValueError("features and edges need different noise; use --p-add and --p-del with a single --on")
            certificates = [
                certifying(part, samples, p_add=p_add, p_del=p_del, alpha=alpha) for part in dict.fromkeys(on)
            ]
            if under_noise and len(certificates) > 1:
                raise ValueError("--train-under-noise takes a single --on: a training has one kind of noise")
            noise = noise_of(certificates[0]) if under_noise else None
            base = Setting(dataset=dataset, model=model, epochs=epochs, noise=noise)
            awp = None if plain else default_awp(model, dataset, rho=rho, lam=lam, default_lam=0.5)
            plan = certificate_plan(base, certificates, awp=awp, splits=splits, inits=inits)
        sweep([plan], store, device, tf32, make_engine("local", workers, device, time_limit), as_json)
        if out is not None:
            from wtawp.experiments.report.measures.certificate import certified_accuracy
            from wtawp.experiments.store import Store

            out.mkdir(parents=True, exist_ok=True)
            suffix = "-trained-under-noise" * under_noise
            name = f"certified-{Path(dataset).stem}-{model.rpartition(':')[2]}-{'-'.join(dict.fromkeys(on))}{suffix}"
            with Store(store, create=False) as opened:
                (report,) = reports_of([plan], opened)
            svg = certified_accuracy(report, png=out / f"{name}.png")
            write_atomic(out / f"{name}.svg", svg.encode())
            stderr_console.print(f"Written: {(out / name).resolve()}.svg and .png", highlight=False, soft_wrap=True)
