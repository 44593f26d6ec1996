import pytest

from wtawp.experiments.plans import plans
from wtawp.experiments.plans.league import BASES, DATASETS, PUBLIC, STRENGTHS, TRIALS, league_plans
from wtawp.experiments.spec import Plan
from wtawp.experiments.tuning.methods import METHODS

LEAGUES = league_plans()


@pytest.mark.parametrize("plan", LEAGUES, ids=lambda plan: plan.name)
def test_every_method_has_as_many_different_trials(plan: Plan) -> None:
    base = next(base for base in BASES if base.label == plan.name)
    assert plans()[plan.name] == plan
    assert len(plan.cells) == len(PUBLIC if base.is_public else DATASETS) * len(STRENGTHS) * TRIALS
    assert {len(method.rows) for method in plan.league} == {TRIALS}
    assert len({(cell.setting, cell.column) for cell in plan.cells}) == len(plan.cells)
    assert {cell.row for cell in plan.cells} == {row for method in plan.league for row in method.rows}
    assert len({row for method in plan.league for row in method.rows}) == len(STRENGTHS) * TRIALS


@pytest.mark.parametrize("plan", LEAGUES, ids=lambda plan: plan.name)
def test_every_trial_trains_the_base_of_its_league_twenty_times(plan: Plan) -> None:
    base = next(base for base in BASES if base.label == plan.name)
    assert {cell.setting.model for cell in plan.cells} == {base.model}
    assert all(set(base.options) <= set(cell.setting.options) for cell in plan.cells)
    expected = ("masks", 1, 20) if base.is_public else ("random", 20, 1)
    assert {(cell.setting.split_rule.kind, cell.splits, cell.inits) for cell in plan.cells} == {expected}


def test_the_methods_are_those_that_can_be_tuned() -> None:
    assert set(STRENGTHS) == {"plain", "WT-AWP", *METHODS}
    fixed = {name: method.fixed for name, method in METHODS.items()}
    for cell in LEAGUES[0].cells:
        name = cell.row.split(":")[0]
        options = {} if cell.setting.awp is None else vars(cell.setting.awp)
        for option, value in fixed.get(name, {}).items():
            assert {**options, "average": cell.setting.average}[option] == value


def test_a_row_says_what_tells_its_trial_apart() -> None:
    rows = {cell.row: cell.setting for cell in LEAGUES[0].cells if cell.column == "GCN on cora"}
    strong = rows["WT-AWP: lam 0.7, rho 1.0, weight_decay 0.002, dropout 0.8"]
    assert strong.awp is not None
    assert (strong.awp.lam, strong.awp.rho, strong.weight_decay, dict(strong.options)) == (
        0.7,
        1,
        0.002,
        {"dropout": 0.8},
    )
    plain = rows["plain: defaults"]
    assert (plain.awp, plain.average, plain.weight_decay, plain.options) == (None, None, 5e-4, ())
    assert rows["EMA: average 0.99"].average == 0.99


def test_substitutes_for_gradients_have_the_strengths_of_their_authors_or_those_of_sam_and_wt_awp() -> None:
    def trials(name: str) -> list[tuple[object, ...]]:
        cells = [c.setting for c in LEAGUES[0].cells if c.row.startswith(f"{name}:") and c.column == "GCN on cora"]
        awps = [setting.awp for setting in cells if setting.awp is not None]
        return sorted({(a.rho, a.lam, a.layers, a.radius, a.direction, a.perturbed_gradient) for a in awps})

    assert trials("Momentum-SAM") == [(rho, 1.0, "*", "global", "momentum", "full") for rho in (0.3, 3.0)]
    assert trials("FGSAM") == [(rho, 0.5, "*", "global", "gradient", "without-edges") for rho in (0.05, 0.2)]
    assert trials("functional AWP") == [
        (rho, lam, "all-but-last", "layer", "gradient", "functional") for rho, lam in ((0.5, 0.5), (1.0, 0.7))
    ]
