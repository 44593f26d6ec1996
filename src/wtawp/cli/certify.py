"""`wtawp certify`: which flips does a model withstand for certain, with and without WT-AWP?"""

from pathlib import Path
from typing import Annotated

import typer

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
    Workers,
    values_are_parameters,
)
from wtawp.cli.shared import app, errors_in_plain_words, stderr_console
from wtawp.cli.sweeps import engine_named, reports_of, sweep

On = Annotated[list[str], typer.Option("--on", help="features or edges; given twice, a certificate of each.")]
Probability = Annotated[float | None, typer.Option(help="Noise: how likely.", show_default="the paper's")]


@app.command()
def certify(
    dataset: Dataset,
    on: On = ["features"],  # noqa: B006, typer copies it
    p_add: Probability = None,
    p_del: Probability = None,
    samples: Annotated[int, typer.Option(min=1, help="Noisy copies of the graph that vote.")] = 10_000,
    alpha: Annotated[float, typer.Option(help="How likely a node's guarantee may be wrong.")] = 0.01,
    model: Model = "GCN",
    rho: Rho = None,
    lam: Annotated[float | None, typer.Option(help="Weight of the perturbed loss.", show_default="0.5")] = None,
    under_noise: Annotated[bool, typer.Option("--train-under-noise", help="Train under that noise, too.")] = False,
    plain: Plain = False,
    splits: Annotated[int, typer.Option(min=1, help="Paired splits.")] = 1,
    inits: Annotated[int, typer.Option(min=1, help="Initialisations of each split.")] = 1,
    epochs: Epochs = 200,
    device: Device = "cpu",
    tf32: Tf32 = False,
    workers: Workers = None,
    store: StorePath = None,
    out: Annotated[Path | None, typer.Option(help="Write the figure as SVG and PNG into this folder.")] = None,
    as_json: Json = False,
) -> None:
    """Certify a smoothed model: heat maps and curves of certified accuracy over additions and deletions.

    Votes are kept: asking for more samples later adds to them.
    """
    with errors_in_plain_words():
        from wtawp.experiments.plans.defaults import default_awp
        from wtawp.experiments.plans.robustness import certificate_plan, certifying, noise_of
        from wtawp.experiments.spec import Setting

        with values_are_parameters():
            if len(set(on)) > 1 and (p_add, p_del) != (None, None):
                raise ValueError("features and edges need noise of their own; give --p-add and --p-del with one --on")
            wanted = [certifying(part, samples, p_add=p_add, p_del=p_del, alpha=alpha) for part in dict.fromkeys(on)]
            if under_noise and len(wanted) > 1:
                raise ValueError("--train-under-noise takes one --on: a training has one noise")
            noise = noise_of(wanted[0]) if under_noise else None
            base = Setting(dataset=dataset, model=model, epochs=epochs, noise=noise)
            awp = None if plain else default_awp(model, dataset, rho=rho, lam=lam, default_lam=0.5)
            plan = certificate_plan(base, wanted, awp=awp, splits=splits, inits=inits)
        sweep([plan], store, device, tf32, engine_named("local", workers, device), as_json)
        if out is not None:
            from wtawp.experiments.report.measures.certificate import certified_accuracy
            from wtawp.experiments.store.database import Store

            out.mkdir(parents=True, exist_ok=True)
            how = "-trained-under-noise" * under_noise
            name = f"certified-{Path(dataset).stem}-{model.rpartition(':')[2]}-{'-'.join(dict.fromkeys(on))}{how}"
            with Store(store, create=False) as opened:
                (report,) = reports_of([plan], opened)
            svg = certified_accuracy(report, png=out / f"{name}.png")
            (out / f"{name}.svg").write_text(svg, encoding="utf-8")
            stderr_console.print(f"Written: {(out / name).resolve()}.svg and .png", highlight=False, soft_wrap=True)
