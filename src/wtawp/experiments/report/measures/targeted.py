"""The report of the measure "targeted": how many targets the attacks have misled, and by how many flips."""

from statistics import fmean
from typing import Any

from wtawp.experiments.report.reporters import Reporter
from wtawp.experiments.report.tables import Entry, Table, number
from wtawp.experiments.results.summary import CellReport, PlanReport


def targeted_table(report: PlanReport) -> list[Table]:
    """The share of targets that are misclassified after their attacks, with the flips that were made.

    Args:
        report: A plan with its measurements.

    Returns:
        One table; none where nothing was measured.
    """
    rows = []
    for cell in report.cells:
        targets = _targets(cell)
        if not targets:
            continue
        counted = [each for each in targets if "error" not in each]
        misled = [each for each in counted if not each["is_right"]]
        flips = [each["added"] + each["removed"] for each in targets if "flips" in each]
        rows.append((
            Entry(cell.cell.row), Entry(cell.cell.column), Entry(f"{len(misled)} of {len(counted)}", len(misled)),
            number(100 * len(misled) / len(counted), ".1f"), number(fmean(flips) if flips else None, ".1f"),
            number(sum("no_flip" in each for each in targets), ".0f"), number(len(targets) - len(counted), ".0f"),
        ))  # fmt: skip
    caption = (
        "Attacks on single test nodes: the targets that are misclassified after an attack of their own, also in per "
        "cent, the mean number of flips for a target, and the targets for which no flip is allowed, and those on "
        "which the attack failed, which are not counted. All targets were classified correctly before."
    )
    headers = ("row", "column", "misled", "%", "flips each", "no flip", "failed")
    return [Table(caption, headers, tuple(rows))] if rows else []


def _targets(cell: CellReport) -> list[dict[str, Any]]:
    """The targets of all finished runs of a cell that shows an attack on single nodes."""
    index = cell.cell.measure
    results = [] if index is None else [(record.measured or [])[index] for record in cell.records]
    return [each for result in results for each in result.get("targets", ())]


REPORTER = Reporter(tables=(targeted_table,))
