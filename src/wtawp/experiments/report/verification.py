"""Numbers in texts, held against the records: each is followed by a comment that says what it is.

    85.50<!-- = tab:natacc; GCN+WT-AWP; cora; mean -->

The comment names a plan, a row, a column and a statistic of the cell; or "first row -> second row" and a statistic of
the pair; or "fact" and the name of a number over several plans. The number is rounded as it is written.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from wtawp.experiments.results.certificates import at_radius, certified_grids, compare_certified
from wtawp.experiments.results.drops import DropComparison, compare_drops
from wtawp.experiments.results.facts import facts
from wtawp.experiments.results.geometry import find_modes, geometry_comparisons, ratios_at_matched_loss
from wtawp.experiments.results.summary import CellReport, PairReport, PlanReport

MARK = re.compile(r"<!--\s*=(.*?)-->", re.DOTALL)
FORGOTTEN = re.compile(r"<!--\s*(fact|tab:|fig:|claim:|extra:|deviation:)")  # marks without their equals sign
NUMBER_BEFORE = re.compile(r"([-+\u2212]?\d[\d,]*(?:\.\d+)?)[*_ %]*\Z")
ARROW = " -> "  # between the rows of a pair
Value = TypeVar("Value")
Place = TypeVar("Place", bound=tuple[str | int, ...])

RADIUS = re.compile(r"(.*)certified \((\d+), (\d+)\)")  # of a certificate, after what is said of it
RATIO = re.compile(r"(ratio|lower mode|upper mode|ratio at matched loss) of (.+)")  # of a measure of flatness
CELL: dict[str, Callable[[CellReport], float | None]] = {
    "mean": lambda c: c.mean,
    "std": lambda c: c.std,
    "drop": lambda c: c.mean_drop,
    "difference": lambda c: c.difference,
    "z": lambda c: c.z,
    "printed": lambda c: None if c.cell.printed is None else c.cell.printed[0],
    "runs": lambda c: c.num_finished,
    "lowest split": lambda c: min(c.split_means, default=None),
    "highest split": lambda c: max(c.split_means, default=None),
    "training accuracy": lambda c: fmean(100 * (r.accuracy or {})["train"] for r in c.records) if c.records else None,
    "seconds": lambda c: sum(r.seconds for r in c.records),
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


@dataclass(frozen=True)
class Mismatch:
    """A number that the records do not give.

    Attributes:
        path: The file.
        line: The number of the line, counted from 1.
        problem: What is wrong.
    """

    path: Path
    line: int
    problem: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.problem}"


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
                return self._statistic(_one_of(self._reports, plan, "plan"), row, column, statistic)
        raise ValueError(f"expected 'plan; row; column; statistic' or 'fact; name', got {'; '.join(parts)!r}")

    def _statistic(self, report: PlanReport, row: str, column: str, statistic: str) -> float | None:
        """A statistic of a cell or of a pair."""
        if ARROW not in row:
            cells = {(c.cell.row, c.cell.column): c for c in report.cells}
            if found := RADIUS.fullmatch(statistic):
                return _certified(report, _at(cells, (row, column)), found)
            return _one_of(CELL, statistic, "statistic of a cell")(_at(cells, (row, column)))
        before, after = (part.strip() for part in row.split(ARROW))
        if statistic in DROP:
            if report.plan.name not in self._drops:
                self._drops[report.plan.name] = compare_drops(report)
            drops = {(d.before, d.after, d.column): d for d in self._drops[report.plan.name]}
            return DROP[statistic](_at(drops, (before, after, column)))
        if found := RADIUS.fullmatch(statistic):
            return _certified_gain(report, column, found)
        if found := RATIO.fullmatch(statistic):
            return _flatness_ratio(report, column, found[1], found[2])
        pairs = {(p.before, p.after, p.column): p for p in report.pairs}
        return _one_of(PAIR, statistic, "statistic of a pair")(_at(pairs, (before, after, column)))


def _certified(report: PlanReport, cell: CellReport, found: re.Match[str]) -> float:
    """The mean over runs of the certified accuracy at a radius, or its standard deviation ("std of")."""
    grids = certified_grids(report, cell.cell.column)
    values = at_radius(_one_of(grids, cell.cell.row, "certified row"), (int(found[2]), int(found[3])))
    statistics = {"": lambda: values.mean(), "std of ": lambda: values.std(ddof=1)}
    return float(_one_of(statistics, found[1], "statistic of a certified accuracy")())


def _certified_gain(report: PlanReport, column: str, found: re.Match[str]) -> float:
    """What the second row of a column certifies more than the first at a radius, or in how many splits ("won of")."""
    gains = {c.radius: c.gain for c in compare_certified(report, column)}
    gain = _at(gains, (int(found[2]), int(found[3])))
    return float(_one_of({"gain of ": gain.mean, "won of ": gain.won}, found[1], "statistic of a certified gain"))


def _flatness_ratio(report: PlanReport, column: str, which: str, label: str) -> float | None:
    """A measure of flatness with the method over that without it: over all splits, or over some of them."""
    compared = geometry_comparisons(report)
    if which == "ratio at matched loss":
        matched = {c.quantity.label: c.ratio for c in ratios_at_matched_loss(report) if c.column == column}
        return _one_of(matched, label, "measure of flatness")
    found = _one_of({c.quantity.label: c for c in compared if c.column == column}, label, "measure of flatness")
    if which == "ratio":
        return found.mean_ratio
    modes = _one_of(find_modes(compared), column, "column with two modes")
    return modes.mean_ratios(found)[which == "upper mode"]


def verify(paths: Iterable[Path], reports: Iterable[PlanReport]) -> tuple[int, list[Mismatch]]:
    """Recompute every marked number of texts.

    Args:
        paths: Markdown files, and folders of them.
        reports: Plans with their measurements.

    Returns:
        How many numbers are marked, and those that the records do not give.

    Raises:
        OSError: If a file cannot be read.
    """
    quantities, count, wrong = Quantities(reports), 0, []
    for path in paths:
        for file in sorted(path.glob("**/*.md")) if path.is_dir() else [path]:
            text = file.read_text(encoding="utf-8", errors="replace")
            without = "a mark begins with an equals sign: <!-- = ... -->"
            wrong += [Mismatch(file, _line(text, mark), without) for mark in FORGOTTEN.finditer(text)]
            for mark in MARK.finditer(text):
                count += 1
                line = _line(text, mark)
                if problem := _problem(text[: mark.start()], mark[1].strip(), quantities):
                    wrong.append(Mismatch(file, line, problem))
    return count, wrong


def _line(text: str, mark: re.Match[str]) -> int:
    """The line in which a mark begins, counted from 1."""
    return text.count("\n", 0, mark.start()) + 1


def _problem(before: str, name: str, quantities: Quantities) -> str:
    """What is wrong with a marked number; "" if nothing is."""
    written = NUMBER_BEFORE.search(before)
    if written is None:
        return f"no number stands before the mark of {name!r}"
    try:
        value = quantities.value(name)
    except ValueError as error:
        return str(error)
    number = written[1].replace("\u2212", "-")
    expected = _as_written(value, number)
    return "" if expected == number else f"{name!r} is {expected}, and the text says {number}"


def _as_written(value: float, text: str) -> str:
    """A number in the form of another: as many decimals, with a sign or without, with thousands separated or not."""
    decimals = len(text.partition(".")[2])
    sign = "+" if text.startswith("+") or (text.startswith("-") and value > 0) else ""
    separator = "," if "," in text else ""
    rounded = round(value, decimals) + 0.0  # never -0
    return f"{rounded:{sign}{separator}.{decimals}f}"


def _one_of(known: Mapping[str, Value], name: str, kind: str) -> Value:
    """The value of a name; an unknown one is refused with what comes near."""
    if name in known:
        return known[name]
    near = get_close_matches(name, known, 3, 0.4)
    raise ValueError(f"there is no {kind} {name!r}" + (f"; near it are {', '.join(near)}" if near else ""))


def _at(known: Mapping[Place, Value], place: Place) -> Value:
    """What stands at a place of a table; an unknown one is refused."""
    if place in known:
        return known[place]
    raise ValueError(f"the table has nothing at {', '.join(map(str, place))}")
