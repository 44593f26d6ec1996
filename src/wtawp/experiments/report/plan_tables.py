"""The tables that every plan has: cells, pairs, claims, settings, records and failures."""

from wtawp.experiments.report.tables import NOTHING, Entry, Table, mean_and_std, number, p_value
from wtawp.experiments.results.claims import check
from wtawp.experiments.results.summary import CellReport, PairReport, PlanReport, has_only_split


def cell_table(report: PlanReport) -> Table:
    """Every cell of a plan, our number beside the paper's.

    Args:
        report: A plan with its measurements.

    Returns:
        The table.
    """
    return Table(
        "Test accuracy in per cent, mean ± standard deviation over runs. Agrees: within 0.5 points of the paper; "
        "reported: not judged, or the paper prints nothing; incomplete: runs are missing.",
        ("row", "column", "ours", "paper", "difference", "runs", "verdict"),
        tuple(_cell_row(c) for c in report.cells),
    )


def _cell_row(c: CellReport) -> tuple[Entry, ...]:
    """A row of the table of cells."""
    runs = str(c.num_finished) if c.is_complete else f"{c.num_finished} of {c.num_runs}"
    runs += f", {len(c.failed)} failed" if c.failed else ""
    return (
        Entry(c.cell.row), Entry(c.cell.column), mean_and_std(c.mean, c.std),
        mean_and_std(*(c.cell.printed or (None, None))), number(c.difference, "+.2f"), Entry(runs, c.num_finished),
        Entry(c.verdict),
    )  # fmt: skip


def pair_table(report: PlanReport) -> Table:
    """Every pair in every column: the comparison paired over splits, then the paper's test over runs.

    Args:
        report: A plan with its measurements.

    Returns:
        The table.
    """
    return Table(
        "Gain in points, paired over splits (the initialisations of a split share it, so they are averaged first), "
        "with its 95 % interval; Holm corrects for the number of pairs; the effect size is the mean gain in standard "
        "deviations of it over splits. The last column is the paper's t-test, which takes all runs for independent."
        + " Masks describe the only split, so that initialisations are paired here: nothing is said about other splits."
        * any(has_only_split(c.cell) for c in report.cells),
        ("without", "with", "column", "gain", "95 % interval", "p", "p (Holm)", "effect size", "splits won",
         "p over runs"),
        tuple(_pair_row(p) for p in report.pairs),
    )  # fmt: skip


def _pair_row(p: PairReport) -> tuple[Entry, ...]:
    """A row of the table of pairs."""
    g = p.gain
    column = Entry(p.column if p.is_complete else f"{p.column} (incomplete)")
    if g is None:
        return Entry(p.before), Entry(p.after), column, *[Entry(NOTHING)] * 6, p_value(p.runs_p_value)
    return (
        Entry(p.before), Entry(p.after), column, number(g.mean, "+.2f"), Entry(g.interval("+.2f"), g.low),
        *(p_value(None if g.low is None else each) for each in (g.p_value, p.holm_p_value)),
        number(g.effect_size, "+.2f"), Entry(f"{g.won} of {g.num_pairs}", g.won / g.num_pairs), p_value(p.runs_p_value),
    )  # fmt: skip


def claim_table(report: PlanReport) -> Table:
    """The claims of a plan with their verdicts and numbers.

    Args:
        report: A plan with its measurements.

    Returns:
        The table.
    """
    outcomes = [(claim, check(claim, report)) for claim in report.plan.claims]
    rows = tuple((Entry(claim.text), Entry(o.verdict), Entry(o.sentence)) for claim, o in outcomes)
    return Table("Sentences of the paper, held against the measurements.", ("claim", "verdict", "measured"), rows)


def setting_table(report: PlanReport) -> Table:
    """What each cell trains, and how often.

    Args:
        report: A plan with its measurements.

    Returns:
        The table.
    """
    rows = tuple(
        (Entry(c.cell.row), Entry(c.cell.column), Entry(str(c.cell.setting)), number(c.cell.setting.epochs, "d"),
         number(c.cell.splits, "d"), number(c.cell.inits, "d"))
        for c in report.cells
    )  # fmt: skip
    return Table("Settings.", ("row", "column", "setting", "epochs", "splits", "initialisations"), rows)


def record_table(report: PlanReport) -> Table:
    """Where the numbers of each cell come from: its first finished run, and the command that shows it.

    Args:
        report: A plan with its measurements.

    Returns:
        The table.
    """
    rows = []
    for c in report.cells:
        key = c.records[0].key if c.records else None
        spent = sum(r.seconds for r in c.records)
        rows.append((Entry(c.cell.row), Entry(c.cell.column), Entry(key or NOTHING), number(c.num_finished, "d"),
                     number(len(c.failed), "d"), number(spent, ".1f"),
                     Entry(f"wtawp results show {key}" if key else NOTHING)))  # fmt: skip
    return Table(
        "The first finished run of each cell; its record has the setting, the measurements, and where they were made.",
        ("row", "column", "first run", "finished", "failed", "seconds", "to see it"),
        tuple(rows),
    )


def failure_table(report: PlanReport) -> Table:
    """The failed runs, with the last line of their errors.

    Args:
        report: A plan with its measurements.

    Returns:
        The table.
    """
    rows = tuple(
        (Entry(r.key), number(r.split, "d"), number(r.init, "d"),
         Entry(((r.error or "").strip().splitlines() or ["no reason kept"])[-1]))
        for r in report.failed
    )  # fmt: skip
    return Table("Failed runs.", ("run", "split", "initialisation", "error"), rows)
