from wtawp.experiments.plans import plans
from wtawp.experiments.plans.without_tuning import BEST_OF, LAMS, LARGE, METHODS, MODELS, RHOS, SMALL, auto_plans


def test_every_model_meets_every_data_set_in_three_ways() -> None:
    for name, datasets, inits in (("extra:auto", LARGE, 1), ("extra:auto-small", SMALL, 3)):
        plan = plans()[name]
        places = [(cell.row, cell.column) for cell in plan.cells]
        assert len(places) == len(set(places)) == len(MODELS) * len(METHODS) * len(datasets)
        assert {(cell.splits, cell.inits) for cell in plan.cells} == {(20, inits)}
        settings = {(cell.row, cell.column): cell.setting for cell in plan.cells}
        for model, row in plan.pairs:
            for dataset in datasets:
                assert settings[model, dataset].awp is None
                assert settings[row, dataset].awp is not None
                assert settings[model, dataset].model == settings[row, dataset].model == model


def test_only_the_rule_differs_between_the_rows() -> None:
    cells = [cell for plan in auto_plans()[:2] for cell in plan.cells]
    assert {cell.row.removeprefix(cell.setting.model): cell.setting.awp for cell in cells} == METHODS
    assert {awp.lam for awp in METHODS.values() if awp is not None} == {0.7, "auto"}


def test_auto_stands_beside_a_grid_of_fixed_settings() -> None:
    plan = plans()["extra:auto-best"]
    for model, dataset in BEST_OF:
        cells = [cell for cell in plan.cells if cell.column == f"{model} on {dataset}"]
        assert {(cell.setting.model, cell.setting.dataset) for cell in cells} == {(model, dataset)}
        awps = [cell.setting.awp for cell in cells]
        fixed = {(awp.lam, awp.rho) for awp in awps if awp is not None and not awp.is_auto}
        assert fixed == {(lam, rho) for lam in LAMS for rho in RHOS}
        assert [awp for awp in awps if awp is None or awp.is_auto] == [None, METHODS["+WT-AWP auto"]]
