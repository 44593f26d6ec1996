"""Claims about curves over the epochs of training, fig:lcagg and fig:ngrad: each check compares runs that share a seed.

The paper shows one run of each method; a claim holds here if it is true of more than half of the seeds.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from wtawp.experiments.results.outcomes import ClaimOutcome, judge
from wtawp.experiments.results.summary import CellReport, PlanReport

Curves = NDArray[np.float64]  # [runs, epochs]
NO_HISTORY = ClaimOutcome("incomplete", "The runs kept no history.")
SETTLED = 100  # the epoch from which on the paper compares gradients, and from which fluctuations are measured
ENDS = 20  # epochs at the beginning and at the end that are averaged


def last_row_ends_highest(report: PlanReport) -> ClaimOutcome:
    """The training loss of every row falls, and in the last epochs that of the last row is the largest.

    Args:
        report: A plan whose cells keep history.

    Returns:
        The outcome, over the runs that share split and initialisation.
    """
    losses = _curves(report, lambda cell: cell.histories("train_loss"))
    if losses is None:
        return NO_HISTORY
    final = {row: curves[:, -ENDS:].mean(1) for row, curves in losses.items()}
    fell = sum(int((final[row] < curves[:, 0]).sum()) for row, curves in losses.items())
    *others, last = final.values()
    higher = int(np.logical_and.reduce([last > other for other in others]).sum())
    means = ", ".join(f"{row} {np.median(each):.3g}" for row, each in final.items())
    return judge(
        2 * higher > len(last) and fell == sum(map(len, final.values())),
        f"Median loss over the last {ENDS} epochs: {means}. {list(final)[-1]} has the largest in {higher} of "
        f"{len(last)} runs; the loss fell in {fell} of {sum(map(len, final.values()))}.",
    )


def last_gap_fluctuates_more(report: PlanReport) -> ClaimOutcome:
    """The rise of the loss by the perturbation fluctuates more, and falls by a smaller factor, in the last row.

    It is compared with the row before it. Fluctuation is the standard deviation of changes from epoch to epoch.

    Args:
        report: A plan whose cells keep history.

    Returns:
        The outcome, over the runs that share split and initialisation.
    """
    gaps = _curves(report, lambda cell: cell.histories("gap"))
    if gaps is None:
        return NO_HISTORY
    (before, one), (after, two) = list(gaps.items())[-2:]
    changes = [np.diff(curves[:, SETTLED:], axis=1).std(1) for curves in (one, two)]
    falls = [curves[:, :ENDS].mean(1) / curves[:, -ENDS:].mean(1) for curves in (one, two)]
    wilder, slower = int((changes[1] > changes[0]).sum()), int((falls[1] < falls[0]).sum())
    return judge(
        2 * min(wilder, slower) > len(one),
        f"Change from epoch to epoch after epoch {SETTLED} (median of standard deviations): {after} "
        f"{np.median(changes[1]):.2g}, {before} {np.median(changes[0]):.2g}, more in {wilder} of {len(one)} runs. The "
        f"gap falls by a factor of {np.median(falls[1]):.2g} and {np.median(falls[0]):.2g}, by less in {slower}.",
    )


def last_gap_falls(report: PlanReport) -> ClaimOutcome:
    """The rise of the loss by the perturbation is smaller in the last epochs than in the first ones, in the last row.

    Args:
        report: A plan whose cells keep history.

    Returns:
        The outcome, over the runs of the last row.
    """
    gaps = _curves(report, lambda cell: cell.histories("gap"))
    if gaps is None:
        return NO_HISTORY
    row, curves = list(gaps.items())[-1]
    first, last = curves[:, :ENDS].mean(1), curves[:, -ENDS:].mean(1)
    fell = int((last < first).sum())
    return judge(
        2 * fell > len(first),
        f"{row}: {np.median(first):.2g} over the first {ENDS} epochs, {np.median(last):.2g} over the last {ENDS} "
        f"(medians); smaller in {fell} of {len(first)} runs.",
    )


def relative_gradients_are_smaller(report: PlanReport) -> ClaimOutcome:
    """After epoch 100 the gradient norm over that of the weights is smaller in every other row than in the first.

    Args:
        report: A plan whose cells keep history.

    Returns:
        The outcome, over the runs that share split and initialisation.
    """

    def relative(cell: CellReport) -> list[list[float]]:
        both = zip(cell.histories("gradient_norm"), cell.histories("weight_norm"), strict=False)
        return [np.divide(gradient, weight).tolist() for gradient, weight in both]

    curves = _curves(report, relative)
    if curves is None:
        return NO_HISTORY
    means = {row: np.median(each[:, SETTLED:], axis=1) for row, each in curves.items()}
    (first, plain), *others = means.items()
    smaller = {row: int((each < plain).sum()) for row, each in others}
    sentences = [
        f"{row} {np.median(each):.2g} (smaller in {smaller[row]} of {len(plain)} runs)" for row, each in others
    ]
    return judge(
        all(2 * count > len(plain) for count in smaller.values()),
        f"Gradient of the natural loss, median after epoch {SETTLED}: {first} {np.median(plain):.2g}, "
        f"{', '.join(sentences)}. The paper does not say which loss it means.",
    )


def _curves(report: PlanReport, curves_of: Callable[[CellReport], list[list[float]]]) -> dict[str, Curves] | None:
    """The curves of each row of the first column, run by run; None where a row has none, or fewer than the others."""
    curves = {c.cell.row: curves_of(c) for c in report.column(report.columns[0])}
    if not all(curves.values()) or len({len(each) for each in curves.values()}) > 1:
        return None
    return {row: np.array(each) for row, each in curves.items()}
