"""The tables of a league: how the methods stand, and what each reaches on each data set."""

from statistics import fmean

from wtawp.experiments.report.tables import Entry, Table, number
from wtawp.experiments.results.league import League, make_league
from wtawp.experiments.results.summary import PlanReport, has_only_split


def league_tables(report: PlanReport) -> list[Table]:
    """Make the tables of a league.

    Args:
        report: A plan with a league, and its measurements.

    Returns:
        The methods by their mean rank, then a row for each column of the plan; none where too few columns are complete.
    """
    league = make_league(report)
    return [] if league is None else [_standings(league, report), _accuracies(league, report)]


def _standings(league: League, report: PlanReport) -> Table:
    """The methods by mean rank."""
    trials = len(report.plan.league[0].rows)
    rows = []
    for method, rank in league.mean_ranks.items():
        gains = [(s.gain.mean, s.column) for s in league.of(method) if s.gain is not None]
        worst = min(gains, default=None)
        rows.append((
            Entry(method), number(rank), number(fmean(gain for gain, _ in gains) if gains else None, "+.2f"),
            Entry("–") if worst is None else Entry(f"{worst[0]:+.2f} ({worst[1]})", worst[0]),  # noqa: RUF001
            number(sum(s.is_better for s in league.of(method)), "d"),
            number(sum(s.is_worse for s in league.of(method)), "d"), number(league.cost(method), ".1f"),
        ))  # fmt: skip
    reference = report.plan.league[0].name
    has_one_split = all(has_only_split(cell.cell) for cell in report.cells)
    pairs = "initialisations of the only split" if has_one_split else "splits"
    return Table(
        f"The league. Each method had {trials} trials in each of {len(league.columns)} columns; the one that is best "
        f"on validation nodes counts, with its accuracy on test nodes. Gains are against {reference}, which was tuned "
        f"likewise, in points; better and worse: columns in which the gain is significant (paired over {pairs}, Holm "
        "over all methods and columns). Two mean ranks differ significantly if they are "
        f"{league.critical_difference:.2f} apart (Nemenyi); that all methods are alike has p = "
        f"{league.friedman_p_value:.2g} (Friedman). Time: of a training, as a multiple of {reference}, median over "
        "columns.",
        ("method", "mean rank", "mean gain", "worst gain", "better", "worse", "time"),
        tuple(rows),
    )


def _accuracies(league: League, report: PlanReport) -> Table:
    """What each method reaches in each column."""
    methods = [method.name for method in report.plan.league]
    by_place = {(s.column, s.method): s for s in league.standings}
    rows = tuple(
        (Entry(column), *(number(by_place[column, method].chosen.mean) for method in methods))
        for column in league.columns
    )
    return Table("Test accuracy in per cent of the trial that counts.", ("column", *methods), rows)
