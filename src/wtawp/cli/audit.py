"""`wtawp audit`: how accurate, robust, certain and flat a model is, with and without WT-AWP, on one page."""

import json
import shlex
import sys
from contextlib import suppress
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from wtawp.cli.options import Fresh, Json, StorePath, Workers, as_bad_parameter, check_outputs
from wtawp.cli.printing import escape, print_table
from wtawp.cli.shared import (
    StopSignal,
    announce,
    app,
    console,
    end_by_signal,
    example,
    import_torch_geometric,
    progress_bar,
    stderr_console,
    stop_signals_as_interrupts,
)
from wtawp.cli.training_options import Training, takes

ModelArgument = Annotated[str, typer.Argument(help="Your own model, as package.module:Class, or one of ours.")]
DatasetOption = Annotated[
    str, typer.Option(help="A name as `wtawp data list` shows it, or the path of your own graph.")
]
OF_TRAINING = ("rho", "lam", "layers", "balance", "lr", "weight_decay", "select_on", "average", "epochs", "splits")


@dataclass(frozen=True, kw_only=True)
class Audited(Training):
    """What is audited: the options of a training, with the model in the first place."""

    model: ModelArgument = field(default=MISSING)  # type: ignore[assignment]  # it has no default
    dataset: DatasetOption


@app.command(epilog=example("wtawp audit my_package.models:MyGNN --dataset cora --minutes 8"))
@takes(Audited)
def audit(
    audited: Audited,
    *,
    minutes: Annotated[
        float, typer.Option(help="About how long it may take; sizes follow from it and from measured speed.")
    ] = 8.0,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Audit the weights in this file (a state dict of the model); train nothing.")
    ] = None,
    splits: Annotated[
        int | None, typer.Option(min=2, help="Number of paired splits.", show_default="as many as fit, up to 10")
    ] = None,
    html: Annotated[Path, typer.Option(help="File of the HTML page.")] = Path("wtawp-audit.html"),
    workers: Workers = None,
    fresh: Fresh = False,
    store: StorePath = None,
    as_json: Json = False,
) -> None:
    """Audit a model: accuracy, attacks, poisoning, certificates and flatness, with and without WT-AWP, on one page.

    An audit that was stopped or killed continues with the same command.
    """
    from wtawp.experiments.store import default_path

    check_outputs({"--html": html}, [audited.dataset, checkpoint, store or default_path()])
    with as_bad_parameter():
        if not 0 < minutes < float("inf"):
            raise ValueError(f"--minutes must be a number above 0, got {minutes}")
        if unused := sorted(audited.user_set & set(OF_TRAINING)) if checkpoint is not None else []:
            raise ValueError(
                f"--{unused[0].replace('_', '-')} is about training, and with --checkpoint nothing is trained"
            )
    import_torch_geometric()
    from wtawp.experiments.audit.runner import run_audit, split_of_weights

    if checkpoint is None or audited.user_set & {"split", "train", "val"}:
        rule = audited.split_rule(folds=splits or 10)
    else:
        with as_bad_parameter("'--checkpoint'"):
            rule = split_of_weights(audited.dataset)
    base = audited.setting(rule)
    try:
        with stop_signals_as_interrupts(), progress_bar("trying measurements", quiet=as_json) as progress:
            result = run_audit(
                base, audited.awp(), minutes=minutes, splits=splits, checkpoint=checkpoint, html=html, store=store,
                workers=workers, device=audited.device, fresh=fresh, progress=progress, announce=announce,
                command=shlex.join(["wtawp", *sys.argv[1:]]),
            )  # fmt: skip
    except KeyboardInterrupt as stop:
        with suppress(OSError):  # the terminal may be gone
            stderr_console.print("Stopped. The same command continues from here.", highlight=False)
        if isinstance(stop, StopSignal):
            end_by_signal(stop.number)
        raise typer.Exit(130) from None
    if as_json:
        typer.echo(json.dumps(result.to_json()))
    else:
        for paragraph in result.summary:
            console.print(escape(paragraph) + "\n", highlight=False)
        for section in result.sections:
            if section.tables:
                print_table(section.section.title, section.tables[0])
        for what, why in result.left_out:
            console.print(escape(f"Not measured: {what}: {why}"), highlight=False)
    stderr_console.print(f"Written: {html.resolve()}", highlight=False, soft_wrap=True)
    if failures := [reason for section in result.sections for reason in section.failures]:
        stderr_console.print(
            f"Runs failed; the first with: {failures[0]}", style="red", highlight=False, markup=False, soft_wrap=True
        )
        raise typer.Exit(1)
