"""The report of the measure "evasion": which of several attacks won, and why others could not be applied."""

from dataclasses import asdict
from typing import Any

from wtawp.experiments.report.reporters import Reporter
from wtawp.experiments.report.tables import NOTHING, Entry, Table, number
from wtawp.experiments.results.attacks import AttackWins, attack_wins
from wtawp.experiments.results.summary import PlanReport


def winner_tables(report: PlanReport) -> list[Table]:
    """Which attack left the lowest accuracy in how many runs.

    Args:
        report: A plan with its measurements.

    Returns:
        One table; none where every cell has a single attack.
    """
    wins = attack_wins(report)
    if not wins:
        return []
    rows = tuple(
        (Entry(w.row), Entry(w.column), Entry(w.attack), Entry(f"{w.won} of {w.runs}", w.won), number(w.mean),
         Entry(_reasons(w)))
        for w in wins
    )  # fmt: skip
    caption = (
        "Several attacks were run on each model, and the one that leaves the lowest accuracy counts. For each attack: "
        "in how many runs it won (ties are decided by the loss), and the mean accuracy in per cent that it left on the "
        "attacked nodes in the runs in which it could be applied; the last column says why it could not."
    )
    return [Table(caption, ("row", "column", "attack", "won", "accuracy", "not applied"), rows)]


def _reasons(wins: AttackWins) -> str:
    """Why an attack was not applied, and in how many runs."""
    texts = [f"in {count} of {wins.runs}: {reason}" for reason, count in wins.reasons]
    return "; ".join(texts) or NOTHING


def winner_data(report: PlanReport) -> dict[str, Any]:
    """The same numbers for `--json`.

    Args:
        report: A plan with its measurements.

    Returns:
        A list under "attacks"; an empty mapping where every cell has a single attack.
    """
    wins = [asdict(each) for each in attack_wins(report)]
    return {"attacks": wins} if wins else {}


REPORTER = Reporter(tables=(winner_tables,), export=winner_data, order=10)
