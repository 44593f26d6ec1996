"""The figures of a league: mean ranks with what chance can explain, and where a method helps."""

from wtawp.experiments.report.drawing import COLOURS, GREY, drawing
from wtawp.experiments.results.league import League, make_league, overfitting, rank_correlation
from wtawp.experiments.results.summary import PlanReport

HELPER = "WT-AWP"  # the method whose gain is explained


def critical_difference(report: PlanReport) -> str:
    """Draw the mean ranks of the methods, with bars over groups whose differences chance can explain.

    Args:
        report: A plan with a league, and its measurements.

    Returns:
        The figure as SVG text; "" where too few columns are complete.
    """
    league = make_league(report)
    if league is None:
        return ""
    ranks = list(league.mean_ranks.items())
    groups = _groups([rank for _, rank in ranks], league.critical_difference)
    with drawing(1, 1, 7.5, 0.9 + 0.26 * len(ranks)) as (axes, out):
        ax = axes[0]
        for i, (method, rank) in enumerate(ranks):
            ax.plot([rank], [i], color=COLOURS[0], marker="o", markersize=5)
            ax.annotate(f"{method}, {rank:.2f}", (rank, i), (7, 0), textcoords="offset points", va="center")
        for number, (first, last) in enumerate(groups):
            x = [ranks[first][1], ranks[last][1]]
            height = len(ranks) + 0.5 * number
            ax.plot(x, [height, height], color=COLOURS[1], linewidth=2.5, solid_capstyle="butt")
        ax.set(
            xlabel="mean rank (1 is best); bars: chance can explain the differences",
            ylim=(len(ranks) + 0.5 * len(groups), -0.7),
            xlim=(min(rank for _, rank in ranks) - 0.3, max(rank for _, rank in ranks) + 2.5),
        )
        ax.set_yticks([])
        ax.spines["left"].set_visible(False)
    return out[0]


def _groups(ranks: list[float], difference: float) -> list[tuple[int, int]]:
    """The largest groups of neighbours, as positions of the first and the last, that are less than that apart."""
    groups: list[tuple[int, int]] = []
    for first, rank in enumerate(ranks):
        last = max(i for i, other in enumerate(ranks) if other - rank < difference)
        if last > first and (not groups or last > groups[-1][1]):
            groups.append((first, last))
    return groups


def overfitting_and_gain(report: PlanReport) -> str:
    """Draw the gain of WT-AWP over how much plain training overfits, a dot for each column.

    Args:
        report: A plan with a league, and its measurements.

    Returns:
        The figure as SVG text; "" where too few columns are complete.
    """
    league = make_league(report)
    if league is None:
        return ""
    points = where_it_helps(league)
    correlation, p_value = rank_correlation([x for x, _, _ in points], [y for _, y, _ in points])
    with drawing(1, 1, 6.5, 3.8) as (axes, out):
        ax = axes[0]
        ax.axhline(0, color=GREY, linewidth=0.8)
        for x, y, column in points:
            ax.plot([x], [y], color=COLOURS[0], marker="o", markersize=5)
            ax.annotate(column, (x, y), (6, 3), textcoords="offset points", fontsize=8)
        ax.set(
            xlabel="overfitting of plain training: (L_val - L_train) / (L_val + L_train)",
            ylabel=f"gain of {HELPER}, points",
            title=f"rank correlation {correlation:+.2f}, p = {p_value:.2g}",
        )
        ax.margins(x=0.15)
    return out[0]


def where_it_helps(league: League) -> list[tuple[float, float, str]]:
    """How much plain training overfits in each column, beside the gain of WT-AWP.

    Args:
        league: The league.

    Returns:
        For each column the relative gap of the losses of the reference, the gain, and the name of the column.
    """
    gains = {s.column: s.gain.mean for s in league.of(HELPER) if s.gain is not None}
    return [(overfitting(s.chosen), gains[s.column], s.column) for s in league.standings if s.gain is None]
