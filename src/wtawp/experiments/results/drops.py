"""Robustness as a drop: what an attack takes from two methods, beside their gain.

A method that is more accurate on the clean graph stays so under an attack that takes as much from both. Only a smaller
drop is robustness of its own.
"""

from dataclasses import dataclass
from statistics import fmean

from wtawp.experiments.results.statistics import SIGNIFICANCE_LEVEL, PairedDifference, holm, paired_difference
from wtawp.experiments.results.summary import CellReport, PlanReport, paired_means


@dataclass(frozen=True)
class DropComparison:
    """The drops of two rows of a column, in points, paired over splits. `gain` is `clean_gain` less the mean change.

    Attributes:
        before: The row without the method.
        after: The row with it.
        column: The column of both.
        clean_gain: The mean gain in accuracy on the clean graph.
        gain: The mean gain in accuracy under attack.
        drop_before: The mean drop of the first row.
        drop_after: The mean drop of the second row.
        change: The drop of the second row less that of the first; below 0, the attack takes less from the method.
        holm_p_value: The p-value of the change, corrected over all comparisons of drops in the plan.
    """

    before: str
    after: str
    column: str
    clean_gain: float
    gain: float
    drop_before: float
    drop_after: float
    change: PairedDifference
    holm_p_value: float

    @property
    def is_smaller(self) -> bool:
        """Whether the drop is significantly smaller with the method."""
        return self.change.mean < 0 and self.holm_p_value < SIGNIFICANCE_LEVEL

    @property
    def is_larger(self) -> bool:
        """Whether the drop is significantly larger with the method."""
        return self.change.mean > 0 and self.holm_p_value < SIGNIFICANCE_LEVEL


def compare_drops(report: PlanReport) -> tuple[DropComparison, ...]:
    """Compare the drops of the pairs of a plan.

    Args:
        report: A plan with its measurements.

    Returns:
        A comparison for each pair and column with two splits in which both rows have drops.
    """
    cells = {(c.cell.row, c.cell.column): c for c in report.cells}
    compared = []
    for pair in report.pairs:
        before, after = cells[pair.before, pair.column], cells[pair.after, pair.column]
        first, second = split_drops(before, after)
        if len(first) > 1:
            compared.append((before, after, paired_difference(first, second), fmean(first), fmean(second)))
    corrected = holm([change.p_value for _, _, change, _, _ in compared])
    return tuple(
        DropComparison(
            before.cell.row, after.cell.row, before.cell.column, gain + change.mean, gain, first, second, change, p
        )
        for (before, after, change, first, second), p in zip(compared, corrected, strict=True)
        for gain in [_gain(before, after)]
    )


def split_drops(before: CellReport, after: CellReport) -> tuple[list[float], list[float]]:
    """Average the drops of two cells over the initialisations that both have.

    Args:
        before: The first cell.
        after: The second cell.

    Returns:
        The mean drops of the first and of the second cell, one for each split that both have.
    """
    return paired_means(before.drops, after.drops)


def _gain(before: CellReport, after: CellReport) -> float:
    """The mean gain under attack, over the runs that have drops in both cells."""
    first, second = (
        {run: cell.accuracies[run] for run in before.drops.keys() & after.drops.keys()} for cell in (before, after)
    )
    means = paired_means(first, second)
    return fmean(means[1]) - fmean(means[0])
