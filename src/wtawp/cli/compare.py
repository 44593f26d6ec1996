"""`wtawp compare`: does WT-AWP help on these data, and by how much? With --tuned, is that so after tuning, too?"""

from typing import TYPE_CHECKING, Annotated

import typer

from wtawp.cli.options import Fresh, Html, Json, StorePath, Tf32, TimeLimit, Workers, as_bad_parameter, check_outputs
from wtawp.cli.shared import app, example
from wtawp.cli.sweeps import make_engine, sweep
from wtawp.cli.training_options import Inits, Training, takes
from wtawp.cli.tune import (
    COMPARED_SPLITS,
    PERTURBATION_OPTIONS,
    Minutes,
    StudyPath,
    Trials,
    refuse_options,
    search_and_compare,
)

if TYPE_CHECKING:
    from wtawp.core import AwpConfig
    from wtawp.experiments.spec import Plan

AUTO = "WT-AWP auto"  # the method of the third row
SEARCH_OPTIONS = ("trials", "minutes", "study")  # which are of no use without --tuned
REFUSED_WITH_TUNED = {
    **dict.fromkeys(PERTURBATION_OPTIONS, "--tuned varies it; leave it out, or leave out --tuned"),
    "inits": "with --tuned, --splits alone says how many models of each row are compared; leave it out",
    "tf32": "a search does not use TF32; leave it out, or leave out --tuned",
    "time_limit": "it limits chunks of runs; with --tuned, --minutes limits the time of everything",
    "fresh": "--tuned continues the trials that there are; choose another file with --study to begin anew",
}  # the reasons by option

Splits = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Number of splits, or of folds, paired with and without WT-AWP. With --tuned, the largest number.",
        show_default=f"5; with --tuned, {COMPARED_SPLITS}",
    ),
]
Tuned = Annotated[
    bool,
    typer.Option(
        "--tuned",
        help="First tune every row with as many trials, on validation nodes, then compare the best settings on other "
        "splits. --trials, --minutes and --study are for this search.",
    ),
]


@app.command(epilog=example("wtawp compare wine", "wtawp compare mine.csv --model GAT --html mine.html"))
@takes(Training)
def compare(
    training: Training,
    *,
    tuned: Tuned = False,
    trials: Trials = None,
    minutes: Minutes = 5.0,
    study: StudyPath = None,
    splits: Splits = None,
    inits: Inits = None,
    tf32: Tf32 = False,
    workers: Workers = None,
    time_limit: TimeLimit = None,
    fresh: Fresh = False,
    store: StorePath = None,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Compare a model with and without WT-AWP in paired runs: does it help on these data, and by how much?

    Three rows: plain training, WT-AWP with the paper's values or yours, and WT-AWP whose lam follows the training.
    With --tuned, each is tuned first.
    """
    reason = "it is for the search of --tuned; add --tuned, or leave it out"
    refuse_options(training.user_set, REFUSED_WITH_TUNED if tuned else dict.fromkeys(SEARCH_OPTIONS, reason))
    awp = training.awp()
    if awp is None:
        raise typer.BadParameter(f"the weights of {training.model} cannot be perturbed; compare another model")
    if tuned:
        if splits == 1:
            raise typer.BadParameter("a comparison needs 2 splits or more", param_hint="'--splits'")
        search_and_compare(
            training, awp, methods=[AUTO], includes_untuned=False, minutes=minutes, trials=trials, study=study, seed=0,
            splits=splits or COMPARED_SPLITS, workers=workers, store=store, html=html, as_json=as_json,
        )  # fmt: skip
        return
    from wtawp.experiments.store import default_path

    check_outputs({"--html": html}, [training.dataset, store or default_path()])
    plan = _untuned_plan(training, awp, splits, inits)
    engine = make_engine("local", workers, training.device, time_limit)
    sweep([plan], store, training.device, tf32, engine, as_json, fresh=fresh, html=html)


def _untuned_plan(training: Training, awp: "AwpConfig", splits: int | None, inits: int | None) -> "Plan":
    """The plan that compares plain training, WT-AWP and WT-AWP whose lam follows the training, without tuning."""
    from wtawp.experiments.plans.defaults import default_awp
    from wtawp.experiments.spec import Cell, Plan

    model = training.model
    rule, num_splits, num_inits = training.sizes(splits, inits, (5, 2))
    if num_splits * num_inits < 2 and rule.kind == "masks" and (splits is None or inits is not None):
        raise typer.BadParameter(
            "one split of the masks is compared, so initialisations are paired, and a comparison needs 2 or more; use"
            " --inits 2, or --split random",
            param_hint="'--inits'",
        )
    if num_splits * num_inits < 2 or (num_splits == 1 and rule.kind != "masks"):
        raise typer.BadParameter("a comparison needs 2 splits or more", param_hint="'--splits'")
    auto = default_awp(model, training.dataset, rho=training.rho, lam="auto", layers=training.layers)
    methods = {f"{model}+WT-AWP": awp, f"{model}+WT-AWP auto": auto}
    rows = {model: None} | ({f"{model}+WT-AWP auto": auto} if awp == auto else methods)
    with as_bad_parameter():
        cells = tuple(
            Cell(row, training.dataset, training.setting(rule, awp=method), num_splits, num_inits)
            for row, method in rows.items()
        )
    pairs = tuple((model, row) for row in rows if row != model)
    return Plan("comparison", f"{model} with and without WT-AWP", cells, pairs)
