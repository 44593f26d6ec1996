from wtawp.experiments.execution.checks import check_plan
from wtawp.experiments.measures.shared.registry import options_of
from wtawp.experiments.plans.catalogue import plan
from wtawp.experiments.plans.geometry import (
    FLATNESS,
    bounds_plan,
    flatness_plan,
    landscape_plan,
    sharpness_plan,
    smoothness_plan,
    vanishing_plan,
)
from wtawp.experiments.plans.scale import at_scale
from wtawp.experiments.report.figures import figure_names
from wtawp.experiments.spec import Plan


def test_the_figures_of_the_paper_have_its_radii_and_its_pairs() -> None:
    smooth = smoothness_plan()
    assert len(smooth.runs()) == 160, "at the selected weights, and at those of the last epoch"
    assert {str(c.setting.awp) for c in smooth.cells} == {"None", "rho=1.0, lam=0.5"}
    assert {c.setting.dataset for c in smooth.cells} == {"cora", "citeseer"}
    land = {c.row: str(c.setting.awp) for c in landscape_plan().cells}
    assert land["GCN+AWP"] == "rho=0.1, lam=1.0, layers='all'"
    assert land["GCN+WT-AWP"] == "rho=0.5, lam=0.5"


def test_flatness_is_paired_over_20_splits_with_the_radii_of_the_clean_table() -> None:
    flat = plan("extra:flatness")
    assert {(c.column, str(c.setting.awp)) for c in flat.cells if c.setting.awp} == {
        ("cora", "rho=1.0, lam=0.7"),
        ("citeseer", "rho=2.5, lam=0.7"),
        ("cora, last epoch", "rho=1.0, lam=0.7"),
        ("citeseer, last epoch", "rho=2.5, lam=0.7"),
    }
    assert all((c.setting.select_on == "last") == c.column.endswith("last epoch") for c in flat.cells)
    assert {(c.splits, c.inits) for c in flat.cells} == {(20, 1)}
    assert all(c.setting.measures == FLATNESS for c in flat.cells)


def test_every_measure_and_figure_is_known_and_small_versions_are_small() -> None:
    bounds = bounds_plan({"wine": (0.5, 0.5)}, {"proteins": (0.3, 0.5)})
    assert {(c.setting.model, c.setting.awp.layers) for c in bounds.cells if c.setting.awp} == {
        ("GCN", "all-but-last"),
        ("PooledGCN", "first"),
    }
    flat = flatness_plan({"wine": (0.5, 0.5)})
    for made in (smoothness_plan(), landscape_plan(), flat, bounds, sharpness_plan(), vanishing_plan()):
        for cell in made.cells:
            for measure in cell.setting.measures:
                options_of(measure)
        assert set(made.figures) <= set(figure_names())
    (small,) = {
        dict(m.options)["samples"] for c in at_scale(smoothness_plan(), "smoke").cells for m in c.setting.measures
    }
    assert small == 2
    toys = tuple(c for c in vanishing_plan().cells if c.setting.dataset == "toy-linear")
    assert len(toys) == 18
    check_plan(Plan("toys", "", toys))
