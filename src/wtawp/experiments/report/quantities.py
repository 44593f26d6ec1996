"""The numbers that comments in texts can name: statistics of cells and of pairs, and facts over several plans."""

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cached_property
from statistics import fmean
from typing import TypeVar

import numpy as np

from wtawp.experiments.results.certificates import at_radius, certified_grids, compare_certified
from wtawp.experiments.results.claims import spread_changes
from wtawp.experiments.results.drops import DropComparison, compare_drops
from wtawp.experiments.results.facts import facts, with_records
from wtawp.experiments.results.geometry import (
    bounds_of,
    find_modes,
    geometry_comparisons,
    landscape_ends,
    ratios_at_matched_loss,
    smoothness_comparisons,
)
from wtawp.experiments.results.statistics import PairedDifference
from wtawp.experiments.results.summary import CellReport, PairReport, PlanReport, paired_over_splits

ARROW = " -> "  # between the rows of a pair
Value = TypeVar("Value")
Key = TypeVar("Key", bound=tuple[str | int, ...])

RADIUS = re.compile(r"(.*)certified \((\d+), (\d+)\)")  # of a certificate, after what is said of it
NORM = re.compile(r"norm ratio, (paper|released), ([AX])")  # of gradients, by definition and matrix
RISE = re.compile(r"rise, (.+)")  # of the loss along random lines, by the scale of their directions
RATIO = re.compile(r"(ratio|lower mode|upper mode|ratio at matched loss) of (.+)")  # of a measure of flatness
CELL: dict[str, Callable[[CellReport], float | None]] = {
    "mean": lambda c: c.mean,
    "std": lambda c: c.std,
    "drop": lambda c: c.mean_drop,
    "difference": lambda c: c.difference,
    "z": lambda c: c.z,
    "printed": lambda c: None if c.cell.printed is None else c.cell.printed[0],
    "printed std": lambda c: None if c.cell.printed is None else c.cell.printed[1],
    "runs": lambda c: c.num_finished,
    "lowest split": lambda c: min(c.split_means, default=None),
    "highest split": lambda c: max(c.split_means, default=None),
    "training accuracy": lambda c: _mean_accuracy(c, "train"),
    "validation accuracy": lambda c: _mean_accuracy(c, "val"),
    "training loss": lambda c: fmean((r.loss or {})["train"] for r in c.records) if c.records else None,
    "seconds": lambda c: sum(r.seconds for r in c.records),
    "smallest bound": lambda c: min((min(bound["total"]) for bound in bounds_of(c).values()), default=None),
    "largest gap": lambda c: max((b["all_loss"] - b["train_loss"] for b in bounds_of(c).values()), default=None),
    "mean bound": lambda c: fmean(min(b["total"]) for b in bounds_of(c).values()) if bounds_of(c) else None,
}
PAIR: dict[str, Callable[[PairReport], float | None]] = {
    "gain": lambda p: None if p.gain is None else p.gain.mean,
    "low": lambda p: None if p.gain is None else p.gain.low,
    "high": lambda p: None if p.gain is None else p.gain.high,
    "p": lambda p: None if p.gain is None else p.gain.p_value,
    "holm": lambda p: p.holm_p_value,
    "won": lambda p: None if p.gain is None else p.gain.won,
    "printed": lambda p: p.printed_gain,
}
DROP: dict[str, Callable[[DropComparison], float | None]] = {
    "change of drop": lambda d: d.change.mean,
    "low of change": lambda d: d.change.low,
    "high of change": lambda d: d.change.high,
    "clean gain": lambda d: d.clean_gain,
}
SPREAD: dict[str, Callable[[PairedDifference], float | None]] = {  # over the initialisations of a split
    "change of spread": lambda d: d.mean,
    "low of change of spread": lambda d: d.low,
    "high of change of spread": lambda d: d.high,
}


