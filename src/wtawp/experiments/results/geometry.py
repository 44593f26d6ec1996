"""Flatness and smoothness of trained models in numbers, from records alone."""

import math
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from wtawp.experiments.results.statistics import PairedDifference, paired_difference
from wtawp.experiments.results.summary import CellReport, PlanReport
from wtawp.experiments.spec import Measure

Place = tuple[int, int]  # split, initialisation
SIGNIFICANT = 0.05
BOUND_TERMS = ("loss", "tail", "complexity", "remainder", "total")
LIKE = 1.5
TOLD = (1, 3)  # of the radii at which sharpness was measured: the second, and the last
MATRICES = {"adjacency": "A", "features": "X"}


@dataclass(frozen=True)
class SmoothPair:
    """A model without and with the method: gradient norm and test accuracy in per cent."""

    before: tuple[float, float]
    after: tuple[float, float]

    @property
    def is_better(self) -> bool:
        """More accurate, and smoother."""
        return self.after[0] < self.before[0] and self.after[1] > self.before[1]


def smooth_pairs(report: PlanReport) -> dict[tuple[str, str, str], list[SmoothPair]]:
    """By column, matrix (A or X) and definition: the pairs that share split and initialisation."""
    found: dict[tuple[str, str, str], list[SmoothPair]] = {}
    for column in report.columns:
        cells = report.column(column)
        if len(cells) != 2:
            continue
        for place, measure in enumerate(cells[0].cell.setting.measures):
            if measure.name != "smoothness":
                continue
            told = dict(measure.options)
            sides = [{p: (r["norm"], c.accuracies[p]) for p, r in results_of(c, place).items()} for c in cells]
            pairs = [SmoothPair(sides[0][p], sides[1][p]) for p in sorted(sides[0].keys() & sides[1].keys())]
            if pairs:
                found[column, MATRICES[str(told["wrt"])], str(told.get("definition", "paper"))] = pairs
    return found


@dataclass(frozen=True)
class FlatComparison:
    """One quantity, smaller being flatter, of two methods paired over splits."""

    column: str
    quantity: str
    is_flatness: bool  # False: a loss, told beside it
    before: float  # mean over splits; infinite or NaN where one of them is
    after: float
    difference: PairedDifference | None  # None: fewer than two splits, or not all are finite
    ratio: tuple[float, ...]  # of each split, with / without; NaN where there is none
    smaller: int  # splits in which the second is
    num_gaps: int  # splits in which either method's is not finite

    def verdict(self, p_value: float) -> str:
        """Flatter, sharper, or not to be told apart."""
        if not self.is_flatness or self.difference is None:
            return ""
        if p_value >= SIGNIFICANT:
            return "undecided"
        return "flatter" if self.difference.mean < 0 else "sharper"


def flatness_comparisons(report: PlanReport) -> list[FlatComparison]:
    """Every measure of flatness, and the final losses, on the splits that both methods have."""
    found = []
    for column in report.columns:
        cells = report.column(column)
        if len(cells) != 2 or not any(m.name == "sharpness" for _, m in measures_of(report, column)):
            continue
        sides = [_quantities(cell) for cell in cells]
        for name in sides[0]:
            shared = sorted(sides[0][name].keys() & sides[1].get(name, {}).keys())
            by_split: dict[int, list[Place]] = {}
            for place in shared:  # the initialisations of a split are not independent: they are averaged first
                by_split.setdefault(place[0], []).append(place)
            if shared:
                one, two = ([fmean(side[name][p] for p in places) for places in by_split.values()] for side in sides)
                found.append(_compared(column, name, one, two))
    return found


def _compared(column: str, name: str, one: list[float], two: list[float]) -> FlatComparison:
    finite = np.isfinite(one) & np.isfinite(two)
    difference = paired_difference(one, two) if len(one) > 1 and finite.all() else None
    ratio = tuple(b / a if a > 0 and math.isfinite(b / a) else math.nan for a, b in zip(one, two, strict=True))
    means = float(np.mean(one)), float(np.mean(two))
    smaller, gaps = int(np.less(two, one).sum()), int((~finite).sum())
    return FlatComparison(column, name, not name.endswith(" loss"), *means, difference, ratio, smaller, gaps)


