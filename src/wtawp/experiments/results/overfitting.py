"""Does overfitting tell where a method helps? The gap between the losses of plain training, beside gains."""

from collections.abc import Sequence
from statistics import fmean

from wtawp.experiments.results.league import make_league
from wtawp.experiments.results.summary import CellReport, PlanReport


def gains_and_overfitting(report: PlanReport) -> dict[str, list[tuple[float, float, str]]]:
    """Collect the gains of methods, beside how much the training overfits that they are compared with.

    Args:
        report: A plan with a league, or with pairs whose second row is named after the first one, as in "GCN+WT-AWP".

    Returns:
        For each method how much the first row overfits, the gain, and the name of the column.
    """
    points: dict[str, list[tuple[float, float, str]]] = {}
    if report.plan.league:
        league = make_league(report)
        if league is None:
            return {}
        overfits = {s.column: overfitting(s.chosen) for s in league.of(league.reference)}
        for standing in league.standings:
            if standing.gain is not None:
                point = overfits[standing.column], standing.gain.mean, standing.column
                points.setdefault(standing.method, []).append(point)
        return points
    cells = {(c.cell.row, c.cell.column): c for c in report.cells}
    for pair in report.pairs:
        if pair.gain is not None:
            point = overfitting(cells[pair.before, pair.column]), pair.gain.mean, f"{pair.before} on {pair.column}"
            points.setdefault(pair.after.removeprefix(f"{pair.before}+"), []).append(point)
    return points


def overfitting(cell: CellReport) -> float:
    """How much a training overfits: the relative gap between its validation and training loss.

    Args:
        cell: A cell with finished runs.

    Returns:
        The mean of (L_val - L_train) / (L_val + L_train) over runs, at the selected epochs: 0 where both are equal, and
        near 1 where the training nodes are learned by heart.
    """
    # Both losses are 0 where everything was learned by heart.
    losses = [((record.loss or {})["train"], (record.loss or {})["val"]) for record in cell.records]
    return fmean(0.0 if train == val else (val - train) / (val + train) for train, val in losses)


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """Spearman's correlation of two series, and its p-value.

    Args:
        one: Numbers.
        other: As many.

    Returns:
        The correlation and the p-value.

    Example:
        >>> rank_correlation([1, 2, 3, 4], [10, 30, 40, 90])[0]
        1.0
    """
    from scipy.stats import spearmanr

    result = spearmanr(one, other)
    return float(result.statistic), float(result.pvalue)
