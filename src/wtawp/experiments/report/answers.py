"""The answer to a comparison in sentences: does the perturbation help, by how much, how sure, and at what cost.

Only comparisons of plain training with a perturbation get an answer; tables and figures hold the numbers behind it.
"""

from statistics import fmean

from wtawp.experiments.plans.catalogue import plans
from wtawp.experiments.results.drops import compare_drops
from wtawp.experiments.results.statistics import SIGNIFICANCE_LEVEL
from wtawp.experiments.results.summary import CellReport, PairReport, PlanReport, has_only_split

UNDERFITTING = 5.0  # points of training accuracy below plain training
LAST_EPOCHS = 0.95  # an epoch selected after this share of the training may be followed by a better one


def is_own(report: PlanReport) -> bool:
    """Whether a plan is one of the user, and not one of the paper's or of the studies beside it.

    Args:
        report: A plan with its measurements.

    Returns:
        Whether no plan of `wtawp reproduce` has its name.
    """
    return report.plan.name not in plans()


def answers(report: PlanReport) -> list[str]:
    """Answer the comparisons of a plan: a paragraph for each pair of plain training and another in each column.

    Args:
        report: A plan with its measurements.

    Returns:
        The paragraphs. Where no pair can be compared yet, there is one that says what is missing; where the plan
        compares nothing with plain training, or asks for a single split, there is none.
    """
    cells = {(c.cell.row, c.cell.column): c for c in report.cells}
    drops = {(d.before, d.after, d.column): d for d in compare_drops(report)}
    paragraphs = []
    for pair in report.pairs:
        before, after = cells[pair.before, pair.column], cells[pair.after, pair.column]
        plain, other = before.cell.setting, after.cell.setting
        if not pair.can_be_compared or plain.awp is not None or (other.awp, other.average) == (None, plain.average):
            continue
        is_one_split = has_only_split(before.cell) and has_only_split(after.cell)
        sentences = [_gain(pair, "initialisations" if is_one_split else "splits")]
        if drop := drops.get((pair.before, pair.after, pair.column)):
            judged = (
                "less than"
                if drop.is_smaller
                else "more than"
                if drop.is_larger
                else "neither clearly more nor less than"
            )
            sentences.append(
                f"The attack takes {judged} without it ({drop.drop_after:.2f} points of the clean accuracy instead "
                f"of {drop.drop_before:.2f}); on the clean graph the gain is {round(drop.clean_gain, 2) + 0.0:+.2f}."
            )
        elif before.cell.attack is None:
            sentences += [*_cost(before, after), *(_fit(before, after, pair) if other.awp is not None else [])]
        paragraphs.append(" ".join(sentences))
    return paragraphs


def _gain(pair: PairReport, unit: str) -> str:
    """Whether the second row is better, by how much, and how sure that is; the unit is what is paired."""
    gain, where = pair.gain, f"{pair.after} ({pair.column})"
    if gain is None:
        return f"{where}: no answer yet, as a comparison needs two {unit} that are finished with and without it."
    numbers = f"{round(gain.mean, 2) + 0.0:+.2f} points of test accuracy"  # never "-0.00"
    unfinished = "" if pair.is_complete else " Runs are missing, so this may change."
    if gain.effect_size is None:
        return f"{where}: {numbers} in every one of {gain.num_pairs} {unit}, so chance cannot be estimated.{unfinished}"
    p = 1.0 if pair.holm_p_value is None else pair.holm_p_value
    sure = f"95 % interval {gain.low:+.2f} to {gain.high:+.2f} over {gain.num_pairs} {unit}, Holm-corrected p = {p:.2g}"
    effect = "helps" if gain.mean > 0 else "hurts"
    if p < SIGNIFICANCE_LEVEL:
        return f"{where} {effect}: {numbers} ({sure}).{unfinished}"
    if gain.p_value < SIGNIFICANCE_LEVEL:  # the interval is not corrected, and excludes 0
        return (
            f"{where} {effect} if this pair is judged alone, but not clearly after correction for the "
            f"{pair.num_compared} pairs that are compared: {numbers} ({sure}).{unfinished}"
        )
    return f"{where} makes no difference that can be told from chance: {numbers} ({sure}).{unfinished}"


def _cost(before: CellReport, after: CellReport) -> list[str]:
    """What a run costs with the method and without; the fastest of each, as start-up and other work only add time."""
    plain, perturbed = (min((r.seconds for r in cell.records), default=0.0) for cell in (before, after))
    if not plain or not perturbed:
        return []
    what = "run with its measures" if after.cell.setting.measures else "training"
    seconds = f"{perturbed:.2g} s instead of {plain:.2g} s, the fastest of each"
    return [f"A {what} takes {perturbed / plain:.1f} times as long ({seconds})."]


def _fit(before: CellReport, after: CellReport, pair: PairReport) -> list[str]:
    """Whether the perturbed model underfits: by its training accuracy, and by the epochs that were selected."""
    fits = [_training_accuracy(cell) for cell in (before, after)]
    sentences = []
    if fits[0] is not None and fits[1] is not None:
        numbers = f"training accuracy {fits[1]:.1f} % with it, {fits[0]:.1f} % without"
        helps = pair.gain is not None and pair.gain.low is not None and pair.gain.low > 0
        if fits[1] < fits[0] - UNDERFITTING and not helps:
            sentences.append(f"It underfits ({numbers}): try a smaller rho or lam, or more epochs.")
        else:
            sentences.append(f"It does not underfit ({numbers}).")
    setting = after.cell.setting
    late = [r for r in after.records if r.epoch is not None and r.epoch >= LAST_EPOCHS * setting.epochs]
    if setting.select_on != "last" and 2 * len(late) > len(after.records):
        sentences.append(
            f"In {len(late)} of {len(after.records)} trainings the selected epoch is one of the last: train it for "
            f"more than {setting.epochs} epochs before you judge."
        )
    return sentences


def _training_accuracy(cell: CellReport) -> float | None:
    """The mean accuracy on the training part in per cent; None where it was not recorded."""
    known = [r.accuracy["train"] for r in cell.records if r.accuracy is not None and "train" in r.accuracy]
    return 100 * fmean(known) if known else None
