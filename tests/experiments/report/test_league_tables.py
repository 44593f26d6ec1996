from dataclasses import replace

from wtawp.experiments.report.contents import tables_of
from wtawp.experiments.report.league_tables import league_tables
from wtawp.experiments.results.summary import PlanReport
from wtawp.experiments.spec import SplitRule


def test_the_methods_are_listed_from_the_best_on(league_report: PlanReport) -> None:
    standings, accuracies = league_tables(league_report)
    assert [[entry.text for entry in row] for row in standings.rows] == [
        ["WT-AWP", "1.50", "+1.44", "-1.15 (digits)", "3", "1", "2.5"],
        ["SAM", "2.12", "+0.14", "-0.57 (wine)", "2", "1", "2.5"],
        ["plain", "2.38", "–", "–", "0", "0", "1.0"],  # noqa: RUF001
    ]
    assert "2 trials in each of 4 columns" in standings.caption
    assert "(paired over splits, Holm" in standings.caption
    assert [entry.text for entry in accuracies.rows[0]] == ["cora", "81.50", "83.80", "82.08"]
    assert accuracies.headers == ("column", "plain", "WT-AWP", "SAM")


def test_a_league_shows_no_row_for_each_trial_once_it_is_complete(league_report: PlanReport) -> None:
    assert tables_of(league_report) == league_tables(league_report)
    unfinished = replace(league_report, cells=tuple(replace(cell, records=()) for cell in league_report.cells))
    assert [table.headers[0] for table in tables_of(unfinished)] == ["row"]


def test_the_caption_says_if_only_initialisations_of_one_split_are_paired(league_report: PlanReport) -> None:
    rule = SplitRule(kind="masks")
    cells = tuple(
        replace(c, cell=replace(c.cell, splits=1, setting=replace(c.cell.setting, split=rule)))
        for c in league_report.cells
    )
    standings, _ = league_tables(replace(league_report, cells=cells))
    assert "(paired over initialisations of the only split, Holm" in standings.caption
