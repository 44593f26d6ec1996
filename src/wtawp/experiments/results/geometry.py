"""Sharpness, curvature, loss landscapes, smoothness and bounds of trained models, from records alone."""

import math
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

import numpy as np

from wtawp.experiments.results.statistics import SIGNIFICANCE_LEVEL, PairedDifference, holm, paired_difference
from wtawp.experiments.results.summary import CellReport, PlanReport
from wtawp.experiments.spec import MeasureRequest, RunId

MATCHED_LOSS_FACTOR = 1.5  # two training losses match if neither is more than this factor times the other
MODE_GAP = 3.0  # factor between neighbouring ratios of training losses that separates two kinds of splits
MIN_MODE = 3  # splits of each kind
COMPARED_RADII = (1, 3)  # indices into the radii of a sharpness measure that are compared: the second and the last
MATRICES = {"adjacency": "A", "features": "X"}


@dataclass(frozen=True)
class SmoothnessPair:
    """Two models from one initialisation, without and with the method.

    Attributes:
        before: Gradient norm and test accuracy in per cent of the model without the method.
        after: The same of the model with the method.
    """

    before: tuple[float, float]
    after: tuple[float, float]

    @property
    def is_better(self) -> bool:
        """Whether the second model is both more accurate and smoother."""
        return self.after[0] < self.before[0] and self.after[1] > self.before[1]


@dataclass(frozen=True)
class SmoothnessComparison:
    """The pairs of one column of a plan, for one matrix and one definition of smoothness.

    Attributes:
        column: The column of the plan.
        matrix: "A" (adjacency) or "X" (features): by which the loss is differentiated.
        definition: "paper" or "released".
        is_last_epoch: Whether the weights of the last epoch were measured, and not those selected by validation.
        pairs: One for each split and initialisation that both methods have.
    """

    column: str
    matrix: str
    definition: str
    is_last_epoch: bool
    pairs: tuple[SmoothnessPair, ...]

    @property
    def num_better(self) -> int:
        """The number of pairs whose second model is both more accurate and smoother."""
        return sum(pair.is_better for pair in self.pairs)


def smoothness_comparisons(report: PlanReport) -> list[SmoothnessComparison]:
    """Pair the models that share split and initialisation, in every column with two rows.

    Args:
        report: A plan with its measurements.

    Returns:
        A comparison for each column and smoothness measure with results, in the order of the plan.
    """
    comparisons = []
    for column in report.columns:
        cells = report.column(column)
        if len(cells) != 2:
            continue
        for index, measure in measures_of(report, column):
            if measure.name != "smoothness":
                continue
            options = dict(measure.options)
            sides = [
                {run: (result["norm"], c.accuracies[run]) for run, result in results_of(c, index).items()}
                for c in cells
            ]
            shared = sorted(sides[0].keys() & sides[1].keys())
            if shared:
                comparisons.append(
                    SmoothnessComparison(
                        column,
                        MATRICES[str(options["wrt"])],
                        str(options.get("definition", "paper")),
                        cells[0].cell.setting.select_on == "last",
                        tuple(SmoothnessPair(sides[0][run], sides[1][run]) for run in shared),
                    )
                )
    return comparisons


@dataclass(frozen=True)
class Quantity:
    """Something measured of a trained model.

    Attributes:
        kind: "flatness" (smaller is flatter) or "loss", which is shown beside the measures of flatness.
        label: Its name in tables and figures.
    """

    kind: Literal["flatness", "loss"]
    label: str


LOSSES = {part: Quantity("loss", f"{part} loss") for part in ("train", "val", "test")}


