from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from wtawp.experiments.plans.geometry import bounds_plan
from wtawp.experiments.report.contents import tables_of
from wtawp.experiments.report.drawing import COLOURS
from wtawp.experiments.report.measures.bound import bound_curves, bound_tables
from wtawp.experiments.results.summary import PlanReport, summarise
from wtawp.experiments.spec import Record, Run


def bounded(run: Run) -> list[dict[str, object]]:
    """At two radii; with the method half of that without, and larger over five splits."""
    by = (1 + run.split % 5) * (1.0 if run.setting.awp is None else 0.5)
    terms = {name: [by * x, 0.1 * by * x] for name, x in zip(("loss", "tail", "complexity", "remainder", "total"),
                                                             (1.0, 2.0, 3.0, 4.0, 5.0), strict=True)}  # fmt: skip
    return [{"rhos": [0.1, 1.0], "train_loss": 0.1 * by, "all_loss": 0.3 * by, **terms}]


@pytest.fixture
def report(make_record: Callable[..., Record]) -> PlanReport:
    plan = bounds_plan({"cora": (0.7, 1.0), "citeseer": (0.7, 1.0)}, {})
    return summarise(plan, [
        make_record(key=run.key, setting=run.setting.content, split=run.split, init=run.init, measured=bounded(run))
        for run in plan.runs()
    ])  # fmt: skip


def test_the_table_has_the_terms_where_the_bound_is_smallest(report: PlanReport) -> None:
    (table,) = bound_tables(report)
    assert table in tables_of(report)
    first, second, *_ = ([entry.text for entry in row] for row in table.rows)  # the mean of 1 to 5: 3 times
    assert first == ["cora", "GCN", "1", "0.3", "0.6", "0.9", "1.2", "1.5", "1.2", "+0.6000", "16 of 20"]
    assert second[1:8] == ["GCN+WT-AWP", "1", "0.15", "0.3", "0.45", "0.6", "0.75"]


def test_curves_are_means_of_the_bound_and_of_both_losses(report: PlanReport, plotted: list[list[Any]]) -> None:
    bound_curves(report)
    (axes,) = plotted
    assert [ax.get_title() for ax in axes] == ["cora", "citeseer"]
    for ax in axes:
        assert [line.get_label() for line in ax.lines] == [
            *(f"{name}, {what}" for name in ("GCN", "GCN+WT-AWP") for what in ("bound", "on all", "in training")),
            "above: vacuous",
        ]
        for i, factor in enumerate((3.0, 1.5)):  # the mean of 1 to 5, and half of it
            bound, on_all, in_training = ax.lines[3 * i : 3 * i + 3]
            assert bound.get_xydata() == pytest.approx(np.array([(0.1, 5 * factor), (1.0, 0.5 * factor)]))
            assert list(on_all.get_ydata()) == pytest.approx([0.3 * factor] * 2)
            assert list(in_training.get_ydata()) == pytest.approx([0.1 * factor] * 2)
            assert bound.get_color() == on_all.get_color() == in_training.get_color() == COLOURS[i]
        assert list(ax.lines[-1].get_ydata()) == [1, 1]
        assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


def test_without_records_there_is_nothing(report: PlanReport) -> None:
    empty = summarise(report.plan, [])
    assert bound_tables(empty) == []
    assert bound_curves(empty) == ""
