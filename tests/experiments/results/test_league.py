from dataclasses import replace

import pytest
from scipy import stats

from wtawp.experiments.results.league import make_league
from wtawp.experiments.results.summary import PlanReport, summarise

GAINS = {"WT-AWP": (2.0, 1.0, 3.0, -1.0), "SAM": (0.5, 0.0, -0.5, 0.5)}
ACCURACIES = [[81.5, 81.5 + 1.15 * a, 81.5 + 1.15 * b] for a, b in zip(*GAINS.values(), strict=True)]  # by column


def test_the_trial_that_is_best_on_validation_nodes_counts_and_not_the_one_that_is_best_on_test_nodes(
    league_report: PlanReport,
) -> None:
    league = make_league(league_report)
    assert league is not None
    assert league.columns == ("cora", "citeseer", "wine", "digits")
    assert {s.chosen.cell.row for s in league.standings} == {"plain: 0.0001", "WT-AWP: 0.0001", "SAM: 0.0001"}
    for name, gains in GAINS.items():
        found = [s.gain.mean for s in league.of(name) if s.gain is not None]
        assert found == pytest.approx([1.15 * gain for gain in gains])
    assert {s.gain for s in league.of("plain")} == {None}


def test_ranks_share_ties_and_the_tests_are_those_of_the_textbook(league_report: PlanReport) -> None:
    league = make_league(league_report)
    assert league is not None
    ranks = {name: [s.rank for s in league.of(name)] for name in ("plain", "WT-AWP", "SAM")}
    assert ranks == {"plain": [3, 2.5, 2, 2], "WT-AWP": [1, 1, 1, 3], "SAM": [2, 2.5, 3, 1]}
    assert league.mean_ranks == {"WT-AWP": 1.5, "SAM": 2.125, "plain": 2.375}
    assert list(league.mean_ranks) == ["WT-AWP", "SAM", "plain"]
    expected = stats.friedmanchisquare(*zip(*ACCURACIES, strict=True)).pvalue
    assert league.friedman_p_value == pytest.approx(expected)
    assert league.critical_difference == pytest.approx(2.343 * (3 * 4 / (6 * 4)) ** 0.5, abs=1e-3)  # Demsar 2006


def test_significance_is_corrected_over_all_methods_and_columns(league_report: PlanReport) -> None:
    league = make_league(league_report)
    assert league is not None
    p_values = {(s.method, s.column): s.gain.p_value for s in league.standings if s.gain is not None}
    for standing in league.standings:
        place = standing.method, standing.column
        if place in p_values:
            p = p_values[place]
            smaller = sum(other < p for other in p_values.values())
            assert standing.holm_p_value is not None
            assert standing.holm_p_value >= min(1, (len(p_values) - smaller) * p) - 1e-12
    assert [s.is_better for s in league.of("WT-AWP")] == [True, True, True, False]
    assert [s.is_worse for s in league.of("WT-AWP")] == [False, False, False, True]
    assert not any(s.is_better or s.is_worse for s in league.of("plain"))


def test_the_cost_is_a_multiple_of_the_reference(league_report: PlanReport) -> None:
    league = make_league(league_report)
    assert league is not None
    assert (league.cost("plain"), league.cost("WT-AWP")) == (1.0, 2.5)


def test_a_column_that_is_not_complete_takes_no_part(league_report: PlanReport) -> None:
    cells = league_report.cells
    lost = replace(cells[0], records=cells[0].records[:-1])
    league = make_league(replace(league_report, cells=(lost, *cells[1:])))
    assert league is not None
    assert league.columns == ("citeseer", "wine", "digits")
    assert make_league(replace(league_report, cells=cells[:3])) is None


def test_a_part_of_a_league_that_cannot_be_ranked_is_none(league_report: PlanReport) -> None:
    plan, records = league_report.plan, league_report.records
    rows = {method.name: method.rows for method in plan.league}
    for kept, contenders in (
        ((*rows["plain"], *rows["SAM"]), ["plain", "SAM"]),
        ((*rows["SAM"], *rows["WT-AWP"]), []),  # the reference is gone
        (rows["plain"][:1], []),
    ):
        part = plan.only(rows=kept)
        assert [method.name for method in part.league] == contenders
        assert make_league(summarise(part, records)) is None
    whole = plan.only(columns=("cora", "wine"))
    assert whole.league == plan.league
    league = make_league(summarise(whole, records))
    assert league is not None
    assert (league.columns, league.reference) == (("cora", "wine"), "plain")
