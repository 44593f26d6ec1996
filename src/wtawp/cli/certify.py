"""`wtawp certify`: the flips that provably do not change predictions, with and without WT-AWP."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wtawp.base import write_atomic
from wtawp.cli.options import Fresh, Json, Plain, StorePath, Tf32, TimeLimit, Workers, as_bad_parameter
from wtawp.cli.shared import app, example, stderr_console
from wtawp.cli.sweeps import make_engine, reports_of, sweep
from wtawp.cli.training_options import Training, takes
from wtawp.graphs.composed_names import short_name

if TYPE_CHECKING:
    from wtawp.experiments.spec import Plan

On = Annotated[
    list[str],
    typer.Option("--on", help="What is flipped: features or edges; may be repeated for one certificate of each."),
]
PAdd = Annotated[float | None, typer.Option(help="Probability that the noise adds one.", show_default="the paper's")]
PDel = Annotated[float | None, typer.Option(help="Probability that the noise deletes one.", show_default="the paper's")]


@app.command(epilog=example("wtawp certify cora --on edges --samples 1000"))
@takes(Training, lam="0.5")
def certify(
    training: Training,
    *,
    on: On = ["features"],  # noqa: B006, typer copies it
    p_add: PAdd = None,
    p_del: PDel = None,
    samples: Annotated[int, typer.Option(min=1, help="Noisy copies of the graph that vote.")] = 10_000,
    alpha: Annotated[float, typer.Option(help="Probability that the guarantee of a node is wrong.")] = 0.01,
    min_confidence: Annotated[
        float, typer.Option(min=0, max=1, help="Count only votes whose most likely class has this probability or more.")
    ] = 0.0,
    together: Annotated[
        bool,
        typer.Option("--collective", help="Also count the nodes that withstand one attack on all of them together."),
    ] = False,
    hops: Annotated[
        int | None,
        typer.Option(min=0, help="How far the model reaches, for --collective.", show_default="as the model states it"),
    ] = None,
    under_noise: Annotated[bool, typer.Option("--train-under-noise", help="Train under the same noise.")] = False,
    plain: Plain = False,
    splits: Annotated[
        int | None,
        typer.Option(min=1, help="Number of splits, or of folds, paired with and without WT-AWP.", show_default="1"),
    ] = None,
    inits: Annotated[
        int | None, typer.Option(min=1, help="Number of initialisations of each split.", show_default="1")
    ] = None,
    tf32: Tf32 = False,
    workers: Workers = None,
    time_limit: TimeLimit = None,
    fresh: Fresh = False,
    store: StorePath = None,
    out: Annotated[Path | None, typer.Option(help="Write the figure as SVG and PNG to this folder.")] = None,
    as_json: Json = False,
) -> None:
    """Certify a smoothed model: certified accuracy over the numbers of additions and deletions.

    Votes are stored: a later call with more samples adds to them.
    """
    from wtawp.experiments.plans.robustness import certificate_plan, certifying, certifying_together, noise_of

    with as_bad_parameter():
        if len(set(on)) > 1 and (p_add, p_del) != (None, None):
            raise ValueError("features and edges need different noise; use --p-add and --p-del with a single --on")
        noise = {"p_add": p_add, "p_del": p_del}
        certificates = [
            certifying(part, samples, **noise, alpha=alpha, min_confidence=min_confidence) for part in dict.fromkeys(on)
        ]
        if hops is not None and not together:
            raise ValueError("--hops is for --collective, which was not asked for")
        collective = [certifying_together(certificate, hops=hops) for certificate in certificates] if together else []
        if under_noise and len(certificates) > 1:
            raise ValueError("--train-under-noise takes a single --on: a training has one kind of noise")
    rule, num_splits, num_inits = training.sizes(splits, inits, (1, 1))
    base = training.setting(rule, noise=noise_of(certificates[0]) if under_noise else None)
    awp = None if plain else training.awp()
    with as_bad_parameter():
        plan = certificate_plan(base, certificates, awp=awp, splits=num_splits, inits=num_inits, together=collective)
    engine = make_engine("local", workers, training.device, time_limit)
    sweep([plan], store, training.device, tf32, engine, as_json, fresh=fresh)
    if out is not None:
        data, model = short_name(training.dataset), training.model.rpartition(":")[2]
        suffix = "-trained-under-noise" * under_noise + f"-confidence-{min_confidence:g}" * bool(min_confidence)
        _write_figures(plan, store, out, f"{data}-{model}-{'-'.join(dict.fromkeys(on))}{suffix}", together=together)


def _write_figures(plan: "Plan", store: Path | None, out: Path, name: str, *, together: bool) -> None:
    """Write the figures of the plan as SVG and PNG to a folder."""
    from wtawp.experiments.report.measures.certificate import certified_accuracy
    from wtawp.experiments.report.measures.collective import certified_together
    from wtawp.experiments.store import Store

    out.mkdir(parents=True, exist_ok=True)
    with Store(store, create=False) as opened:
        (report,) = reports_of([plan], opened)
    figures = {"certified": certified_accuracy, **({"collective": certified_together} if together else {})}
    for kind, draw in figures.items():
        file = f"{kind}-{name}"
        write_atomic(out / f"{file}.svg", draw(report, png=out / f"{file}.png").encode())
        stderr_console.print(f"Written: {(out / file).resolve()}.svg and .png", highlight=False, soft_wrap=True)
