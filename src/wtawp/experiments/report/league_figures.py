"""The figure of a league: mean ranks, and what chance can explain."""

from wtawp.experiments.report.drawing import COLOURS, drawing
from wtawp.experiments.results.league import make_league
from wtawp.experiments.results.summary import PlanReport


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
