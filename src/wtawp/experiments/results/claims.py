"""Claims of the paper's text, checked against measurements: each check gives a verdict and a sentence with numbers."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean, stdev

import numpy as np

from wtawp.experiments.results.certificates import compare_certified
from wtawp.experiments.results.curve_claims import (
    last_gap_falls,
    last_gap_fluctuates_more,
    last_row_ends_highest,
    relative_gradients_are_smaller,
)
from wtawp.experiments.results.geometry import (
    geometry_comparisons,
    landscape_ends,
    smoothness_comparisons,
    with_holm,
)
from wtawp.experiments.results.outcomes import ClaimOutcome, Verdict, judge
from wtawp.experiments.results.statistics import SIGNIFICANCE_LEVEL, PairedDifference, holm, paired_difference
from wtawp.experiments.results.summary import CellReport, PairReport, PlanReport, paired_over_splits
from wtawp.experiments.spec import Claim

SIMILAR = 3.0  # points within which "similarly" is true
FEATURES, EDGES = "smoothed, features", "smoothed, edges"  # columns of the plans that certify
MAX_LISTED = 8  # names that a sentence may list
VANISHED = 1e-3  # share of the gradient norm over the first epochs
FIRST_EPOCHS = 5
MIN_VANISHED_EPOCHS = 10  # epochs that the norm must stay small: the last epoch alone may be chance
PRINTED_EPOCHS = {"cora": 20, "citeseer": 20, "polblogs": 80}  # from which the paper sees no gradient, fig:gdnorm_all


def check(claim: Claim, report: PlanReport) -> ClaimOutcome:
    """Check a claim against the measurements of its plan.

    Args:
        claim: A sentence of the paper; its `check` names a function of `CHECKS`.
        report: The plan that the claim belongs to, with its measurements.

    Returns:
        The outcome; "incomplete" until every run of the plan is finished.
    """
    missing = report.num_runs - len(report.records)
    if missing:
        return ClaimOutcome("incomplete", f"{missing} of {report.num_runs} runs are missing.")
    return CHECKS[claim.check](report)


def rows_agree_within_3(report: PlanReport) -> ClaimOutcome:
    """In every column, all rows have means within 3 points of each other."""
    return _rows_agree(report, SIMILAR)


def rows_agree_within_half(report: PlanReport) -> ClaimOutcome:
    """In every column, all rows have means within half a point of each other."""
    return _rows_agree(report, 0.5)


def _rows_agree(report: PlanReport, limit: float) -> ClaimOutcome:
    """Whether the means of the rows differ by at most `limit` points, in every column."""
    widest, sentences = 0.0, []
    for column in report.columns:
        means = {c.cell.row: c.mean for c in report.column(column) if c.mean is not None}
        spread = max(means.values()) - min(means.values())
        widest = max(widest, spread)
        numbers = ", ".join(f"{row} {mean:.2f}" for row, mean in means.items())
        sentences.append(f"{column}: {numbers}, {spread:.2f} points apart")
    agrees = round(widest, 9) <= limit
    return ClaimOutcome("holds" if agrees else "does not hold", f"{'; '.join(sentences)} (at most {limit:g} allowed).")


def first_row_is_not_beaten(report: PlanReport) -> ClaimOutcome:
    """No other row has a significantly higher mean than the first one, paired over splits."""
    compared = []
    for column in report.columns:
        first, *others = report.column(column)
        compared += [(column, other.cell.row, paired_over_splits(first, other)) for other in others]
    gains = [(column, row, gain) for column, row, gain in compared if gain is not None]
    if not gains or len(gains) < len(compared):
        return ClaimOutcome("incomplete", "A comparison needs two rows and two splits.")
    corrected = holm([gain.p_value for *_, gain in gains])
    judged = [(gain, p, f"{row} ({column})") for (column, row, gain), p in zip(gains, corrected, strict=True)]
    beaten = [j for j in judged if j[0].mean > 0 and j[1] < SIGNIFICANCE_LEVEL]
    best, p, where = max(beaten or judged, key=lambda j: j[0].mean)
    return ClaimOutcome(
        "does not hold" if beaten else "holds",
        f"The best of the others is {where}: {best.mean:+.2f} points against the first row (95 % interval "
        f"{best.interval('+.2f')}, p = {p:.2g} after Holm's correction over {len(judged)} rows, "
        f"{best.num_pairs} splits).",
    )


def every_pair_gains(report: PlanReport) -> ClaimOutcome:
    """In every column, the second row of a pair has a significantly higher mean, paired over splits."""
    gains = [(pair.column, pair.gain, pair.holm_p_value) for pair in report.pairs]
    return _all_significant(gains, 1.0, "points of accuracy")


def every_pair_is_higher(report: PlanReport) -> ClaimOutcome:
    """In every column the second row of a pair has a higher mean, by chance or not."""
    gains = [(f"{p.after}, {p.column}", p.gain, p.holm_p_value) for p in report.pairs]
    return higher_everywhere(gains)


def higher_everywhere(gains: Sequence[tuple[str, PairedDifference | None, float | None]]) -> ClaimOutcome:
    """Check whether all gains are positive.

    Args:
        gains: What is compared, its gain, and the p-value of that after correction; None where it was not measured.

    Returns:
        The outcome, with the number of gains that are significant and the smallest of all.
    """
    judged = [(where, gain, p) for where, gain, p in gains if gain is not None and p is not None]
    if not judged or len(judged) < len(gains):
        return ClaimOutcome("incomplete", "A comparison needs two splits.")
    higher = sum(gain.mean > 0 for _, gain, _ in judged)
    clearly = sum(gain.mean > 0 and p < SIGNIFICANCE_LEVEL for _, gain, p in judged)
    where, least, _ = min(judged, key=lambda each: each[1].mean)
    return judge(
        higher == len(judged),
        f"The mean is higher in {higher} of {len(judged)} pairs, significantly in {clearly} (paired over splits, after "
        f"Holm's correction); the smallest gain is {least.mean:+.2f} ({where}).",
    )


def significant_everywhere(gains: Sequence[tuple[str, PairedDifference | None, float | None]]) -> ClaimOutcome:
    """Check whether all gains are positive and significant.

    Args:
        gains: As those of `higher_everywhere`.

    Returns:
        The outcome, with the names of gains that are not significant, unless there are many.
    """
    judged = [(where, gain, p) for where, gain, p in gains if gain is not None and p is not None]
    if not judged or len(judged) < len(gains):
        return ClaimOutcome("incomplete", "A comparison needs two splits.")
    failing = [where for where, gain, p in judged if gain.mean <= 0 or p >= SIGNIFICANCE_LEVEL]
    names = f": not {'; '.join(failing)}" if 0 < len(failing) <= MAX_LISTED else ""
    return judge(
        not failing,
        f"Significant in {len(judged) - len(failing)} of {len(judged)} pairs (paired over splits, after Holm's "
        f"correction){names}.",
    )


def every_pair_varies_less(report: PlanReport) -> ClaimOutcome:
    """In every column, the second row of a pair varies significantly less over the initialisations of a split."""
    spreads = spread_changes(report)
    corrected = iter(holm([change.p_value for _, change in spreads if change is not None]))
    changes = [(pair.column, change, None if change is None else next(corrected)) for pair, change in spreads]
    return _all_significant(changes, -1.0, "points of standard deviation within a split")


def spread_changes(report: PlanReport) -> list[tuple[PairReport, PairedDifference | None]]:
    """Compare how much the rows of each pair vary over the initialisations of a split.

    Args:
        report: A plan with its measurements.

    Returns:
        Each pair with the change of the standard deviation, paired over splits; None with fewer than two splits of two
        runs.
    """
    changes = []
    for pair in report.pairs:
        cells = {c.cell.row: c for c in report.column(pair.column)}
        before, after = (_spreads(cells[row]) for row in (pair.before, pair.after))
        enough = min(len(before), len(after)) > 1
        changes.append((pair, paired_difference(before, after) if enough else None))
    return changes


def _spreads(cell: CellReport) -> list[float]:
    """The standard deviation over the initialisations of each split."""
    by_split: dict[int, list[float]] = {}
    for (split, _), accuracy in sorted(cell.accuracies.items()):
        by_split.setdefault(split, []).append(accuracy)
    return [stdev(runs) for runs in by_split.values() if len(runs) > 1]


def _all_significant(
    changes: list[tuple[str, PairedDifference | None, float | None]], sign: float, unit: str
) -> ClaimOutcome:
    """Whether every change has the given sign and is significant."""
    holds, sentences = True, []
    for column, change, p in changes:
        if change is None or p is None:
            return ClaimOutcome("incomplete", f"{column}: a comparison needs two splits, and two runs in each.")
        holds &= sign * change.mean > 0 and p < SIGNIFICANCE_LEVEL
        interval = f"95 % interval {change.interval('+.2f')}"
        sentences.append(f"{column} {change.mean:+.2f} ({interval}, p = {p:.2g})")
    return ClaimOutcome(
        "holds" if holds else "does not hold", f"{unit.capitalize()}, paired over splits: {'; '.join(sentences)}."
    )


def gradient_vanishes(report: PlanReport) -> ClaimOutcome:
    """In every cell the gradient at the perturbed weights falls below a thousandth of its initial norm for good.

    Norms are medians over the runs, epoch by epoch; the initial norm is their mean over the first five epochs.
    """
    vanished, sentences = True, []
    for cell in report.cells:
        curves = cell.histories("perturbed_norm")
        if not curves:
            return ClaimOutcome("incomplete", f"The runs on {cell.cell.column} kept no history.")
        epoch = vanishing_epoch(np.median(curves, axis=0).tolist())
        vanished &= epoch is not None
        printed = PRINTED_EPOCHS.get(cell.cell.column)
        beside = "" if printed is None else f" (paper: about {printed})"
        sentences.append(f"{cell.cell.column} {'never' if epoch is None else f'from epoch {epoch}'}{beside}")
    return ClaimOutcome(
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


def more_accurate_and_smoother(report: PlanReport) -> ClaimOutcome:
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
        return ClaimOutcome("incomplete", "Nothing was measured in the paper's definition.")
    words = {(False, "released"): "in the released code's definition", (True, "paper"): "at the last epoch",
             (True, "released"): "in the released code's definition at the last epoch"}  # fmt: skip
    beside = "; ".join(f"{words[key]} {counts[key]} of {totals[key]}" for key in words if totals[key])
    return ClaimOutcome(
        "holds" if 2 * counts[judged] > totals[judged] else "does not hold",
        f"{counts[judged]} of {totals[judged]} pairs, data set by data set and by A and X (paper: 37 of 40; asked is "
        f"more than half){'; ' if beside else ''}{beside}.",
    )


def landscapes_in_order(report: PlanReport) -> ClaimOutcome:
    """For every scale of the directions, the loss rises most for the first row and least for the last."""
    ends = landscape_ends(report)
    if not ends or any(len(rises) < 2 for rises in ends.values()):
        return ClaimOutcome("incomplete", "A comparison needs two rows.")
    in_order = {key: all(a > b for a, b in pairwise(rises.values())) for key, rises in ends.items()}
    sentences = [
        f"{column}, {scale} directions: {', '.join(f'{row} {rise:.3g}' for row, rise in rises.items())}"
        f" ({'in' if in_order[column, scale] else 'not in'} that order)"
        for (column, scale), rises in ends.items()
    ]
    verdict: Verdict = "holds" if all(in_order.values()) else "does not hold"
    return ClaimOutcome(
        verdict,
        f"Rise of the training loss at the ends of the lines (geometric means over runs), {'; '.join(sentences)}.",
    )


def flatter_by_every_measure(report: PlanReport) -> ClaimOutcome:
    """On every data set and by every measure of flatness, the second row is significantly flatter."""
    every = [c for c in geometry_comparisons(report) if c.is_flatness]
    compared = [(c, p) for c, p in with_holm(every) if p is not None]
    if not compared:
        return ClaimOutcome("incomplete", "A comparison needs two splits.")
    verdicts = [(c, c.verdict(p)) for c, p in compared]
    named = {
        word: [f"{c.quantity.label} ({c.column})" for c, verdict in verdicts if verdict == word]
        for word in ("flatter", "sharper", "undecided")
    }
    named["not comparable, as not positive numbers,"] = [
        f"{c.quantity.label} ({c.column})" for c in every if c.num_not_positive
    ]
    # Where most measures agree, the table names them better than a sentence.
    sentences = [
        f"{word} by {len(by)} of {len(every)}" + (f": {'; '.join(by)}" if len(by) <= MAX_LISTED else "")
        for word, by in named.items()
        if by
    ]
    agrees = len(compared) == len(every) and all(verdict == "flatter" for _, verdict in verdicts)
    return ClaimOutcome("holds" if agrees else "does not hold", f"{'. '.join(sentences)}.")


def features_are_certified_more(report: PlanReport) -> ClaimOutcome:
    """Against flips of features the second row certifies more nodes at every radius."""
    compared = compare_certified(report, FEATURES)
    if not compared:
        return ClaimOutcome("incomplete", "A comparison needs two rows and two splits.")
    more, clearly = sum(c.gain.mean > 0 for c in compared), sum(c.is_higher for c in compared)
    least, most = (f(c.gain.mean for c in compared) for f in (min, max))
    return judge(
        more == len(compared),
        f"Higher at {more} of {len(compared)} radii, by {least:.1f} to {most:.1f} points; after Holm's correction "
        f"significantly at {clearly} ({compared[0].gain.num_pairs} splits).",
    )


def edges_are_certified_alike(report: PlanReport) -> ClaimOutcome:
    """Against flips of edges the two rows certify shares of nodes within 3 points of each other, at every radius."""
    compared = compare_certified(report, EDGES)
    if not compared:
        return ClaimOutcome("incomplete", "A comparison needs two rows and two splits.")
    less, clearly = sum(c.gain.mean < 0 for c in compared), sum(c.is_lower for c in compared)
    least, most = (f(c.gain.mean for c in compared) for f in (min, max))
    return judge(
        max(abs(least), abs(most)) <= SIMILAR,
        f"Differences of {least:+.2f} to {most:+.2f} points (at most {SIMILAR:g} allowed); lower at {less} of "
        f"{len(compared)} radii, after Holm's correction significantly at {clearly}.",
    )


CHECKS: dict[str, Callable[[PlanReport], ClaimOutcome]] = {
    "edges_are_certified_alike": edges_are_certified_alike,
    "every_pair_gains": every_pair_gains,
    "every_pair_varies_less": every_pair_varies_less,
    "first_row_is_not_beaten": first_row_is_not_beaten,
    "flatter_by_every_measure": flatter_by_every_measure,
    "gradient_vanishes": gradient_vanishes,
    "landscapes_in_order": landscapes_in_order,
    "last_gap_falls": last_gap_falls,
    "last_gap_fluctuates_more": last_gap_fluctuates_more,
    "last_row_ends_highest": last_row_ends_highest,
    "more_accurate_and_smoother": more_accurate_and_smoother,
    "relative_gradients_are_smaller": relative_gradients_are_smaller,
    "rows_agree_within_3": rows_agree_within_3,
    "rows_agree_within_half": rows_agree_within_half,
}