class Quantities:
    """The quantities that comments can name.

    Args:
        reports: Plans with their measurements.
    """

    def __init__(self, reports: Iterable[PlanReport]) -> None:
        self._reports = {report.plan.name: report for report in reports}
        self._drops: dict[str, tuple[DropComparison, ...]] = {}
        self._known: dict[str, float] = {}

    @cached_property
    def _facts(self) -> Mapping[str, Callable[[], float]]:
        return facts(self._reports)

    def value(self, name: str) -> float:
        """Compute a quantity.

        Args:
            name: What a comment says, without the equals sign.

        Returns:
            The number.

        Raises:
            ValueError: If there is no such quantity, or it was not measured.
        """
        if name not in self._known:
            value = self._compute([part.strip() for part in name.split(";")])
            if value is None:
                raise ValueError(f"{name!r} was not measured")
            self._known[name] = value
        return self._known[name]

    def _compute(self, parts: list[str]) -> float | None:
        """The number that the parts of a comment name; None if it was not measured."""
        match parts:
            case ["fact", fact]:
                return _one_of(self._facts, fact, "fact")()
            case [plan, row, column, statistic]:
                return self._statistic(with_records(self._report(plan)), row, column, statistic)
        raise ValueError(f"expected 'plan; row; column; statistic' or 'fact; name', got {'; '.join(parts)!r}")

    def _report(self, name: str) -> PlanReport:
        """A plan with its measurements; one that is not shown is refused with names that come near."""
        if name in self._reports:
            return self._reports[name]
        shown = ", ".join(get_close_matches(name, self._reports, 3, 0.4))
        raise ValueError(f"there is no plan {name!r} among those that are shown" + (shown and f"; near it are {shown}"))

    def _statistic(self, report: PlanReport, row: str, column: str, statistic: str) -> float | None:
        """A statistic of a cell or of a pair."""
        if ARROW not in row:
            cells = {(c.cell.row, c.cell.column): c for c in report.cells}
            if match := RADIUS.fullmatch(statistic):
                return _certified(report, _at(cells, (row, column)), match)
            if match := RISE.fullmatch(statistic):
                return _one_of(_at(landscape_ends(report), (column, match[1])), row, "row")
            return _one_of(CELL, statistic, "statistic of a cell")(_at(cells, (row, column)))
        before, after = (part.strip() for part in row.split(ARROW))
        if statistic in DROP:
            if report.plan.name not in self._drops:
                self._drops[report.plan.name] = compare_drops(report)
            drops = {(d.before, d.after, d.column): d for d in self._drops[report.plan.name]}
            return DROP[statistic](_at(drops, (before, after, column)))
        if match := RADIUS.fullmatch(statistic):
            return _certified_gain(report, column, match)
        if statistic in SPREAD:
            changes = {(p.before, p.after, p.column): change for p, change in spread_changes(report)}
            change = _at(changes, (before, after, column))
            return None if change is None else SPREAD[statistic](change)
        if match := NORM.fullmatch(statistic):
            return _norm_ratio(report, column, match[1], match[2])
        if match := RATIO.fullmatch(statistic):
            return _flatness_ratio(report, column, match[1], match[2])
        return _one_of(PAIR, statistic, "statistic of a pair")(_pair(report, before, after, column))


def _mean_accuracy(cell: CellReport, part: str) -> float | None:
    """The mean accuracy of the runs of a cell on a part of their splits, in per cent; None without runs."""
    return fmean(100 * (r.accuracy or {})[part] for r in cell.records) if cell.records else None


def _pair(report: PlanReport, before: str, after: str, column: str) -> PairReport:
    """A pair of the plan, or any other two rows of a column, which are then compared by themselves."""
    pairs = {(p.before, p.after, p.column): p for p in report.pairs}
    cells = {c.cell.row: c for c in report.column(column)}
    if (before, after, column) in pairs or not cells.keys() >= {before, after}:
        return _at(pairs, (before, after, column))
    one, two = cells[before], cells[after]
    is_complete = one.is_complete and two.is_complete
    return PairReport(before, after, column, is_complete, None, paired_over_splits(one, two), None)


def _certified(report: PlanReport, cell: CellReport, match: re.Match[str]) -> float:
    """The mean over runs of the certified accuracy at a radius, or its standard deviation ("std of")."""
    grids = certified_grids(report, cell.cell.column)
    values = at_radius(_one_of(grids, cell.cell.row, "certified row"), (int(match[2]), int(match[3])))
    statistics = {"": lambda: values.mean(), "std of ": lambda: values.std(ddof=1)}
    return float(_one_of(statistics, match[1], "statistic of a certified accuracy")())


def _certified_gain(report: PlanReport, column: str, match: re.Match[str]) -> float:
    """What the second row of a column certifies more than the first at a radius, or in how many splits ("won of")."""
    gains = {c.radius: c.gain for c in compare_certified(report, column)}
    gain = _at(gains, (int(match[2]), int(match[3])))
    return float(_one_of({"gain of ": gain.mean, "won of ": gain.won}, match[1], "statistic of a certified gain"))


def _flatness_ratio(report: PlanReport, column: str, which: str, label: str) -> float | None:
    """A measure of flatness with the method over that without it: over all splits, or over some of them."""
    compared = geometry_comparisons(report)
    if which == "ratio at matched loss":
        matched = {c.quantity.label: c.ratio for c in ratios_at_matched_loss(report) if c.column == column}
        return _one_of(matched, label, "measure of flatness")
    comparison = _one_of({c.quantity.label: c for c in compared if c.column == column}, label, "measure of flatness")
    if which == "ratio":
        return comparison.mean_ratio
    modes = _one_of(find_modes(compared), column, "column with two modes")
    return modes.mean_ratios(comparison)[which == "upper mode"]


def _norm_ratio(report: PlanReport, column: str, definition: str, matrix: str) -> float:
    """The geometric mean over runs of the gradient norm with the method over that without it."""
    compared = {(c.column, c.definition, c.matrix): c.pairs for c in smoothness_comparisons(report)}
    pairs = _at(compared, (column, definition, matrix))
    return float(np.exp(np.mean([np.log(pair.after[0] / pair.before[0]) for pair in pairs])))


def _one_of(known: Mapping[str, Value], name: str, kind: str) -> Value:
    """The value of a name; an unknown one is refused with what comes near."""
    if name in known:
        return known[name]
    near = get_close_matches(name, known, 3, 0.4)
    raise ValueError(f"there is no {kind} {name!r}" + (f"; near it are {', '.join(near)}" if near else ""))


def _at(known: Mapping[Key, Value], key: Key) -> Value:
    """What stands under a key of a table; an unknown one is refused."""
    if key in known:
        return known[key]
    raise ValueError(f"the table has nothing at {', '.join(map(str, key))}")
