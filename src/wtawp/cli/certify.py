"""`wtawp certify`: which flips does a model withstand for certain, with and without WT-AWP?"""

from pathlib import Path
from typing import Annotated

import typer

from wtawp.cli.shared import app, errors_in_plain_words, stderr_console
from wtawp.cli.sweeps import (
    Dataset,
    Device,
    Epochs,
    Json,
    Lam,
    Model,
    Rho,
    StorePath,
    Tf32,
    Workers,
    engine_named,
    reports_of,
    sweep,
    values_are_parameters,
)  # fmt: skip

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
    rho: Rho = 1.0,
    lam: Lam = 0.5,
    under_noise: Annotated[bool, typer.Option("--train-under-noise", help="Train under that noise, too.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Only without WT-AWP.")] = False,
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
        from wtawp.core import AwpConfig
        from wtawp.experiments.plans.robustness import certificate_plan, certifying, noise_of
        from wtawp.experiments.spec.plan import Setting

        with values_are_parameters():
            if len(set(on)) > 1 and (p_add, p_del) != (None, None):
                raise ValueError("features and edges need noise of their own; give --p-add and --p-del with one --on")
            wanted = [certifying(part, samples, p_add=p_add, p_del=p_del, alpha=alpha) for part in dict.fromkeys(on)]
            if under_noise and len(wanted) > 1:
                raise ValueError("--train-under-noise takes one --on: a training has one noise")
            base = Setting(
                dataset=dataset, model=model, epochs=epochs, weight_decay=0.0 if model == "RGCN" else 5e-4,
                noise=noise_of(wanted[0]) if under_noise else None,
            )  # fmt: skip
            awp = None if plain or model == "RGCN" else AwpConfig(rho=rho, lam=lam)
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
