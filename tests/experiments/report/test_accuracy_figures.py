from collections.abc import Callable
from dataclasses import replace
from statistics import stdev
from typing import Any

import numpy as np
import pytest

from wtawp.core import AwpConfig
from wtawp.experiments.plans.robustness import attack_plan
from wtawp.experiments.report.accuracy_figures import accuracy_over_budget, accuracy_over_rho
from wtawp.experiments.report.drawing import COLOURS, method_style
from wtawp.experiments.results.summary import summarise
from wtawp.experiments.spec import Cell, Plan, Record, Setting

MakeRecords = Callable[..., list[Record]]
Plotted = list[list[Any]]
WT = AwpConfig(rho=1.0, lam=0.7)


def band(collection: Any, x: float) -> tuple[float, float]:
    """The lower and upper end of a band at x."""
    heights = [y for at, y in collection.get_paths()[0].vertices if at == x]
    return min(heights), max(heights)


def test_without_runs_nothing_is_drawn_over_rho(small_plan: Plan) -> None:
    assert accuracy_over_rho(summarise(small_plan, [])) == ""
    assert accuracy_over_budget(summarise(small_plan, [])) == ""


def test_accuracy_is_drawn_over_rho_with_the_paper_s_beside(make_records: MakeRecords, plotted: Plotted) -> None:
    rhos = (2.5, 0.1, 0.5)  # not in order: the lines are
    cells = [
        Cell(row, f"rho={rho}", Setting(dataset="karate", awp=AwpConfig(rho=rho, lam=lam, layers=layers)), 3, 1,
             printed=(90.0 + rho, 1.0) if row == "AWP" and rho < 2 else None)
        for row, lam, layers in (("AWP", 1.0, "all"), ("WT-AWP", 0.5, "all-but-last")) for rho in rhos
    ]  # fmt: skip
    plain = Cell("GCN", "plain", Setting(dataset="karate"), 3, 1)

    def accuracy(cell: Cell, split: int, _: int) -> float:
        rho = cell.setting.awp.rho if cell.setting.awp else 0.0
        return (85.0 if cell.row == "AWP" else 60.0) + rho + split

    plan = Plan("tab:rho", "", (*cells, plain))
    accuracy_over_rho(summarise(plan, make_records(plan, accuracy)))
    ((whole, trains),) = plotted
    for ax in (whole, trains):
        ours, printed, other = ax.lines[:3]
        assert (ours.get_label(), other.get_label()) == ("AWP", "WT-AWP")
        assert list(ours.get_xdata()) == list(other.get_xdata()) == [0.1, 0.5, 2.5]
        assert ours.get_ydata() == pytest.approx([86.1, 86.5, 88.5])
        assert other.get_ydata() == pytest.approx([61.1, 61.5, 63.5])
        assert [tuple(point) for point in printed.get_xydata()] == [(0.1, 90.1), (0.5, 90.5)]
        assert ours.get_color() == printed.get_color() == COLOURS[4]
        assert other.get_color() == COLOURS[1]
        assert ax.get_xscale() == "log"
    assert band(whole.collections[0], 0.5) == pytest.approx((86.5 - stdev([0, 1, 2]), 86.5 + stdev([0, 1, 2])))
    error = stdev([0, 1, 2]) / 3**0.5
    assert band(trains.collections[0], 0.5) == pytest.approx((86.5 - error, 86.5 + error)), "the error of the mean"
    assert trains.get_ylim() == pytest.approx((86.1 - 0.5, 90.5 + 0.5)), "only what lies above 80"


@pytest.mark.parametrize("awp", [None, WT])
def test_accuracy_is_drawn_over_the_budget_of_each_attack(
    make_records: MakeRecords, plotted: Plotted, awp: AwpConfig | None
) -> None:
    plan = attack_plan(
        Setting(dataset="wine"), "dice", [0.1, 0.05], awp=awp, poison=False, adaptive=True, splits=2, inits=1
    )
    records = make_records(plan, lambda cell, split, _: 90.0 + split + (2.0 if cell.setting.awp else 0.0))
    measured = [[{"accuracy": 0.7 + 0.1 * r.split}, {"accuracy": 0.8}] for r in records]
    changed = [replace(r, measured=each) for r, each in zip(records, measured, strict=True)]
    accuracy_over_budget(summarise(plan, changed))
    ((ax, drops),) = plotted
    assert [line.get_label() for line in ax.lines] == ["GCN"] + ["GCN+WT-AWP"] * (awp is not None)
    for i, line in enumerate(ax.lines):
        assert list(line.get_xdata()) == [0, 0.05, 0.1]
        assert line.get_ydata() == pytest.approx([90.5 + 2 * i, 80.0, 75.0])
        assert line.get_color() == method_style((None, WT)[i])["color"]
        assert band(ax.collections[i], 0.1) == pytest.approx((75 - stdev([70, 80]), 75 + stdev([70, 80])))
        assert list(drops.lines[i].get_xdata()) == [0, 0.05, 0.1]
        assert drops.lines[i].get_ydata() == pytest.approx([0.0, 10.5 + 2 * i, 15.5 + 2 * i])
    assert ax.get_xlabel() == drops.get_xlabel() == "budget, % of the edges"
    assert ax.xaxis.get_major_formatter()(0.05, 0) == "5"


def test_the_budget_of_a_poisoned_training_counts_edges(make_records: MakeRecords, plotted: Plotted) -> None:
    plan = attack_plan(Setting(dataset="wine"), "dice", [20, 5], awp=None, poison=True, adaptive=False, splits=2,
                       inits=1)  # fmt: skip
    columns = {"no attack": 90.0, "20 edges": 70.0, "5 edges": 80.0}
    accuracy_over_budget(summarise(plan, make_records(plan, lambda cell, *_: columns[cell.column])))
    ((ax, drops),) = plotted
    assert ax.lines[0].get_xydata() == pytest.approx(np.array([(0, 90), (5, 80), (20, 70)]))
    assert drops.lines[0].get_xydata() == pytest.approx(np.array([(0, 0), (5, 10), (20, 20)]))
    assert ax.get_xlabel() == "budget, edges"
