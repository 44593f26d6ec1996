from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from wtawp.experiments.plans.geometry import smoothness_plan
from wtawp.experiments.report.contents import tables_of
from wtawp.experiments.report.drawing import COLOURS
from wtawp.experiments.report.measures.smoothness import smoothness_arrows, smoothness_tables
from wtawp.experiments.results.summary import PlanReport, summarise
from wtawp.experiments.spec import Record, Run


def norm(run: Run, index: int) -> float:
    """Half with the method; the later measures are larger."""
    return (1.0 + index) * (1.0 if run.setting.awp is None else 0.5) + 0.01 * run.split


def accuracy(run: Run) -> float:
    """More with the method on the first seven splits, less on the others."""
    return 0.8 + (0.0 if run.setting.awp is None else 0.05 if run.split < 7 else -0.05)


@pytest.fixture
def report(make_record: Callable[..., Record]) -> PlanReport:
    plan = smoothness_plan()
    return summarise(plan, [
        make_record(key=run.key, setting=run.setting.content, split=run.split, init=run.init,
                    accuracy={"test": accuracy(run)},
                    measured=[{"norm": norm(run, i), "spread": 0.0} for i in range(4)])
        for run in plan.runs()
    ])  # fmt: skip


def test_arrows_lead_from_the_model_without_to_the_model_with_the_method(
    report: PlanReport, plotted: list[list[Any]]
) -> None:
    smoothness_arrows(report)
    (axes,) = plotted
    assert len(axes) == 16
    runs = [list(cell.runs()) for cell in report.plan.cells[:2]]
    for index, ax in enumerate(axes[:4]):
        sides = [np.array([(norm(run, index), 100 * accuracy(run)) for run in each]) for each in runs]
        for line, side, row, colour in zip(ax.lines, sides, ("GCN", "GCN+WT-AWP"), COLOURS, strict=False):
            assert line.get_xydata() == pytest.approx(side)
            assert (line.get_label(), line.get_color()) == (row, colour)
        arrows = ax.texts
        assert np.array([arrow.xyann for arrow in arrows]) == pytest.approx(sides[0]), "where they start"
        assert np.array([arrow.xy for arrow in arrows]) == pytest.approx(sides[1]), "where they point to"
    assert axes[0].get_title() == "cora, A, paper\n7 of 20 better and smoother"
    assert [ax.get_xlabel() for ax in axes[:4]] == [f"mean gradient norm by {by}" for by in ("A", "X", "A_hat", "X")]


def test_the_table_counts_pairs(report: PlanReport) -> None:
    (table,) = smoothness_tables(report)
    assert table in tables_of(report)
    first = [entry.text for entry in table.rows[0]]
    without, with_method = ([norm(run, 0) for run in list(cell.runs())] for cell in report.plan.cells[:2])
    means = stats.gmean(without), stats.gmean(with_method)
    assert first[3:6] == [f"{means[0]:.4g}", f"{means[1]:.4g}", f"{means[1] / means[0]:.3g}"]
    assert first[:3] + first[6:] == ["cora", "A", "paper", "7 of 20", "20 of 20", "7 of 20"]


def test_without_records_there_is_nothing(report: PlanReport) -> None:
    empty = summarise(report.plan, [])
    assert smoothness_tables(empty) == []
    assert smoothness_arrows(empty) == ""