@dataclass(frozen=True)
class GeometryComparison:
    """One quantity of two methods, paired over splits: how many times as large it is with the second.

    Values of one quantity differ by factors between splits, so their logarithms are averaged and tested.

    Attributes:
        column: The column of the plan.
        quantity: What is compared.
        before: Geometric mean over splits of the first method; NaN where a value is not a positive number.
        after: The same of the second method.
        log_ratio: Logarithm of the second less that of the first; None with fewer than two splits, or where a value is
            not a positive number.
        ratio: Second over first for each split; NaN where it does not exist.
        num_smaller: Splits in which the second method's value is smaller.
        num_not_positive: Splits in which a value of either method is not a positive number.
    """

    column: str
    quantity: Quantity
    before: float
    after: float
    log_ratio: PairedDifference | None
    ratio: tuple[float, ...]
    num_smaller: int
    num_not_positive: int

    @property
    def mean_ratio(self) -> float | None:
        """The geometric mean of the ratios over splits; None where there is no comparison."""
        return None if self.log_ratio is None else math.exp(self.log_ratio.mean)

    @property
    def ratio_interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the geometric mean; None where there is none."""
        if self.log_ratio is None or self.log_ratio.low is None or self.log_ratio.high is None:
            return None
        return math.exp(self.log_ratio.low), math.exp(self.log_ratio.high)

    @property
    def is_flatness(self) -> bool:
        """Whether it compares a measure of flatness, and not a loss."""
        return self.quantity.kind == "flatness"

    def verdict(self, p_value: float) -> str:
        """What the comparison says of the second method.

        Args:
            p_value: Of the logarithm of the ratio, after correction for multiple comparisons.

        Returns:
            "flatter", "sharper" or "undecided"; "" for losses and where there is no comparison.
        """
        if not self.is_flatness or self.log_ratio is None:
            return ""
        if p_value >= SIGNIFICANCE_LEVEL:
            return "undecided"
        return "flatter" if self.log_ratio.mean < 0 else "sharper"


def geometry_comparisons(report: PlanReport) -> list[GeometryComparison]:
    """Compare every measure of flatness, and the final losses, on the splits that both methods have.

    Args:
        report: A plan with its measurements.

    Returns:
        Comparisons for each column that has two rows and a measure of sharpness, in the order of the plan.
    """
    comparisons = []
    for column in report.columns:
        cells = report.column(column)
        if len(cells) != 2 or not any(m.name == "sharpness" for _, m in measures_of(report, column)):
            continue
        sides = [quantities_of(cell) for cell in cells]
        for quantity in sides[0]:
            shared = sorted(sides[0][quantity].keys() & sides[1].get(quantity, {}).keys())
            by_split: dict[int, list[RunId]] = {}
            for run in shared:  # the initialisations of a split are not independent: they are averaged first
                by_split.setdefault(run[0], []).append(run)
            if shared:
                one, two = ([fmean(side[quantity][r] for r in runs) for runs in by_split.values()] for side in sides)
                comparisons.append(_compare(column, quantity, one, two))
    return comparisons


def with_holm(compared: list[GeometryComparison]) -> list[tuple[GeometryComparison, float | None]]:
    """Correct the p-values of the measures of flatness for their number; losses stand beside them and are not tested.

    Args:
        compared: The comparisons of a plan.

    Returns:
        Each comparison with its p-value after Holm's correction; None for losses and where there is no comparison.
    """
    tested = {i: c.log_ratio.p_value for i, c in enumerate(compared) if c.is_flatness and c.log_ratio is not None}
    corrected = dict(zip(tested, holm(list(tested.values())), strict=True))
    return [(c, corrected.get(i)) for i, c in enumerate(compared)]


def _compare(column: str, quantity: Quantity, one: list[float], two: list[float]) -> GeometryComparison:
    """Compare the values of two methods, one for each split."""
    values = np.array([one, two])  # [2, splits]
    is_positive = np.isfinite(values) & (values > 0)
    logs = np.log(values, where=is_positive, out=np.full_like(values, math.nan))
    num_not_positive = int((~is_positive.all(0)).sum())
    log_ratio = paired_difference(*logs.tolist()) if len(one) > 1 and not num_not_positive else None
    before, after = (math.exp(side.mean()) for side in logs)
    ratio, num_smaller = tuple(np.exp(logs[1] - logs[0]).tolist()), int(np.less(two, one).sum())
    return GeometryComparison(column, quantity, before, after, log_ratio, ratio, num_smaller, num_not_positive)


@dataclass(frozen=True)
class MatchedLossRatio:
    """A measure of flatness, second method over first, on the splits whose training losses match.

    Attributes:
        column: The column of the plan.
        quantity: The measure of flatness.
        num_splits: How many splits match and have a ratio.
        ratio: The geometric mean over these splits.
        num_below: Splits in which the ratio is below 1: the second method is flatter.
    """

    column: str
    quantity: Quantity
    num_splits: int
    ratio: float
    num_below: int


def ratios_at_matched_loss(report: PlanReport) -> list[MatchedLossRatio]:
    """Compare the measures of flatness where neither training loss is more than 1.5 times the other.

    Args:
        report: A plan with its measurements.

    Returns:
        A ratio for each column and measure of flatness that has splits with matching losses.
    """
    compared, matched = geometry_comparisons(report), []
    for column in dict.fromkeys(c.column for c in compared):
        ratios = {c.quantity: np.array(c.ratio) for c in compared if c.column == column}
        losses = ratios[LOSSES["train"]]
        is_matched = (losses < MATCHED_LOSS_FACTOR) & (losses > 1 / MATCHED_LOSS_FACTOR)
        for quantity, ratio in ratios.items():
            some = ratio[is_matched & (ratio > 0)]
            if len(some) and quantity.kind == "flatness":
                mean = float(np.exp(np.log(some).mean()))
                matched.append(MatchedLossRatio(column, quantity, len(some), mean, int((some < 1).sum())))
    return matched


@dataclass(frozen=True)
class Modes:
    """The two groups of splits of a column whose training losses compare in two different ways.

    Attributes:
        column: The column of the plan.
        lower: The positions of the splits in which the second method's training loss is the lower multiple of the
            first's.
        upper: The positions of all others.
    """

    column: str
    lower: tuple[int, ...]
    upper: tuple[int, ...]

    def mean_ratios(self, compared: GeometryComparison) -> tuple[float, float]:
        """Average the ratios of a quantity over each group.

        Args:
            compared: The comparison of a quantity in the same column.

        Returns:
            The geometric means over the lower and over the upper group; NaN where a ratio does not exist.
        """
        logs = np.log(compared.ratio)
        return math.exp(logs[list(self.lower)].mean()), math.exp(logs[list(self.upper)].mean())


def find_modes(compared: list[GeometryComparison]) -> dict[str, Modes]:
    """Find the columns in which one mean over all splits would hide that there are two kinds of them.

    Validation stops plain training early on some splits and late on others, so that the training losses of the two
    methods are alike on the former and differ by a factor on the latter.

    Args:
        compared: The comparisons of a plan, with those of training losses.

    Returns:
        The groups of each column whose ratios of training losses have a gap of a factor of 3 between neighbours, with
        three splits or more on both sides.
    """
    modes = {}
    for c in compared:
        if c.quantity == LOSSES["train"] and c.log_ratio is not None:
            order = np.argsort(c.ratio)
            gaps = np.diff(np.log(np.array(c.ratio)[order]))
            cut = int(gaps.argmax()) + 1
            if gaps[cut - 1] > math.log(MODE_GAP) and MIN_MODE <= cut <= len(order) - MIN_MODE:
                modes[c.column] = Modes(c.column, tuple(order[:cut].tolist()), tuple(order[cut:].tolist()))
    return modes


def _rise(result: dict[str, Any]) -> float:
    """The rise of the loss at both ends of the lines, on average."""
    return float((result["mean"][0] + result["mean"][-1]) / 2 - result["loss"])


def landscape_ends(report: PlanReport) -> dict[tuple[str, str], dict[str, float]]:
    """Average the rise of the loss at the largest distances along random lines.

    Args:
        report: A plan with its measurements.

    Returns:
        For each column and scale of the directions, the geometric mean of the rise of each row over its runs; NaN where
        the loss of a run does not rise.
    """
    ends: dict[tuple[str, str], dict[str, float]] = {}
    for column in report.columns:
        for index, measure in measures_of(report, column):
            if measure.name == "landscape":
                for cell in report.column(column):
                    if rises := [_rise(result) for result in results_of(cell, index).values()]:
                        scale = str(dict(measure.options).get("scale", "layer"))
                        ends.setdefault((column, scale), {})[cell.cell.row] = _geometric_mean(rises)
    return ends


def _geometric_mean(values: list[float]) -> float:
    """The geometric mean of positive numbers; NaN where one is not positive."""
    return math.exp(fmean(map(math.log, values))) if min(values) > 0 else math.nan


def bounds_of(cell: CellReport) -> dict[RunId, dict[str, Any]]:
    """The results of the first bound among a cell's measures.

    Args:
        cell: A cell with its measurements.

    Returns:
        The result of each run, by split and initialisation; empty where no bound was measured.
    """
    indices = [index for index, measure in enumerate(cell.cell.setting.measures) if measure.name == "bound"]
    return results_of(cell, indices[0]) if indices else {}


def measures_of(report: PlanReport, column: str) -> list[tuple[int, MeasureRequest]]:
    """The measures of a column, taken from its first cell.

    Args:
        report: A plan with its measurements.
        column: The name of the column.

    Returns:
        Each measure with its index in the setting; empty where the column has no cell.
    """
    cells = report.column(column)
    return list(enumerate(cells[0].cell.setting.measures)) if cells else []


def results_of(cell: CellReport, index: int) -> dict[RunId, dict[str, Any]]:
    """The results of one measure of a cell.

    Args:
        cell: A cell with its measurements.
        index: The position of the measure among those of the cell's setting.

    Returns:
        The result of each run that has one, by split and initialisation.
    """
    records = [r for r in cell.records if r.measured is not None and len(r.measured) > index]
    return {(r.split, r.init): (r.measured or [])[index] for r in records}


def quantities_of(cell: CellReport) -> dict[Quantity, dict[RunId, float]]:
    """Collect every measure of flatness and the final losses of a cell.

    Args:
        cell: A cell with its measurements.

    Returns:
        For each quantity its value in every run, by split and initialisation.
    """
    values: dict[Quantity, dict[RunId, float]] = {}
    for index, measure in enumerate(cell.cell.setting.measures):
        results = results_of(cell, index)
        options: dict[str, Any] = dict(measure.options)
        if measure.name == "sharpness":
            for i in COMPARED_RADII if results else ():
                rho = next(iter(results.values()))["rhos"][i]
                quantity = Quantity("flatness", f"sharpness, {options.get('radius', 'layer')}, rho={rho:g}")
                values[quantity] = {run: r["rises"][i] for run, r in results.items()}
        elif measure.name == "spectrum":
            values[Quantity("flatness", "largest eigenvalue")] = {run: r["top"][0] for run, r in results.items()}
            values[Quantity("flatness", "trace of the Hessian")] = {run: r["trace"] for run, r in results.items()}
        elif measure.name == "landscape":
            quantity = Quantity("flatness", f"rise along random lines, {options.get('scale', 'layer')}")
            values[quantity] = {run: _rise(r) for run, r in results.items()}
    for part, quantity in LOSSES.items():
        values[quantity] = {(r.split, r.init): (r.loss or {}).get(part, math.nan) for r in cell.records}
    return values
