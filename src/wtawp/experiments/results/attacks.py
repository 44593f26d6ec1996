"""What records say about attacks: which of several won in how many runs, and whether only weak ones were run."""

from collections import Counter
from dataclasses import dataclass
from statistics import fmean

from wtawp.attacks.outcomes import AttackOutcome
from wtawp.attacks.registry import attack_spec
from wtawp.experiments.results.summary import CellReport, PlanReport
from wtawp.experiments.spec import MeasureRequest, Plan


@dataclass(frozen=True)
class AttackWins:
    """How often one of several attacks was the strongest in a cell.

    Attributes:
        row: The row of the cell.
        column: The column of the cell.
        attack: The name of the attack for people.
        won: The number of runs in which it left the lowest accuracy.
        runs: The number of runs.
        mean: The mean accuracy that it left on the attacked nodes, in per cent, over the runs in which it was applied;
            None where it never was.
        reasons: Why it was not applied, with the number of runs for each reason.
    """

    row: str
    column: str
    attack: str
    won: int
    runs: int
    mean: float | None
    reasons: tuple[tuple[str, int], ...]


def attack_wins(report: PlanReport) -> list[AttackWins]:
    """Count how often each of several attacks won.

    Args:
        report: A plan with its measurements.

    Returns:
        An entry for each attack of each cell whose records name a winner; the strongest attack of a cell comes first.
    """
    wins = []
    for cell in report.cells:
        outcomes = _outcomes(cell)
        names = dict.fromkeys(name for outcome in outcomes for name in (*outcome.accuracies, *outcome.skipped))
        entries = [_wins(cell, name, outcomes) for name in names]
        wins += sorted(entries, key=lambda each: (each.mean is None, each.mean))
    return wins


def _outcomes(cell: CellReport) -> list[AttackOutcome]:
    """The outcomes in the finished runs of a cell that shows the accuracy under an attack after training."""
    index = cell.cell.measure
    if index is None or cell.cell.attack is None:
        return []
    entries = [(record.measured or [])[index].get("provenance", []) for record in cell.records]
    outcomes = [AttackOutcome.of((str(name), str(value)) for name, value in each) for each in entries]
    return [outcome for outcome in outcomes if outcome is not None]


def _wins(cell: CellReport, name: str, outcomes: list[AttackOutcome]) -> AttackWins:
    """The wins of one attack in one cell."""
    left = [100 * outcome.accuracies[name] for outcome in outcomes if name in outcome.accuracies]
    reasons = Counter(outcome.skipped[name] for outcome in outcomes if name in outcome.skipped)
    won = sum(outcome.winner == name for outcome in outcomes)
    mean = fmean(left) if left else None
    return AttackWins(cell.cell.row, cell.cell.column, name, won, len(outcomes), mean, tuple(reasons.items()))


def weakness_note(plan: Plan) -> str:
    """What to say about a plan that measures robustness by weak attacks alone.

    Args:
        plan: The plan.

    Returns:
        The sentences of the registry about its weak attacks, before or after the training; empty where there are none,
        or one of its attacks after the training is strong.
    """
    measures = dict.fromkeys(c.attack for c in plan.cells if c.measure is not None and c.attack is not None)
    poisons = dict.fromkeys(c.attack for c in plan.cells if c.measure is None and c.attack is not None)
    sentences, has_strong = [_weakness(poison) for poison in poisons], False
    for measure in measures:
        options = dict(measure.options)
        spec = attack_spec(str(options["attack"]))
        weakness = spec.weakness_with(options)
        sentences.append(weakness)
        has_strong |= bool(spec.strong_variants or spec.uses_surrogate) and not weakness
    return "" if has_strong else " ".join(dict.fromkeys(filter(None, sentences)))


def _weakness(attack: MeasureRequest) -> str:
    """The sentence of the registry about an attack; empty where it is not weak."""
    options = dict(attack.options)
    return attack_spec(str(options["attack"])).weakness_with(options)
