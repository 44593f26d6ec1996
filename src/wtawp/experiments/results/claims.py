"""Claims of the paper's text, checked against measurements: each check gives a verdict and a sentence with numbers."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev
from typing import Literal

import numpy as np

from wtawp.experiments.results.geometry import geometry_comparisons, landscape_ends, smoothness_comparisons
from wtawp.experiments.results.statistics import SIGNIFICANCE_LEVEL, PairedDifference, holm, paired_difference
from wtawp.experiments.results.summary import CellReport, PlanReport, paired_over_splits
from wtawp.experiments.spec import Claim

Verdict = Literal["holds", "does not hold", "incomplete"]

MAX_LISTED = 8  # names that a sentence may list
VANISHED = 1e-3  # share of the gradient norm over the first epochs
FIRST_EPOCHS = 5
MIN_VANISHED_EPOCHS = 10  # epochs that the norm must stay small: the last epoch alone may be chance
PRINTED_EPOCHS = {"cora": 20, "citeseer": 20, "polblogs": 80}  # from which the paper sees no gradient, fig:gdnorm_all


@dataclass(frozen=True)
class Outcome:
    """The outcome of checking a claim.

    Attributes:
        verdict: "holds", "does not hold", or "incomplete" where runs are missing.
        sentence: The numbers behind the verdict.
    """

    verdict: Verdict
    sentence: str


def check(claim: Claim, report: PlanReport) -> Outcome:
    """Check a claim against the measurements of its plan.

    Args:
        claim: A sentence of the paper; its `check` names a function of `CHECKS`.
        report: The plan that the claim belongs to, with its measurements.

    Returns:
        The outcome; "incomplete" until every run of the plan is finished.
    """
    missing = report.num_runs - len(report.records)
    if missing:
        return Outcome("incomplete", f"{missing} of {report.num_runs} runs are missing.")
    return CHECKS[claim.check](report)


def rows_agree_within_3(report: PlanReport) -> Outcome:
    """In every column, all rows have means within 3 points of each other."""
    return _rows_agree(report, 3.0)


def rows_agree_within_half(report: PlanReport) -> Outcome:
    """In every column, all rows have means within half a point of each other."""
    return _rows_agree(report, 0.5)


def _rows_agree(report: PlanReport, limit: float) -> Outcome:
    """Whether the means of the rows differ by at most `limit` points, in every column."""
    widest, sentences = 0.0, []
    for column in report.columns:
        means = {c.cell.row: c.mean for c in report.column(column) if c.mean is not None}
        spread = max(means.values()) - min(means.values())
        widest = max(widest, spread)
        numbers = ", ".join(f"{row} {mean:.2f}" for row, mean in means.items())
        sentences.append(f"{column}: {numbers}, {spread:.2f} points apart")
    agrees = round(widest, 9) <= limit
    return Outcome("holds" if agrees else "does not hold", f"{'; '.join(sentences)} (at most {limit:g} allowed).")


def first_row_is_not_beaten(report: PlanReport) -> Outcome:
    """No other row has a significantly higher mean than the first one, paired over splits."""
    compared = []
    for column in report.columns:
        first, *others = report.column(column)
        compared += [(column, other.cell.row, paired_over_splits(first, other)) for other in others]
    gains = [(column, row, gain) for column, row, gain in compared if gain is not None]
    if not gains or len(gains) < len(compared):
        return Outcome("incomplete", "A comparison needs two rows and two splits.")
    corrected = holm([gain.p_value for *_, gain in gains])
    judged = [(gain, p, f"{row} ({column})") for (column, row, gain), p in zip(gains, corrected, strict=True)]
    beaten = [j for j in judged if j[0].mean > 0 and j[1] < SIGNIFICANCE_LEVEL]
    best, p, where = max(beaten or judged, key=lambda j: j[0].mean)
    return Outcome(
        "does not hold" if beaten else "holds",
        f"The best of the others is {where}: {best.mean:+.2f} points against the first row (95 % interval "
        f"{best.interval('+.2f')}, p = {p:.2g} after Holm's correction over {len(judged)} rows, "
        f"{best.num_pairs} splits).",
    )


def every_pair_gains(report: PlanReport) -> Outcome:
    """In every column, the second row of a pair has a significantly higher mean, paired over splits."""
    gains = [(pair.column, pair.gain, pair.holm_p_value) for pair in report.pairs]
    return _all_significant(gains, 1.0, "points of accuracy")


def every_pair_varies_less(report: PlanReport) -> Outcome:
    """In every column, the second row of a pair varies significantly less over the initialisations of a split."""
    spreads = []
    for pair in report.pairs:
        cells = {c.cell.row: c for c in report.column(pair.column)}
        before, after = (_spreads(cells[row]) for row in (pair.before, pair.after))
        enough = min(len(before), len(after)) > 1
        spreads.append((pair.column, paired_difference(before, after) if enough else None))
    corrected = iter(holm([change.p_value for _, change in spreads if change is not None]))
    changes = [(column, change, None if change is None else next(corrected)) for column, change in spreads]
    return _all_significant(changes, -1.0, "points of standard deviation within a split")


def _spreads(cell: CellReport) -> list[float]:
    """The standard deviation over the initialisations of each split."""
    by_split: dict[int, list[float]] = {}
    for (split, _), accuracy in sorted(cell.accuracies.items()):
        by_split.setdefault(split, []).append(accuracy)
    return [stdev(runs) for runs in by_split.values() if len(runs) > 1]


def _all_significant(
    changes: list[tuple[str, PairedDifference | None, float | None]], sign: float, unit: str
) -> Outcome:
    """Whether every change has the given sign and is significant."""
    holds, sentences = True, []
    for column, change, p in changes:
        if change is None or p is None:
            return Outcome("incomplete", f"{column}: a comparison needs two splits, and two runs in each.")
        holds &= sign * change.mean > 0 and p < SIGNIFICANCE_LEVEL
        interval = f"95 % interval {change.interval('+.2f')}"
        sentences.append(f"{column} {change.mean:+.2f} ({interval}, p = {p:.2g})")
    return Outcome(
        "holds" if holds else "does not hold", f"{unit.capitalize()}, paired over splits: {'; '.join(sentences)}."
    )


def gradient_vanishes(report: PlanReport) -> Outcome:
    """In every cell the gradient at the perturbed weights falls below a thousandth of its initial norm for good.

    Norms are medians over the runs, epoch by epoch; the initial norm is their mean over the first five epochs.
    """
    vanished, sentences = True, []
    for cell in report.cells:
        curves = cell.histories("perturbed_norm")
        if not curves:
            return Outcome("incomplete", f"The runs on {cell.cell.column} kept no history.")
        epoch = vanishing_epoch(np.median(curves, axis=0).tolist())
        vanished &= epoch is not None
        printed = PRINTED_EPOCHS.get(cell.cell.column)
        beside = "" if printed is None else f" (paper: about {printed})"
        sentences.append(f"{cell.cell.column} {'never' if epoch is None else f'from epoch {epoch}'}{beside}")
    return Outcome(
        "holds" if vanished else "does not hold",
        f"Median gradient norm for good under {VANISHED:g} of that over the first {FIRST_EPOCHS} epochs: "
        f"{', '.join(sentences)}; asked is that it gets there before training ends, not at the printed epoch.",
    )


def vanishing_epoch(norms: list[float]) -> int | None:
    """The epoch from which on a gradient has vanished.

    Args:
        norms: Gradient norms, one for each epoch.

    Returns:
        The first epoch, counted from 0, from which on all norms lie below a thousandth of the mean over the first five
        epochs; None where there is none, or where fewer than ten epochs follow.

    Example:
        >>> vanishing_epoch([1.0] * 5 + [1e-4, 0.5] + [1e-4] * 10)
        7
    """
    limit = VANISHED * fmean(norms[:FIRST_EPOCHS])
    above = [epoch for epoch, norm in enumerate(norms) if not norm < limit]  # NaN has not vanished
    epoch = above[-1] + 1 if above else 0
    return epoch if epoch <= len(norms) - MIN_VANISHED_EPOCHS else None


def more_accurate_and_smoother(report: PlanReport) -> Outcome:
    """In more than half of all pairs the second row is both more accurate and smoother.

    This is judged in the paper's definition at the selected weights. The counts in the other definition, and at the
    weights of the last epoch, stand beside it.
    """
    counts: Counter[tuple[bool, str]] = Counter()
    totals: Counter[tuple[bool, str]] = Counter()
    for compared in smoothness_comparisons(report):
        key = compared.is_last_epoch, compared.definition
        counts[key] += compared.num_better
        totals[key] += len(compared.pairs)
    judged = False, "paper"
    if not totals[judged]:
        return Outcome("incomplete", "Nothing was measured in the paper's definition.")
    words = {(False, "released"): "in the released code's definition", (True, "paper"): "at the last epoch",
             (True, "released"): "in the released code's definition at the last epoch"}  # fmt: skip
    beside = "; ".join(f"{words[key]} {counts[key]} of {totals[key]}" for key in words if totals[key])
    return Outcome(
        "holds" if 2 * counts[judged] > totals[judged] else "does not hold",
        f"{counts[judged]} of {totals[judged]} pairs, data set by data set and by A and X (paper: 37 of 40; asked is "
        f"more than half){'; ' if beside else ''}{beside}.",
    )


def landscapes_in_order(report: PlanReport) -> Outcome:
    """For every scale of the directions, the loss rises most for the first row and least for the last."""
    ends = landscape_ends(report)
    if not ends or any(len(rises) < 2 for rises in ends.values()):
        return Outcome("incomplete", "A comparison needs two rows.")
    in_order = {key: all(a > b for a, b in pairwise(rises.values())) for key, rises in ends.items()}
    sentences = [
        f"{column}, {scale} directions: {', '.join(f'{row} {rise:.3g}' for row, rise in rises.items())}"
        f" ({'in' if in_order[column, scale] else 'not in'} that order)"
        for (column, scale), rises in ends.items()
    ]
    verdict: Verdict = "holds" if all(in_order.values()) else "does not hold"
    return Outcome(verdict, f"Mean rise of the training loss at the ends of the lines, {'; '.join(sentences)}.")


def flatter_by_every_measure(report: PlanReport) -> Outcome:
    """On every data set and by every measure of flatness, the second row is significantly flatter."""
    every = [c for c in geometry_comparisons(report) if c.is_flatness]
    compared = [c for c in every if c.difference is not None]
    if not compared:
        return Outcome("incomplete", "A comparison needs two splits.")
    corrected = holm([c.difference.p_value for c in compared if c.difference is not None])
    verdicts = [(c, c.verdict(p)) for c, p in zip(compared, corrected, strict=True)]
    named = {
        word: [f"{c.quantity.label} ({c.column})" for c, verdict in verdicts if verdict == word]
        for word in ("flatter", "sharper", "undecided")
    }
    named["not comparable, as not finite,"] = [f"{c.quantity.label} ({c.column})" for c in every if c.num_gaps]
    # Where most measures agree, the table names them better than a sentence.
    sentences = [
        f"{word} by {len(by)} of {len(every)}" + (f": {'; '.join(by)}" if len(by) <= MAX_LISTED else "")
        for word, by in named.items()
        if by
    ]
    agrees = len(compared) == len(every) and all(verdict == "flatter" for _, verdict in verdicts)
    return Outcome("holds" if agrees else "does not hold", f"{'. '.join(sentences)}.")


CHECKS: dict[str, Callable[[PlanReport], Outcome]] = {
    "every_pair_gains": every_pair_gains,
    "every_pair_varies_less": every_pair_varies_less,
    "first_row_is_not_beaten": first_row_is_not_beaten,
    "flatter_by_every_measure": flatter_by_every_measure,
    "gradient_vanishes": gradient_vanishes,
    "landscapes_in_order": landscapes_in_order,
    "more_accurate_and_smoother": more_accurate_and_smoother,
    "rows_agree_within_3": rows_agree_within_3,
    "rows_agree_within_half": rows_agree_within_half,
}
