"""`wtawp attack`: the accuracy of a model under attack, with and without WT-AWP, at several budgets."""

from pathlib import Path
from typing import Annotated

import typer

from wtawp.attacks.registry import attack_names
from wtawp.base import write_atomic
from wtawp.cli.options import (
    Dataset,
    Device,
    Epochs,
    Json,
    Lam,
    Model,
    Plain,
    Rho,
    StorePath,
    Tf32,
    TimeLimit,
    Workers,
    as_bad_parameter,
    refuse_unwritable,
)
from wtawp.cli.shared import app, errors_without_traceback, stderr_console
from wtawp.cli.sweeps import make_engine, reports_of, sweep

ONLY_POISONING = [name for name in attack_names("poisoning") if name not in attack_names("evasion")]
Attack = Annotated[
    str,
    typer.Option(
        "--attack",
        help=f"One of {', '.join(attack_names('evasion'))}; with --poison also {', '.join(ONLY_POISONING)}; or your "
        "own, as package.module:function.",
    ),
]
Budgets = Annotated[
    list[str],
    typer.Option(
        "--budget", help="Flips allowed: a share of the edges (0.05) or a number of edges (253); may be repeated."
    ),
]


@app.command()
def attack(
    dataset: Dataset,
    attack: Attack = "pgd",
    budget: Budgets = ["0.05"],  # noqa: B006, typer copies it
    model: Model = "GCN",
    poison: Annotated[bool, typer.Option("--poison", help="Attack before the training instead of after it.")] = False,
    adaptive: Annotated[
        bool | None,
        typer.Option(
            help="Attack the model itself, or a plain GCN and apply the flips to the model.",
            show_default="adaptive; with --poison, a plain GCN",
        ),
    ] = None,
    rho: Rho = None,
    lam: Lam = None,
    plain: Plain = False,
    splits: Annotated[int, typer.Option(min=1, help="Number of splits, paired with and without WT-AWP.")] = 5,
    inits: Annotated[int, typer.Option(min=1, help="Number of initialisations of each split.")] = 1,
    epochs: Epochs = 200,
    device: Device = "cpu",
    tf32: Tf32 = False,
    workers: Workers = None,
    time_limit: TimeLimit = None,
    store: StorePath = None,
    html: Annotated[Path | None, typer.Option(help="Write an HTML page with tables and curves to this file.")] = None,
    flips: Annotated[Path | None, typer.Option(help="Write the flips to this folder.")] = None,
    as_json: Json = False,
) -> None:
    """Attack the edges of a graph and measure the accuracy that remains, with and without WT-AWP.

    The model may be your own, as package.module:Class; it is built as Class(num_features, num_classes) and called as
    model(x, edge_index, edge_weight).
    """
    with errors_without_traceback():
        from wtawp.experiments.plans.defaults import default_awp
        from wtawp.experiments.plans.robustness import attack_plan
        from wtawp.experiments.spec import Setting

        refuse_unwritable(html)
        with as_bad_parameter():
            base = Setting(dataset=dataset, model=model, epochs=epochs)
            awp = None if plain else default_awp(model, dataset, rho=rho, lam=lam)
            plan = attack_plan(
                base, attack, [_budget(text) for text in budget], awp=awp, poison=poison,
                adaptive=not poison if adaptive is None else adaptive, splits=splits, inits=inits,
            )  # fmt: skip
        sweep([plan], store, device, tf32, make_engine("local", workers, device, time_limit), as_json)
        written = []
        if html is not None or flips is not None:
            from wtawp.experiments.execution.flip_files import save_flips
            from wtawp.experiments.report.html import render_html
            from wtawp.experiments.store import Store

            with Store(store, create=False) as opened:
                if html is not None:
                    write_atomic(html, render_html(reports_of([plan], opened)).encode())
                    written.append(html)
                if flips is not None:
                    written += save_flips(plan, opened, flips)
    if written:
        more = f" and {len(written) - 1} more" * (len(written) > 1)
        stderr_console.print(f"Written: {written[0].resolve()}{more}", highlight=False, soft_wrap=True)


def _budget(text: str) -> float | int:
    """Read a budget: whole numbers count edges, others are shares."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"budget must be a share as in 0.05 or a number of edges as in 253, got {text!r}") from None
