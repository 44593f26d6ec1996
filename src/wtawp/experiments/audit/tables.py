"""The tables of the sections of an audit."""

from collections.abc import Callable
from statistics import fmean, stdev

from wtawp.experiments.audit.comparisons import Values, geometry_values, two_rows
from wtawp.experiments.audit.sections import ACCURACY, CERTIFICATE, EVASION, FLAT, POISONING, Section
from wtawp.experiments.report.measures.certificate import certified_tables
from wtawp.experiments.report.measures.sharpness import flatness_tables
from wtawp.experiments.report.measures.smoothness import smoothness_tables
from wtawp.experiments.report.plan_tables import drop_table, pair_table
from wtawp.experiments.report.tables import NOTHING, Entry, Table, mean_and_std
from wtawp.experiments.results.summary import PlanReport


def section_tables(section: Section, report: PlanReport) -> list[Table]:
    """Make the tables of a section: means first, then the comparisons behind them.

    Args:
        section: The section.
        report: Its plan with its measurements.

    Returns:
        The tables.
    """
    makers: dict[str, Callable[[PlanReport], list[Table]]] = {
        ACCURACY: _accuracy_tables, EVASION: _accuracy_tables, POISONING: _accuracy_tables,
        CERTIFICATE: _certificate_tables, FLAT: _flatness_tables,
    }  # fmt: skip
    return makers[section.kind](report)


def grid_table(report: PlanReport) -> Table:
    """Test accuracy with a line for each row and a column for each budget.

    Args:
        report: A plan with its measurements.

    Returns:
        The table.
    """
    cells = {(c.cell.row, c.cell.column): c for c in report.cells}
    rows = dict.fromkeys(c.cell.row for c in report.cells)
    lines = tuple(
        (Entry(row), *(mean_and_std(cells[row, column].mean, cells[row, column].std) for column in report.columns))
        for row in rows
    )
    return Table("Test accuracy in per cent, mean ± standard deviation over splits.", ("row", *report.columns), lines)


def _accuracy_tables(report: PlanReport) -> list[Table]:
    """Accuracies, differences and drops."""
    tables = [grid_table(report), *([pair_table(report)] if any(pair.can_be_compared for pair in report.pairs) else [])]
    drops = drop_table(report)
    return [*tables, drops] if drops.rows else tables


def _certificate_tables(report: PlanReport) -> list[Table]:
    """Accuracies with and without smoothing, and certified accuracy at a few radii."""
    return [grid_table(report), *certified_tables(report)]


def _flatness_tables(report: PlanReport) -> list[Table]:
    """Every quantity of every row, then what two rows say about each other."""
    by_row = {c.cell.row: geometry_values(c) for c in report.cells}
    names = dict.fromkeys(name for values in by_row.values() for name in values)
    lines = tuple((Entry(name), *(_entry(values.get(name, {})) for values in by_row.values())) for name in names)
    caption = "Mean ± standard deviation over splits; smaller is flatter, or smoother."
    tables = [Table(caption, ("quantity", *by_row), lines)]
    first, *others = by_row
    for row in others:
        pair = two_rows(report, first, row)
        tables += flatness_tables(pair)[:1] + smoothness_tables(pair)
    return tables


def _entry(values: Values) -> Entry:
    """Mean and standard deviation of values by run."""
    if not values:
        return Entry(NOTHING)
    mean = fmean(values.values())
    spread = f" ± {stdev(values.values()):.2g}" if len(values) > 1 else ""
    return Entry(f"{mean:.3g}{spread}", mean)