@dataclass(frozen=True)
class LikeLosses:
    """A measure with the method over that without, on the splits whose training losses are alike."""

    column: str
    quantity: str
    num_splits: int
    ratio: float  # their geometric mean
    below: int  # splits in which it is below 1


def ratios_at_matched_loss(report: PlanReport) -> list[LikeLosses]:
    """Every measure of flatness where neither training loss is more than LIKE times the other's."""
    compared, found = flatness_comparisons(report), []
    for column in dict.fromkeys(c.column for c in compared):
        ratios = {c.quantity: np.array(c.ratio) for c in compared if c.column == column}
        losses = ratios.pop("train loss")
        alike = (losses < LIKE) & (losses > 1 / LIKE)
        for quantity, each in ratios.items():
            some = each[alike & (each > 0)]
            if len(some) and not quantity.endswith(" loss"):
                mean = float(np.exp(np.log(some).mean()))
                found.append(LikeLosses(column, quantity, len(some), mean, int((some < 1).sum())))
    return found


def _rise(result: dict[str, Any]) -> float:
    """The mean rise at both ends of the lines."""
    return float((result["mean"][0] + result["mean"][-1]) / 2 - result["loss"])


def landscape_ends(report: PlanReport) -> dict[tuple[str, str], dict[str, float]]:
    """By column and scale of the directions: each row's mean rise at the farthest distances, over runs."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for column in report.columns:
        for place, measure in measures_of(report, column):
            if measure.name == "landscape":
                for cell in report.column(column):
                    if rises := [_rise(result) for result in results_of(cell, place).values()]:
                        scale = str(dict(measure.options).get("scale", "layer"))
                        found.setdefault((column, scale), {})[cell.cell.row] = float(np.mean(rises))
    return found


def bounds_of(cell: CellReport) -> dict[Place, dict[str, Any]]:
    """What the cell's first bound gave, by split and initialisation."""
    places = [place for place, measure in enumerate(cell.cell.setting.measures) if measure.name == "bound"]
    return results_of(cell, places[0]) if places else {}


def measures_of(report: PlanReport, column: str) -> list[tuple[int, Measure]]:
    """Of a column's settings, with their places."""
    cells = report.column(column)
    return list(enumerate(cells[0].cell.setting.measures)) if cells else []


def results_of(cell: CellReport, place: int) -> dict[Place, dict[str, Any]]:
    """What a measure gave, by split and initialisation."""
    records = [r for r in cell.records if r.measured is not None and len(r.measured) > place]
    return {(r.split, r.init): (r.measured or [])[place] for r in records}


def _quantities(cell: CellReport) -> dict[str, dict[Place, float]]:
    """Each measure by split and initialisation, and the final losses."""
    found: dict[str, dict[Place, float]] = {}
    for place, measure in enumerate(cell.cell.setting.measures):
        results = results_of(cell, place)
        told: dict[str, Any] = dict(measure.options)
        if measure.name == "sharpness":
            for i in TOLD if results else ():
                rho = next(iter(results.values()))["rhos"][i]
                name = f"sharpness, {told.get('radius', 'layer')}, rho={rho:g}"
                found[name] = {p: r["rises"][i] for p, r in results.items()}
        elif measure.name == "spectrum":
            found["largest eigenvalue"] = {p: r["top"][0] for p, r in results.items()}
            found["trace of the Hessian"] = {p: r["trace"] for p, r in results.items()}
        elif measure.name == "landscape":
            name = f"rise along random lines, {told.get('scale', 'layer')}"
            found[name] = {p: _rise(r) for p, r in results.items()}
    for part in ("train", "val", "test"):
        found[f"{part} loss"] = {(r.split, r.init): (r.loss or {}).get(part, math.nan) for r in cell.records}
    return found
