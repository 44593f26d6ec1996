"""Leagues: methods that were tuned with equally many trials, ranked over many models and data sets.

In each column the trial of a method counts that has the best mean accuracy on validation nodes; what is compared is its
accuracy on test nodes, over the same splits for all methods.
"""

import math
from dataclasses import dataclass
from statistics import fmean, median

from wtawp.experiments.results.statistics import SIGNIFICANCE_LEVEL, PairedDifference, holm
from wtawp.experiments.results.summary import CellReport, PlanReport, paired_over_splits

MIN_METHODS = 3  # that Friedman's test compares


@dataclass(frozen=True)
class Standing:
    """A method in a column.

    Attributes:
        method: The name of the method.
        column: The name of the column.
        chosen: The trial that is best on validation nodes.
        gain: Its difference to the chosen trial of the reference, paired over splits; None for the reference itself,
            and with fewer than two splits.
        holm_p_value: The p-value of the gain, corrected over all methods and columns.
        rank: By test accuracy among all methods in the column, 1 is best; equal ones share the mean of their ranks.
    """

    method: str
    column: str
    chosen: CellReport
    gain: PairedDifference | None
    holm_p_value: float | None
    rank: float

    @property
    def is_better(self) -> bool:
        """Whether it is significantly better than the reference."""
        return self.gain is not None and self.gain.mean > 0 and self._is_significant

    @property
    def is_worse(self) -> bool:
        """Whether it is significantly worse than the reference."""
        return self.gain is not None and self.gain.mean < 0 and self._is_significant

    @property
    def _is_significant(self) -> bool:
        """Whether chance cannot explain the gain."""
        return self.holm_p_value is not None and self.holm_p_value < SIGNIFICANCE_LEVEL


@dataclass(frozen=True)
class League:
    """The methods of a plan, ranked.

    Attributes:
        reference: The method that the others are compared with.
        standings: Every method in every column that is complete.
        mean_ranks: The mean rank of each method over columns, the best first.
        friedman_p_value: Of the hypothesis that all methods are alike.
        critical_difference: The difference of mean ranks from which on two methods differ significantly (Nemenyi).
    """

    reference: str
    standings: tuple[Standing, ...]
    mean_ranks: dict[str, float]
    friedman_p_value: float
    critical_difference: float

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns, in the order of the plan."""
        return tuple(dict.fromkeys(s.column for s in self.standings))

    def of(self, method: str) -> tuple[Standing, ...]:
        """The standings of a method.

        Args:
            method: Its name.

        Returns:
            One for each column.
        """
        return tuple(s for s in self.standings if s.method == method)

    def cost(self, method: str) -> float:
        """How many times as long as the reference a method trains.

        Args:
            method: Its name.

        Returns:
            The median over columns of the ratio of the mean times of the chosen trials.
        """
        reference = {s.column: s for s in self.of(self.reference)}
        return median(_seconds(s.chosen) / _seconds(reference[s.column].chosen) for s in self.of(method))


def make_league(report: PlanReport) -> League | None:
    """Rank the methods of a plan.

    Args:
        report: A plan with a league, and its measurements.

    Returns:
        The league over the columns in which every run is finished; None if there are fewer than two, or fewer than
        three methods, which cannot be ranked.
    """
    if len(report.plan.league) < MIN_METHODS:
        return None
    chosen: dict[str, dict[str, CellReport]] = {}
    for column in report.columns:
        cells = {c.cell.row: c for c in report.column(column)}
        if all(row in cells and cells[row].is_complete for method in report.plan.league for row in method.rows):
            chosen[column] = {
                method.name: max((cells[row] for row in method.rows), key=_validation_accuracy)
                for method in report.plan.league
            }
    if len(chosen) < 2:
        return None
    from scipy.stats import friedmanchisquare, rankdata, studentized_range

    reference, *_ = methods = [method.name for method in report.plan.league]
    gains = {
        (column, method): paired_over_splits(cells[reference], cells[method])
        for column, cells in chosen.items()
        for method in methods
        if method != reference
    }
    known = {place: gain for place, gain in gains.items() if gain is not None}
    p_values = dict(zip(known, holm([gain.p_value for gain in known.values()]), strict=True))
    accuracies = {column: [_mean(cells[method]) for method in methods] for column, cells in chosen.items()}
    ranks = {column: rankdata([-value for value in values]).tolist() for column, values in accuracies.items()}
    standings = tuple(
        Standing(method, column, cells[method], known.get((column, method)), p_values.get((column, method)), rank)
        for column, cells in chosen.items()
        for method, rank in zip(methods, ranks[column], strict=True)
    )
    mean_ranks = {m: fmean(values[i] for values in ranks.values()) for i, m in enumerate(methods)}
    size = len(methods)
    friedman = float(friedmanchisquare(*zip(*accuracies.values(), strict=True)).pvalue)
    quantile = float(studentized_range.ppf(1 - SIGNIFICANCE_LEVEL, size, math.inf)) / math.sqrt(2)
    difference = quantile * math.sqrt(size * (size + 1) / (6 * len(chosen)))
    return League(
        reference, standings, dict(sorted(mean_ranks.items(), key=lambda item: item[1])), friedman, difference
    )


def _validation_accuracy(cell: CellReport) -> float:
    """The mean accuracy on validation nodes."""
    return fmean((record.accuracy or {})["val"] for record in cell.records)


def _mean(cell: CellReport) -> float:
    """The mean test accuracy of a cell that is complete."""
    assert cell.mean is not None
    return cell.mean


def _seconds(cell: CellReport) -> float:
    """The mean time of a training."""
    return fmean(record.seconds for record in cell.records)
