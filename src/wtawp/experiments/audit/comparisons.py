"""What the sections of an audit say about two rows: values by run, paired over splits."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from wtawp.experiments.results.geometry import MATRICES, quantities_of, results_of
from wtawp.experiments.results.statistics import SIGNIFICANCE_LEVEL, PairedDifference, holm, paired_difference
from wtawp.experiments.results.summary import CellReport, PlanReport, has_only_split, paired_means, summarise

Values = Mapping[tuple[int, int], float]  # by split and initialisation
Compared = tuple[tuple[CellReport, CellReport], tuple[Values, Values]]
Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Lead:
    """How far one row is ahead of another, paired over splits.

    Attributes:
        mean: The mean difference.
        low: The lower end of its 95 % interval; None where the splits do not vary.
        high: The upper end, likewise.
        p_value: Of the difference, corrected for the comparisons that were made with it.
        num_pairs: The number of pairs.
    """

    mean: float
    low: float | None
    high: float | None
    p_value: float
    num_pairs: int

    @property
    def is_clear(self) -> bool:
        """Whether chance between splits does not explain the difference."""
        return self.p_value < SIGNIFICANCE_LEVEL

    def describe(self, unit: str = "points", form: str = "+.2f") -> str:
        """Write the difference with its interval, and whether it can be told from chance.

        Args:
            unit: What is counted.
            form: The format of a number.

        Returns:
            A phrase.

        Example:
            >>> Lead(1.5, 1.0, 2.0, 0.01, 5).describe()
            '+1.50 points (95 % interval +1.00 to +2.00)'
        """
        number = f"{self.mean:{form}}" if f"{self.mean:{form}}".strip("+-0.") else "+0"  # never "-0.00"
        number += f" {unit}" * bool(unit)
        if self.low is None or self.high is None:
            if self.mean == 0:
                return f"equal in all of {self.num_pairs} pairs"
            return f"{number} in all of {self.num_pairs} pairs, so chance cannot be estimated"
        text = f"{number} (95 % interval {self.low:{form}} to {self.high:{form}})"
        if self.is_clear:
            return text
        if self.low > 0 or self.high < 0:
            return f"{text}, not clear once corrected for the number of comparisons"
        return f"{text}, which cannot be distinguished from chance"


def lead_of(difference: PairedDifference | None, p_value: float | None, *, reverse: bool = False) -> Lead | None:
    """Turn a paired difference into a lead.

    Args:
        difference: The second row less the first; None with fewer than two splits.
        p_value: Its corrected p-value; None uses its own.
        reverse: Whether the lead of the first row is wanted.

    Returns:
        The lead; None where there is no difference.
    """
    if difference is None:
        return None
    p = difference.p_value if p_value is None else p_value
    ends = difference.low, difference.high
    if reverse:
        low, high = (None if end is None else -end for end in reversed(ends))
        return Lead(-difference.mean, low, high, p, difference.num_pairs)
    return Lead(difference.mean, *ends, p, difference.num_pairs)


def accuracy_lead(report: PlanReport, column: str, row: str, over: str) -> Lead | None:
    """How much more accurate a row is than another, in points.

    Args:
        report: A plan with its measurements.
        column: The column.
        row: The row.
        over: The other row.

    Returns:
        The lead; None where the two are no pair of the plan, or have fewer than two splits.
    """
    for pair in report.pairs:
        if pair.column == column and {pair.before, pair.after} == {row, over}:
            return lead_of(pair.gain, pair.holm_p_value, reverse=pair.before == row)
    return None


def values_leads(compared: Mapping[Name, Compared]) -> dict[Name, Lead]:
    """Compare series of values of two cells each, the second less the first.

    Args:
        compared: By the name of each comparison, its two cells, which say what is paired, and their values.

    Returns:
        The leads of the second cells, with p-values that are corrected by Holm's method over all comparisons; without
        those that have fewer than two pairs.
    """
    differences = {}
    for name, (cells, values) in compared.items():
        only = all(has_only_split(cell.cell) for cell in cells)
        first, second = paired_means(*values, over="splits" if only else "inits")
        if len(first) > 1:
            differences[name] = paired_difference(first, second)
    corrected = holm([difference.p_value for difference in differences.values()])
    leads = zip(differences.items(), corrected, strict=True)
    return {name: lead for (name, each), p_value in leads if (lead := lead_of(each, p_value)) is not None}


def worst_accuracies(reports: Sequence[PlanReport], column: str, row: str) -> Values:
    """The lowest accuracy of each run over several attacks.

    Args:
        reports: The plans of the attacks with their measurements.
        column: The column of the budget, which all of them have.
        row: The row.

    Returns:
        Per cent of the test nodes, of the runs that every attack has measured.
    """
    measured = [c.accuracies for report in reports for c in report.column(column) if c.cell.row == row]
    runs = set.intersection(*(set(each) for each in measured)) if measured else set()
    return {run: min(each[run] for each in measured) for run in sorted(runs)}


def two_rows(report: PlanReport, before: str, after: str) -> PlanReport:
    """Take two rows of a plan, for the comparisons that are made of two.

    Args:
        report: A plan with its measurements.
        before: The first row.
        after: The second row.

    Returns:
        The part of the plan, with the same records.
    """
    return summarise(report.plan.only(rows=(before, after)), report.records, report.device)


def certified_at(cell: CellReport, additions: int, deletions: int) -> Values:
    """Certified accuracy of each run at a radius.

    Args:
        cell: A cell that shows a certificate.
        additions: Entries that may be added.
        deletions: Entries that may be deleted.

    Returns:
        Per cent of the test nodes.
    """

    def at(grid: list[list[float]]) -> float:
        inside = additions < len(grid) and deletions < len(grid[0])
        return 100 * grid[additions][deletions] if inside else 0.0

    index = cell.cell.measure
    assert index is not None
    return {run: at(result["certified"]) for run, result in results_of(cell, index).items()}


def geometry_values(cell: CellReport) -> dict[str, Values]:
    """Flatness and smoothness of each run, by the name of the quantity.

    Args:
        cell: A cell with its measurements.

    Returns:
        The values; of the sharpness at the largest radius alone, and without losses.
    """
    values: dict[str, Values] = {q.label: v for q, v in quantities_of(cell).items() if q.kind == "flatness"}
    for index, measure in enumerate(cell.cell.setting.measures):
        options: dict[str, Any] = dict(measure.options)
        if options.get("wrt") in MATRICES:
            what = {"adjacency": "edges", "features": "features"}[options["wrt"]]
            values[f"gradient by {what}"] = {run: r["norm"] for run, r in results_of(cell, index).items()}
    return values
