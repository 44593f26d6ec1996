from wtawp.experiments.plans import plans
from wtawp.experiments.plans.without_tuning import DATASETS, METHODS, MODELS, auto_plans


def test_every_model_meets_every_data_set_in_three_ways() -> None:
    for plan in auto_plans():
        assert plans()[plan.name] == plan
        places = [(cell.row, cell.column) for cell in plan.cells]
        assert len(places) == len(set(places)) == len(MODELS) * len(METHODS) * len(DATASETS[plan.name])
        assert {(cell.splits, cell.inits) for cell in plan.cells} == {(20, 1)}
        settings = {(cell.row, cell.column): cell.setting for cell in plan.cells}
        for model, row in plan.pairs:
            for dataset in DATASETS[plan.name]:
                assert settings[model, dataset].awp is None
                assert settings[row, dataset].awp is not None
                assert settings[model, dataset].model == settings[row, dataset].model == model


def test_only_the_rule_differs_between_the_rows() -> None:
    awps = {cell.row.removeprefix(cell.setting.model): cell.setting.awp for plan in auto_plans() for cell in plan.cells}
    assert awps == METHODS
    assert {awp.lam for awp in METHODS.values() if awp is not None} == {0.7, "auto"}
