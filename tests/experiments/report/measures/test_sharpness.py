import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from wtawp.experiments.plans.geometry import flatness_plan
from wtawp.experiments.report.contents import tables_of
from wtawp.experiments.report.drawing import COLOURS
from wtawp.experiments.report.measures.landscape import landscape_lines
from wtawp.experiments.report.measures.sharpness import flatness_ratios, flatness_tables
from wtawp.experiments.report.tables import NOTHING
from wtawp.experiments.results.claims import check
from wtawp.experiments.results.summary import PlanReport, summarise
from wtawp.experiments.spec import Record, Run

MakeRecord = Callable[..., Record]
Plotted = list[list[Any]]


def size(run: Run) -> float:
    return (1.0 if run.setting.awp is None else 0.5) * (1 + 0.01 * ((run.split * 7) % (5 if run.setting.awp else 3)))


def flat(run: Run) -> list[dict[str, Any]]:
    """Everything is about half with the method."""
    by = size(run)
    rise = [{"radius": r, "rhos": [0.1, 0.2, 0.3, 0.4], "rises": [by, 2 * by, 3 * by, 4 * by]} for r in "abc"]
    line = {"scale": "layer", "distances": [-1.0, 0.0, 1.0], "mean": [by, 0.3, by], "loss": 0.3, "gaps": 0}
    return [*rise, {"top": [by], "trace": by, "trace_error": 0.1}, line, {**line, "scale": "unit"}]


def report_of(make_record: MakeRecord, measured: Callable[[Run], list[dict[str, Any]]]) -> PlanReport:
    plan = flatness_plan({"cora": (0.7, 1.0)})
    return summarise(plan, [
        make_record(key=run.key, setting=run.setting.content, split=run.split, init=run.init, measured=measured(run),
                    loss=dict.fromkeys(("train", "val", "test"), 0.3 if run.setting.awp is None else 0.33))
        for run in plan.runs()
    ])  # fmt: skip


def by_split(report: PlanReport) -> list[float]:
    """The ratio of each split, with over without."""
    without, with_method = (list(cell.runs()) for cell in report.plan.cells[:2])
    return [size(b) / size(a) for a, b in zip(without, with_method, strict=True)]


def test_the_tables_tell_which_measures_are_flatter(make_record: MakeRecord) -> None:
    report = report_of(make_record, flat)
    table, matched = flatness_tables(report)
    assert [t for t in tables_of(report) if t in (table, matched)] == [table, matched]
    rows = {row[1].text: [entry.text for entry in row] for row in table.rows}
    assert rows["largest eigenvalue"][-1] == "flatter"
    mean = math.exp(np.mean(np.log(by_split(report))))
    assert rows["largest eigenvalue"][4:7:2] == [f"{mean:.3g}", "20 of 20"]
    assert rows["train loss"][4] == "1.1"
    assert rows["train loss"][-1] == NOTHING
    assert [entry.text for entry in matched.rows[0]] == ["cora", "sharpness, layer, rho=0.2", f"{mean:.2f}", "20 of 20"]


def test_ratios_are_dots_of_splits_around_their_mean_below_one_where_flatter(
    make_record: MakeRecord, plotted: Plotted
) -> None:
    report = report_of(make_record, flat)
    flatness_ratios(report)
    (axes,) = plotted
    assert [ax.get_title() for ax in axes] == ["cora", "cora, last epoch"]
    names = [label.get_text() for label in axes[0].get_yticklabels()]
    assert names[-3:] == ["train loss", "val loss", "test loss"]
    one, *marks = axes[0].lines
    assert list(one.get_xdata()) == [1, 1]
    marks = marks[: 2 * len(names)]  # without the legend's
    ratios = by_split(report)
    for i, name in enumerate(names):
        dots, diamond = marks[2 * i : 2 * i + 2]
        is_loss = name.endswith("loss")
        expected = [1.1] * 20 if is_loss else ratios
        if not name.startswith("rise"):
            assert list(dots.get_xdata()) == pytest.approx(expected)
            assert list(diamond.get_xdata()) == pytest.approx([math.exp(np.mean(np.log(expected)))])
        assert np.mean(dots.get_ydata()) == pytest.approx(i)
        assert list(diamond.get_ydata()) == [i]
        assert dots.get_color() == COLOURS[6 if is_loss else 5]
    assert axes[0].get_xscale() == "log"


def test_a_split_that_is_not_finite_is_counted_and_takes_the_verdict(make_record: MakeRecord, plotted: Plotted) -> None:
    def broken(run: Run) -> list[dict[str, Any]]:
        measured = flat(run)
        if run.split == 3 and run.setting.awp is not None:
            measured[0]["rises"] = [0.1, 0.2, 0.3, math.inf]
            measured[4]["gaps"] = 7
        return measured

    report = report_of(make_record, broken)
    table, _ = flatness_tables(report)
    (row,) = (r for r in table.rows if r[1].text == "sharpness, layer, rho=0.4" and r[0].text == "cora")
    assert [entry.text for entry in row[3:]] == ["nan", NOTHING, "not positive in 1", NOTHING, NOTHING, NOTHING]
    flatness_ratios(report)
    landscape_lines(report)
    ratios, lines = plotted
    assert [text.get_text() for text in ratios[0].texts] == ["1 without"]
    assert "GCN+WT-AWP, loss 0.300, 7 gaps" in [line.get_label() for line in lines[0].lines]
    claimed = check(report.plan.claims[0], report)
    assert claimed.verdict == "does not hold"
    assert "not comparable, as not positive numbers, by 2 of 20: sharpness, layer, rho=0.4 (cora)" in claimed.sentence


def test_without_records_there_is_nothing() -> None:
    empty = summarise(flatness_plan({"cora": (0.7, 1.0)}), [])
    assert flatness_tables(empty) == []
    assert flatness_ratios(empty) == ""
