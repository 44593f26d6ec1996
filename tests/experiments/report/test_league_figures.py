from dataclasses import replace
from typing import Any

import pytest

from wtawp.experiments.report.gain_figures import gains_over_overfitting
from wtawp.experiments.report.league_figures import critical_difference
from wtawp.experiments.results.league import make_league
from wtawp.experiments.results.summary import PlanReport


def test_the_mean_ranks_are_drawn_with_bars_over_what_chance_can_explain(
    league_report: PlanReport, plotted: list[list[Any]]
) -> None:
    critical_difference(league_report)
    ((ax,),) = plotted
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    assert [dot.get_xdata()[0] for dot in dots] == [1.5, 2.125, 2.375]
    assert [text.get_text() for text in ax.texts] == ["WT-AWP, 1.50", "SAM, 2.12", "plain, 2.38"]
    league = make_league(league_report)
    assert league is not None
    assert league.critical_difference > 2.375 - 1.5
    (bar,) = (line for line in ax.lines if line.get_marker() != "o")
    assert list(bar.get_xdata()) == [1.5, 2.375]


def test_gains_are_drawn_over_overfitting_with_their_correlation(
    league_report: PlanReport, plotted: list[list[Any]]
) -> None:
    gains_over_overfitting(league_report)
    ((ax,),) = plotted  # SAM is not explained
    dots = ax.lines[1]
    assert list(dots.get_xdata()) == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert list(dots.get_ydata()) == pytest.approx([2.3, 1.15, 3.45, -1.15])
    assert ax.get_title() == "WT-AWP\nrank correlation -0.40, p = 0.6"


def test_without_runs_nothing_is_drawn(league_report: PlanReport) -> None:
    nothing = replace(league_report, cells=tuple(replace(cell, records=()) for cell in league_report.cells))
    assert critical_difference(nothing) == gains_over_overfitting(nothing) == ""
