"""`wtawp attack`: how robust is a model on a graph, with and without WT-AWP, at several budgets?"""

from pathlib import Path
from typing import Annotated

import typer

from wtawp.attacks.registry import attack_names
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
    Workers,
    can_be_written,
    values_are_parameters,
)
from wtawp.cli.shared import app, errors_in_plain_words, stderr_console
from wtawp.cli.sweeps import engine_named, reports_of, sweep

ONLY_POISONING = [name for name in attack_names("poisoning") if name not in attack_names("evasion")]
Attack = Annotated[
    str,
    typer.Option(
        "--attack",
        help=f"{', '.join(attack_names('evasion'))}; poisoning also: {', '.join(ONLY_POISONING)}; or your own: "
        "package.module:function.",
    ),
]
Budgets = Annotated[
    list[str], typer.Option("--budget", help="Flips: a share of the edges (0.05) or a number (253); may be repeated.")
]


@app.command()
def attack(
    dataset: Dataset,
    attack: Attack = "pgd",
    budget: Budgets = ["0.05"],  # noqa: B006, typer copies it
    model: Model = "GCN",
    poison: Annotated[bool, typer.Option("--poison", help="Attack before training, not after.")] = False,
    adaptive: Annotated[
        bool | None,
        typer.Option(
            help="Attack through the model itself, or apply to it what misleads a plain GCN.",
            show_default="adaptive; with --poison, a plain GCN",
        ),
    ] = None,
    rho: Rho = None,
    lam: Lam = None,
    plain: Plain = False,
    splits: Annotated[int, typer.Option(min=1, help="Paired splits.")] = 5,
    inits: Annotated[int, typer.Option(min=1, help="Initialisations of each split.")] = 1,
    epochs: Epochs = 200,
    device: Device = "cpu",
    tf32: Tf32 = False,
    workers: Workers = None,
    store: StorePath = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with tables and curves.")] = None,
    flips: Annotated[Path | None, typer.Option(help="Save the flips that were found into this folder.")] = None,
    as_json: Json = False,
) -> None:
    """Attack the edges of a graph and see what is left of a model's accuracy.

    The model may be your own, as package.module:Class; it is made as Class(num_features, num_classes) and called as
    model(x, edge_index, edge_weight).
    """
    with errors_in_plain_words():
        from wtawp.experiments.plans.defaults import default_awp
        from wtawp.experiments.plans.robustness import attack_plan
        from wtawp.experiments.spec import Setting

        can_be_written(html)
        with values_are_parameters():
            base = Setting(dataset=dataset, model=model, epochs=epochs)
            awp = None if plain else default_awp(model, dataset, rho=rho, lam=lam)
            plan = attack_plan(
                base, attack, [_budget(text) for text in budget], awp=awp, poison=poison,
                adaptive=not poison if adaptive is None else adaptive, splits=splits, inits=inits,
            )  # fmt: skip
        sweep([plan], store, device, tf32, engine_named("local", workers, device), as_json)
        written = []
        if html is not None or flips is not None:
            from wtawp.experiments.execution.flip_files import save_flips
            from wtawp.experiments.report.html import render_html
            from wtawp.experiments.store.database import Store

            with Store(store, create=False) as opened:
                if html is not None:
                    html.write_text(render_html(reports_of([plan], opened)), encoding="utf-8")
                    written.append(html)
                if flips is not None:
                    written += save_flips(plan, opened, flips)
    if written:
        last = f" and {len(written) - 1} more" * (len(written) > 1)
        stderr_console.print(f"Written: {written[0].resolve()}{last}", highlight=False, soft_wrap=True)


def _budget(text: str) -> float | int:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"budget must be a share as in 0.05 or a number of edges as in 253, got {text!r}") from None
