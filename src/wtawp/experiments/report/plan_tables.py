"""The tables that every plan has: cells, pairs, claims, settings, records and failures."""

from collections.abc import Callable

from wtawp.experiments.report.tables import NOTHING, Entry, Table, mean_and_std, number, p_value
from wtawp.experiments.results.attacks import weakness_note
from wtawp.experiments.results.claims import check
from wtawp.experiments.results.drops import compare_drops
from wtawp.experiments.results.summary import CellReport, PairReport, PlanReport, has_only_split


def cell_table(report: PlanReport) -> Table:
    """Every cell of a plan: its accuracy, under attack also the drop, and the paper's number where it prints one.

    Args:
        report: A plan with its measurements.

    Returns:
        The table.
    """
    caption = "Test accuracy in per cent, mean ± standard deviation over runs."
    columns: dict[str, Callable[[CellReport], Entry]]
    columns = {"row": lambda c: Entry(c.cell.row), "column": lambda c: Entry(c.cell.column)}
    columns["ours" if report.is_printed else "accuracy"] = lambda c: mean_and_std(c.mean, c.std)
    if any(c.cell.attack is not None for c in report.cells):
        columns["drop"] = lambda c: number(c.mean_drop)
        caption += (
            " Drop: mean accuracy of the same trainings on the clean graph (same setting, split and initialisation) "
            "less that under attack, in points; none where the clean trainings are missing."
        )
        caption += _with_space(weakness_note(report.plan))
    if report.is_printed:
        columns["paper"] = lambda c: mean_and_std(*(c.cell.printed or (None, None)))
        columns["difference"] = lambda c: number(c.difference, "+.2f")
        columns["z"] = lambda c: number(c.z, "+.1f")
    columns["runs"] = _runs_entry
    if report.is_printed:
        columns["verdict"] = lambda c: Entry(c.verdict)
        caption += (
            " z: the difference in standard errors of both means over splits; the paper prints a deviation over runs "
            "alone, of which we take the largest error over splits that it allows, so that |z| is at least this large. "
            "Agrees: within 0.5 points of the paper; reported: not judged, or the paper prints nothing; incomplete: "
            "runs are missing."
        )
    rows = tuple(tuple(entry(c) for entry in columns.values()) for c in report.cells)
    return Table(caption, tuple(columns), rows)


def _with_space(sentence: str) -> str:
    """A sentence to be added to others, or nothing."""
    return f" {sentence}" if sentence else ""


def _runs_entry(c: CellReport) -> Entry:
    """The number of finished runs of a cell, and of those that are missing or failed."""
    runs = str(c.num_finished) if c.is_complete else f"{c.num_finished} of {c.num_runs}"
    runs += f", {len(c.failed)} failed" if c.failed else ""
    return Entry(runs, c.num_finished)


def pair_table(report: PlanReport) -> Table:
    """Every pair in every column: the paired comparison, then the paper's test where it prints numbers.

    Args:
        report: A plan with its measurements.

    Returns:
        The table.
    """
    only_splits = {has_only_split(c.cell) for c in report.cells}
    unit = "initialisations" if only_splits == {True} else "splits"
    averaged = " (the initialisations of a split share it, so they are averaged first)" * (unit == "splits")
    caption = (
        f"Gain in points, paired over {unit}{averaged}, with its 95 % interval; Holm corrects for the number of pairs; "
        f"the effect size is the mean gain in standard deviations of it over {unit}."
    )
    if True in only_splits:
        there = " there" * (False in only_splits)
        caption += (
            f" Masks describe the only split{' of some columns' * bool(there)}: initialisations are paired{there}, and "
            "nothing is said about other splits."
        )
    won = "pairs won" if len(only_splits) > 1 else f"{unit} won"
    headers = ["without", "with", "column", "gain", "95 % interval", "p", "p (Holm)", "effect size", won]
    rows = tuple(_pair_row(p) for p in report.pairs)
    if report.is_printed:
        caption += " The last columns are the paper's t-test, which takes all runs for independent, and its gain."
        headers += ["p over runs", "gain, paper"]
        rows = tuple(
            (*row, p_value(p.runs_p_value), number(p.printed_gain, "+.2f"))
            for row, p in zip(rows, report.pairs, strict=True)
        )
    return Table(caption, tuple(headers), rows)


def _pair_row(p: PairReport) -> tuple[Entry, ...]:
    """A row of the table of pairs."""
    g = p.gain
    column = Entry(p.column if p.is_complete else f"{p.column} (incomplete)")
    if g is None:
        return Entry(p.before), Entry(p.after), column, *[Entry(NOTHING)] * 6
    return (
        Entry(p.before), Entry(p.after), column, number(g.mean, "+.2f"), Entry(g.interval("+.2f"), g.low),
        *(p_value(None if g.low is None else each) for each in (g.p_value, p.holm_p_value)),
        number(g.effect_size, "+.2f"), Entry(f"{g.won} of {g.num_pairs}", g.won / g.num_pairs),
    )  # fmt: skip


def drop_table(report: PlanReport) -> Table:
    """What attacks take from both rows of every pair, beside the gain.

    Args:
        report: A plan with its measurements.

    Returns:
        The table; it has no rows where the plan has no attack.
    """
    rows = tuple(
        (Entry(d.before), Entry(d.after), Entry(d.column), number(d.clean_gain, "+.2f"), number(d.gain, "+.2f"),
         number(d.drop_before), number(d.drop_after), number(d.change.mean, "+.2f"),
         Entry(d.change.interval("+.2f"), d.change.low), p_value(d.change.p_value), p_value(d.holm_p_value))
        for d in compare_drops(report)
    )  # fmt: skip
    return Table(
        "Robustness. The drop is the accuracy on the clean graph less that under attack, in points. The gain under "
        "attack is the gain on the clean graph less the change of the drop: where the change is below 0, the attack "
        "takes less from the second row; where it is 0, the gain under attack is the clean gain carried over. All "
        "numbers are paired over splits; the interval and both p-values are those of the change."
        + _with_space(weakness_note(report.plan)),
        ("without", "with", "column", "clean gain", "gain under attack", "drop without", "drop with", "change of drop",
         "95 % interval", "p", "p (Holm)"),
        rows,
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
