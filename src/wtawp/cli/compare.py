"""`wtawp compare`: does WT-AWP help on these data, and by how much?"""

import typer

from wtawp.cli.options import Fresh, Html, Json, StorePath, Tf32, TimeLimit, Workers, as_bad_parameter, check_outputs
from wtawp.cli.shared import app
from wtawp.cli.sweeps import make_engine, sweep
from wtawp.cli.training_options import Inits, Splits, Training, takes


@app.command()
@takes(Training)
def compare(
    training: Training,
    *,
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
    """
    from wtawp.experiments.plans.defaults import default_awp
    from wtawp.experiments.spec import Cell, Plan
    from wtawp.experiments.store import default_path

    check_outputs({"--html": html}, [training.dataset, store or default_path()])
    model, awp = training.model, training.awp()
    if awp is None:
        raise typer.BadParameter(f"the weights of {model} cannot be perturbed; compare another model")
    rule, num_splits, num_inits = training.sizes(splits, inits, (5, 2))
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
    plan = Plan("comparison", f"{model} with and without WT-AWP", cells, pairs)
    engine = make_engine("local", workers, training.device, time_limit)
    sweep([plan], store, training.device, tf32, engine, as_json, fresh=fresh, html=html)
