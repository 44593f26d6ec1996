from collections.abc import Callable
from statistics import mean
from typing import Any

import numpy as np
import pytest
from scipy import stats

from wtawp.core import AwpConfig
from wtawp.experiments.report.gain_figures import gains, gains_by_column, gains_over_lam
from wtawp.experiments.results.summary import summarise
from wtawp.experiments.spec import Cell, Plan, Record, Setting

MakeRecords = Callable[..., list[Record]]
Plotted = list[list[Any]]
WT = AwpConfig(rho=1.0, lam=0.7)


def test_gains_have_their_sign_their_splits_and_their_interval(
    small_plan: Plan, make_records: MakeRecords, plotted: Plotted
) -> None:
    by_split = {"cora": [2.0, 1.0, 3.0, 2.5], "karate": [-1.0, -1.5, 0.25, -2.0]}

    def accuracy(cell: Cell, split: int, init: int) -> float:
        return 80.0 + split + 0.1 * init + (by_split[cell.column][split] if cell.row == "WT-AWP" else 0.0)

    gains(summarise(small_plan, make_records(small_plan, accuracy)))
    ((ax,),) = plotted
    assert [label.get_text() for label in ax.get_yticklabels()] == ["WT-AWP, cora", "WT-AWP, karate"]
    zero, *marks = ax.lines
    assert zero.get_xdata() == [0, 0]
    for i, differences in enumerate(by_split.values()):
        dots = np.asarray(ax.collections[i].get_offsets())
        assert dots[:, 0] == pytest.approx(differences)
        assert np.all(np.diff(dots[:, 1]) > 0), "the first split on top"
        assert dots[:, 1].mean() == pytest.approx(i)
        interval = stats.ttest_1samp(differences, 0.0).confidence_interval(0.95)
        bar, diamond, printed = marks[3 * i : 3 * i + 3]
        assert bar.get_xdata() == pytest.approx([interval.low, interval.high])
        assert (printed.get_xdata(), printed.get_ydata()) == (pytest.approx([(1.0, 0.2)[i]]), [i])
        assert ax.collections[i].get_zorder() > max(bar.get_zorder(), diamond.get_zorder()), "dots over the bar"
        assert (diamond.get_xdata(), diamond.get_ydata()) == (pytest.approx([mean(differences)]), [i])
    assert ax.get_ylim() == (1.5, -0.5)


def test_under_attack_a_second_panel_shows_the_change_of_the_drop(
    poisoned_plan: Plan, poisoned_records: list[Record], plotted: Plotted
) -> None:
    gains(summarise(poisoned_plan, poisoned_records))
    ((gained, drops),) = plotted
    assert [label.get_text() for label in gained.get_yticklabels()] == ["GCN+WT-AWP, no attack", "GCN+WT-AWP, 5 %"]
    (dots,) = drops.collections  # nothing for the column without attack
    assert np.asarray(dots.get_offsets())[:, 0] == pytest.approx([-1.0, -1.5, -0.5])
    assert np.asarray(dots.get_offsets())[:, 1].mean() == pytest.approx(1)


def test_the_gains_of_several_models_stand_side_by_side_in_their_columns(
    make_records: MakeRecords, plotted: Plotted
) -> None:
    methods = {"": None, "+WT-AWP": WT, "+WT-AWP auto": AwpConfig(rho=1.0, lam="auto")}
    models, columns = ("GCN", "GAT"), ("cora", "karate", "wine")
    cells = [Cell(f"{m}{suffix}", c, Setting(dataset=c, model=m, awp=awp), 3, 1)
             for m in models for suffix, awp in methods.items() for c in columns]  # fmt: skip
    pairs = tuple((m, f"{m}{suffix}") for m in models for suffix in methods if suffix)
    gain = {"+WT-AWP": -40.0, "+WT-AWP auto": 0.5}

    def accuracy(cell: Cell, split: int, _init: int) -> float:
        suffix = cell.row.removeprefix(cell.setting.model)
        return 80.0 + split + gain.get(suffix, 0.0) * (1 + 0.1 * split * columns.index(cell.column))

    plan = Plan("tab:many", "Many", tuple(cells), pairs)
    gains_by_column(summarise(plan, make_records(plan, accuracy)))
    ((ax,),) = plotted
    dots = {m: [line for line in ax.lines if line.get_marker() == m and len(line.get_xdata())] for m in "oD"}
    for marker, suffix, shift in (("o", "+WT-AWP", 0.375), ("D", "+WT-AWP auto", 0.625)):
        expected = [(1 + 0.1 * i, i + 0.85 * ((m + shift) / 2 - 0.5)) for m in range(2) for i in range(3)]
        places = [(dot.get_ydata()[0] / gain[suffix], dot.get_xdata()[0]) for dot in dots[marker]]
        assert places == [pytest.approx(pair) for pair in expected]
        assert len({dot.get_color() for dot in dots[marker]}) == 1
    assert [label.get_text() for label in ax.get_xticklabels()] == list(columns)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["WT-AWP", "WT-AWP auto"]
    assert ax.get_ylim()[0] < -48
    assert "GCN, GAT" in ax.get_title()


def test_the_gain_over_lam_has_a_line_for_each_rho_and_one_for_auto(
    make_records: MakeRecords, plotted: Plotted
) -> None:
    gain = {(rho, lam): 10 * rho + lam for rho in (0.5, 1.0) for lam in (0.3, 0.7)}
    rows: dict[str, AwpConfig | None] = {"plain": None, "auto": AwpConfig(rho=1.0, lam="auto")}
    rows |= {f"{rho} {lam}": AwpConfig(rho=rho, lam=lam) for rho, lam in gain}
    cells = tuple(Cell(row, "wine", Setting(dataset="wine", awp=awp), 4, 1) for row, awp in rows.items())

    def accuracy(cell: Cell, split: int, _init: int) -> float:
        awp = cell.setting.awp
        added = 0.0 if awp is None else 5.0 + split if awp.is_auto else gain[awp.rho, awp.fixed_lam]
        return 50.0 + 3 * split + added

    plan = Plan("tab:lam", "Over lam", cells, tuple(("plain", row) for row in rows if row != "plain"))
    gains_over_lam(summarise(plan, make_records(plan, accuracy)))
    ((ax,),) = plotted
    lines = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in ax.lines}
    assert lines["rho = 0.5"] == ([0.3, 0.7], pytest.approx([5.3, 5.7]))
    assert lines["rho = 1"] == ([0.3, 0.7], pytest.approx([10.3, 10.7]))
    assert lines['lam="auto"'][1] == pytest.approx([6.5, 6.5])
    assert ax.get_title() == "wine"


def test_without_pairs_or_runs_there_are_no_gains(small_plan: Plan) -> None:
    nothing = summarise(small_plan, [])
    assert gains(nothing) == gains_by_column(nothing) == gains_over_lam(nothing) == ""
