from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from wtawp.experiments.plans.geometry import bounds_plan, flatness_plan
from wtawp.experiments.report import reporters
from wtawp.experiments.report.contents import tables_of
from wtawp.experiments.report.drawing import drawing
from wtawp.experiments.report.export import export_data
from wtawp.experiments.report.figures import figure_names, figures_of
from wtawp.experiments.report.reporters import (
    FigureSpec,
    Reporter,
    all_reporters,
    register_reporter,
    reporter_of,
    reporters_of,
)
from wtawp.experiments.report.tables import Entry, Table
from wtawp.experiments.results.summary import PlanReport, summarise
from wtawp.experiments.spec import Cell, MeasureRequest, Plan, Record, Setting


@pytest.fixture
def empty_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test registers is forgotten afterwards."""
    monkeypatch.setattr(reporters, "_registered", {})


def degrees(report: PlanReport) -> list[float]:
    return [(r.measured or [])[0]["degree"] for r in report.records]


def degree_tables(report: PlanReport) -> list[Table]:
    rows = tuple((Entry(f"{degree:g}", degree),) for degree in degrees(report))
    return [Table("Degrees.", ("degree",), rows)] if rows else []


def degree_bars(report: PlanReport) -> str:
    with drawing(1, 1, 3, 2) as ((ax,), out):
        ax.bar(range(len(degrees(report))), degrees(report))
    return out[0]


TOY = Reporter(
    tables=(degree_tables,),
    figures={"degree_bars": FigureSpec(degree_bars, "Degrees as bars.")},
    export=lambda report: {"degrees": degrees(report)},
)


@pytest.mark.usefixtures("empty_registry")
def test_a_measure_of_one_s_own_brings_table_figure_and_data(
    make_record: Callable[..., Record], plotted: list[list[Any]]
) -> None:
    register_reporter("degree", TOY)
    setting = Setting(dataset="karate", measures=(MeasureRequest("degree"),))
    plan = Plan("own", "", (Cell("GCN", "karate", setting, 2, 1),), figures=("degree_bars",))
    records = [make_record(key=run.key, setting=run.setting.content, split=run.split,
                           measured=[{"degree": 2.0 + run.split}]) for run in plan.runs()]  # fmt: skip
    report = summarise(plan, records)
    assert degree_tables(report)[0] in tables_of(report)
    assert export_data(report)["degrees"] == [2.0, 3.0]
    ((name, svg, caption),) = figures_of(report)
    assert (name, caption, svg[:4]) == ("degree_bars", "Degrees as bars.", "<svg")
    assert [bar.get_height() for bar in plotted[0][0].patches] == [2.0, 3.0]
    assert len(tables_of(summarise(plan, []))) == 1


@pytest.mark.usefixtures("empty_registry")
def test_a_name_is_registered_once() -> None:
    register_reporter("degree", TOY)
    with pytest.raises(ValueError, match="'degree' has a reporter already"):
        register_reporter("degree", TOY)
    with pytest.raises(ValueError, match="'bound' has a reporter already"):
        register_reporter("bound", TOY)
    with pytest.raises(ValueError, match="figure 'gains' exists already"):
        register_reporter("other", Reporter(figures={"gains": TOY.figures["degree_bars"]}))
    assert "degree_bars" in figure_names()
    assert "degree" in all_reporters()


def test_built_in_measures_have_theirs_in_the_module_of_their_name() -> None:
    assert set(all_reporters()) >= {
        "bound",
        "certificate",
        "collective",
        "evasion",
        "landscape",
        "sharpness",
        "smoothness",
        "targeted",
    }
    assert reporter_of("spectrum") is None, "it is part of the comparison of sharpness"
    assert reporter_of("poison") is None
    assert reporter_of("no.such") is None


def test_reporters_come_in_a_fixed_order_each_once() -> None:
    bounds, flat = bounds_plan({"cora": (0.7, 1.0)}, {}), flatness_plan({"cora": (0.7, 1.0)})
    both = replace(bounds, cells=(*bounds.cells, *flat.cells))
    assert [set(reporter.figures) for reporter in reporters_of(both)] == [
        {"flatness_ratios"},
        {"landscape_lines"},
        {"bound_curves"},
    ]
