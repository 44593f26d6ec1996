from wtawp.experiments.plans import plans
from wtawp.experiments.plans.without_tuning import CONFIRMATION, DEVELOPMENT, LARGE, METHODS, MODELS, auto_plans


def test_every_model_meets_every_data_set_in_three_ways() -> None:
    small, large = auto_plans()
    assert {small.name, large.name} <= plans().keys()
    assert not set(DEVELOPMENT) & set(CONFIRMATION)
    assert {cell.column for cell in large.cells} == set(LARGE)
    assert {cell.column for cell in (*small.cells, *large.cells)} == {*DEVELOPMENT, *CONFIRMATION}
    for plan in (small, large):
        places = [(cell.row, cell.column) for cell in plan.cells]
        assert len(places) == len(set(places)) == len(MODELS) * len(METHODS) * len({c.column for c in plan.cells})
        assert {(cell.splits, cell.inits) for cell in plan.cells} == {(20, 1)}
        for model, row in plan.pairs:
            settings = {c.row: c.setting for c in plan.cells if c.column == plan.cells[0].column}
            assert settings[model].awp is None
            assert settings[row].awp is not None
            assert settings[model].model == settings[row].model == model


def test_only_the_rule_differs_between_the_rows() -> None:
    awps = {cell.row.removeprefix(cell.setting.model): cell.setting.awp for cell in auto_plans()[0].cells}
    assert awps == METHODS
    assert {awp.lam for awp in METHODS.values() if awp is not None} == {0.7, "auto"}
