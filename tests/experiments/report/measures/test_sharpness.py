import math
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from wtawp.experiments.plans.geometry import flatness_plan, sharpness_plan, smoothness_plan, vanishing_plan
from wtawp.experiments.report.drawing import COLOURS, drawing, method_style
from wtawp.experiments.report.figures import figures_of
from wtawp.experiments.report.geometry_figures import (
    draw_lines,
    flatness_ratios,
    flatness_table,
    has_flatness,
    has_smoothness,
    landscape_lines,
    matched_loss_table,
    smoothness_arrows,
    smoothness_table,
)
from wtawp.experiments.report.pages import tables_of
from wtawp.experiments.report.tables import NOTHING
from wtawp.experiments.results.claims import check
from wtawp.experiments.results.summary import PlanReport, summarise
from wtawp.experiments.spec.plan import Plan, Run
from wtawp.experiments.spec.record import Record

MakeRecord = Callable[..., Record]


def flat(run: Run) -> list[dict[str, object]]:
    by = 1.0 if run.setting.awp is None else 0.5
    by *= 1 + 0.01 * ((run.split * 7) % 5)
    rise = [{"radius": r, "rhos": [0.1, 0.2, 0.3, 0.4], "rises": [by, 2 * by, 3 * by, 4 * by]} for r in "abc"]
    line = {"scale": "layer", "distances": [-1.0, 0.0, 1.0], "mean": [by, 0.3, by], "loss": 0.3, "gaps": 0}
    return [*rise, {"top": [by], "trace": by, "trace_error": 0.1}, line, {**line, "scale": "unit"}]


def report_of(plan: Plan, make_record: MakeRecord, measured: Callable[[Run], list[dict[str, object]]]) -> PlanReport:
    losses = dict.fromkeys(("train", "val", "test"), 0.3)
    return summarise(plan, [
        make_record(key=run.key, setting=run.setting.content, split=run.split, init=run.init, measured=measured(run),
                    loss=losses) for run in plan.runs()
    ])  # fmt: skip


def texts(svg: str) -> str:
    return " ".join("".join(e.itertext()) for e in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"))


def test_the_same_method_has_the_same_colour_everywhere() -> None:
    assert method_style("GCN")["color"] == method_style("natural")["color"] == COLOURS[0]
    kinds = ("GCN", "GCN+AWP", "T-AWP rho=1", "W-AWP", "GCN+WT-AWP")
    assert len({method_style(name)["color"] for name in kinds}) == 5
    assert method_style("W-AWP, balance=1") == {**method_style("W-AWP"), "linestyle": "--"}


def test_flatness_is_told_and_drawn(make_record: MakeRecord, tmp_path: Path) -> None:
    report = report_of(flatness_plan({"cora": (0.7, 1.0)}), make_record, flat)
    assert has_flatness(report)
    assert not has_smoothness(report)
    table = flatness_table(report)
    assert table in tables_of(report)
    rows = {row[1].text: [entry.text for entry in row] for row in table.rows}
    assert rows["largest eigenvalue"][-1] == "flatter"
    assert rows["largest eigenvalue"][4:7:2] == ["0.5", "20 of 20"]
    alike = matched_loss_table(report)
    assert alike in tables_of(report)
    assert [entry.text for entry in alike.rows[0]] == ["cora", "sharpness, layer, rho=0.2", "0.50", "20 of 20"]
    assert rows["train loss"][-1] == NOTHING
    assert "below 1 is flatter" in texts(flatness_ratios(report, tmp_path / "flat.png"))
    assert (tmp_path / "flat.png").stat().st_size > 1000
    lines = texts(landscape_lines(report))
    assert "GCN+WT-AWP, loss 0.300" in lines
    assert "lengths of each layer's weights" in lines
    assert [svg != "" for _, svg, _ in figures_of(report)] == [True, True, True]


def test_a_split_that_is_not_finite_is_counted_and_takes_the_verdict(make_record: MakeRecord) -> None:
    def broken(run: Run) -> list[dict[str, object]]:
        measured = flat(run)
        if run.split == 3 and run.setting.awp is not None:
            measured[0]["rises"] = [0.1, 0.2, 0.3, math.inf]
            measured[4]["gaps"] = 7
        return measured

    report = report_of(flatness_plan({"cora": (0.7, 1.0)}), make_record, broken)
    (row,) = (
        r for r in flatness_table(report).rows if r[1].text == "sharpness, layer, rho=0.4" and r[0].text == "cora"
    )
    assert [entry.text for entry in row[3:]] == ["inf", NOTHING, "not finite in 1", NOTHING, NOTHING, NOTHING]
    assert "1 without" in texts(flatness_ratios(report))
    assert "GCN+WT-AWP, loss 0.300, 7 gaps" in texts(landscape_lines(report))
    claimed = check(report.plan.claims[0], report)
    assert claimed.verdict == "does not hold"
    assert "not comparable, as not finite, by 2 of 20: sharpness, layer, rho=0.4 (cora)" in claimed.sentence


def test_arrows_tell_how_many_pairs_are_better(make_record: MakeRecord) -> None:
    def norms(run: Run) -> list[dict[str, object]]:
        return [{"norm": 1.0 if run.setting.awp is None else 0.5, "spread": 0.0}] * 4

    report = report_of(smoothness_plan(), make_record, norms)
    drawn = texts(smoothness_arrows(report))
    assert "cora, A, paper 0 of 10 better and smoother" in drawn, "their accuracies are equal"
    assert "test accuracy, %" in drawn
    first = [entry.text for entry in smoothness_table(report).rows[0]]
    assert first == ["cora", "A", "paper", "1", "0.5", "0 of 10", "10 of 10", "0 of 10"]


def test_without_records_there_is_nothing_to_draw() -> None:
    for plan in (smoothness_plan(), flatness_plan({"cora": (0.7, 1.0)}), sharpness_plan(), vanishing_plan()):
        empty = summarise(plan, [])
        assert all(svg == "" for _, svg, _ in figures_of(empty))
        assert not has_flatness(empty)


def test_what_is_not_finite_is_a_gap_and_counted() -> None:
    lines = np.array([[1.0, 0.0, np.inf], [np.nan, 0.0, 2.0]])
    with drawing(1, 1, 3, 2) as ((ax,), _):
        draw_lines(ax, [-1.0, 0.0, 1.0], lines, "GCN", [0.1])
        (line,) = ax.lines
        assert np.isnan(line.get_ydata()).tolist() == [True, False, True]
        assert line.get_label() == "GCN, loss 0.100, 2 gaps"
    with pytest.raises(KeyError):
        from wtawp.experiments.report.geometry_figures import unit_of

        unit_of("layers")
