"""`wtawp attack`: the accuracy of a model under attack, with and without WT-AWP, at several budgets."""

from pathlib import Path
from typing import Annotated

import typer

from wtawp.attacks.registry import DEFAULT_ATTACK, attack_names, attack_spec
from wtawp.base import write_atomic
from wtawp.cli.completion import complete_attack
from wtawp.cli.option_values import parse_options
from wtawp.cli.options import Fresh, Json, Plain, StorePath, Tf32, TimeLimit, Workers, as_bad_parameter, check_outputs
from wtawp.cli.shared import app, example, stderr_console
from wtawp.cli.sweeps import make_engine, reports_of, sweep
from wtawp.cli.training_options import Splits, Training, takes

ONLY_POISONING = [name for name in attack_names("poisoning") if name not in attack_names("evasion")]
DEFAULT_BUDGET = 0.05  # share of the edges
Attack = Annotated[
    str | None,
    typer.Option(
        "--attack",
        autocompletion=complete_attack,
        help=f"One of {', '.join(attack_names('evasion'))}; with --poison also {', '.join(ONLY_POISONING)}; or your "
        "own, as package.module:function. strongest runs several attacks on each model and counts the one that leaves "
        "the lowest accuracy; the paper's evasion attack, pgd on the cross-entropy, is weak.",
        show_default=f"{DEFAULT_ATTACK['evasion']}; with --poison, {DEFAULT_ATTACK['poisoning']}",
    ),
]
AttackOption = Annotated[
    list[str] | None,
    typer.Option(
        "--attack-option",
        help="An option of the attack as name=value, such as restarts=5 or steps=200 for more effort, or "
        "loss=tanh_margin for pgd; may be repeated.",
    ),
]
Budgets = Annotated[
    list[str] | None,
    typer.Option(
        "--budget",
        help="Flips allowed: a share of the edges (0.05) or a number of edges (253); with --targets, a number of flips "
        "for each target; may be repeated.",
        show_default="0.05; the degree plus 2 of each target",
    ),
]
Targets = Annotated[
    int | None,
    typer.Option(
        "--targets",
        min=1,
        help="Attack so many single test nodes, one after another, and tell how many are misclassified then.",
        show_default="40 for attacks on single nodes, otherwise all test nodes at once",
    ),
]


@app.command(
    epilog=example("wtawp attack cora --attack pgd --budget 0.01 --budget 0.05", "wtawp attack wine --poison --plain")
)
@takes(Training)
def attack(
    training: Training,
    *,
    attack: Attack = None,
    attack_option: AttackOption = None,
    budget: Budgets = None,
    targets: Targets = None,
    poison: Annotated[bool, typer.Option("--poison", help="Attack before the training instead of after it.")] = False,
    adaptive: Annotated[
        bool | None,
        typer.Option(
            help="Attack the model itself, or a plain GCN and apply the flips to the model.",
            show_default="adaptive; with --poison, a plain GCN, but for meta-pgd the model itself",
        ),
    ] = None,
    plain: Plain = False,
    splits: Splits = None,
    inits: Annotated[
        int | None, typer.Option(min=1, help="Number of initialisations of each split.", show_default="1")
    ] = None,
    tf32: Tf32 = False,
    workers: Workers = None,
    time_limit: TimeLimit = None,
    fresh: Fresh = False,
    store: StorePath = None,
    html: Annotated[Path | None, typer.Option(help="Write an HTML page with tables and curves to this file.")] = None,
    flips: Annotated[Path | None, typer.Option(help="Write the flips to this folder.")] = None,
    as_json: Json = False,
) -> None:
    """Attack the edges or features of a graph and measure the accuracy that remains, with and without WT-AWP.

    The model may be your own, as package.module:Class; it is built as Class(num_features, num_classes) and called as
    model(x, edge_index, edge_weight).
    """
    with as_bad_parameter("'--attack'"):
        attack = attack_spec(attack or DEFAULT_ATTACK["poisoning" if poison else "evasion"]).name
    from wtawp.experiments.plans.robustness import attack_plan
    from wtawp.experiments.store import Store, default_path

    check_outputs({"--html": html}, [training.dataset, store or default_path()])
    with as_bad_parameter():
        options = parse_options(attack_option or ())
        is_targeted = targets is not None or attack_spec(attack).has_one_target
        budgets: list[float | int | None] = [_budget(text) for text in budget or ()]
        budgets = budgets or [None if is_targeted else DEFAULT_BUDGET]
    rule, num_splits, num_inits = training.sizes(splits, inits, (5, 1))
    base, awp = training.setting(rule), None if plain else training.awp()
    is_adaptive = not poison or attack_spec(attack).unrolls_training
    with as_bad_parameter():
        plan = attack_plan(
            base, attack, budgets, awp=awp, poison=poison, adaptive=is_adaptive if adaptive is None else adaptive,
            splits=num_splits, inits=num_inits, targets=targets, options=options,
        )  # fmt: skip
    engine = make_engine("local", workers, training.device, time_limit)
    sweep([plan], store, training.device, tf32, engine, as_json, fresh=fresh)
    written = []
    if html is not None or flips is not None:
        from wtawp.experiments.execution.flip_export import save_flips
        from wtawp.experiments.report.html import render_html

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
