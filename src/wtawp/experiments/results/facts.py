"""Numbers over several plans that texts quote by name: counts of distinct cells and pairs, and means over many of them.

A cell or a pair that stands in several tables counts once.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from statistics import fmean

from wtawp.experiments.results.drops import DropComparison, compare_drops
from wtawp.experiments.results.geometry import geometry_comparisons
from wtawp.experiments.results.league import League, make_league
from wtawp.experiments.results.overfitting import gains_and_overfitting, rank_correlation
from wtawp.experiments.results.statistics import SIGNIFICANCE_LEVEL, PairedDifference, holm
from wtawp.experiments.results.summary import CellReport, PairReport, PlanReport

CLEAN = ("tab:natacc", "tab:ablation", "tab:ablation2", "tab:ablationlast")
REPEATED = ("natacc", "ablation", "evasion")  # tables that are measured by the protocol of the released code, too
ROBUSTNESS = ("tab:poison", "tab:dicepoison", "tab:evasion")
WITHOUT_TUNING = ("extra:auto", "extra:auto-small")
GENERATED = ("citation", "toy-moons", "toy-rings")
SMALLEST_CHANGE = 0.15  # points that count as an improvement or as harm


class Reports:
    """Plans with their measurements, by name.

    Args:
        reports: The plans.
    """

    def __init__(self, reports: Mapping[str, PlanReport]) -> None:
        self._reports = reports

    def __getitem__(self, name: str) -> PlanReport:
        if name not in self._reports:
            raise ValueError(f"this needs the plan {name}, of which nothing is shown")
        return self._reports[name]


def facts(of_plans: Mapping[str, PlanReport]) -> dict[str, Callable[[], float]]:
    """Name the facts.

    Args:
        of_plans: All plans with their measurements.

    Returns:
        For each name a function that computes the number. It raises ValueError if a plan is missing or not complete.
    """
    reports = Reports(of_plans)
    return {
        **_distances(reports),
        **{f"clean {name}": count for name, count in _judged(reports, CLEAN).items()},
        **{f"robustness {name}": count for name, count in _judged(reports, ROBUSTNESS).items()},
        **{f"attacked {name}": count for name, count in _judged(reports, ROBUSTNESS, attacked=True).items()},
        **_pairs(reports),
        **_drops(reports),
        **_flatness(reports),
        **_without_tuning(reports),
        **_league(reports, of_plans),
    }


def _judged(reports: Reports, names: tuple[str, ...], *, attacked: bool = False) -> dict[str, Callable[[], float]]:
    """How many distinct cells the paper prints and we judge, and how many of them agree."""

    @cache
    def cells() -> list[CellReport]:
        found: dict[tuple[str, int | None], CellReport] = {}
        for name in names:
            for c in reports[name].cells:
                if c.verdict in ("agrees", "differs") and (c.cell.attack is not None or not attacked):
                    found.setdefault((c.cell.setting.content_json, c.cell.measure), c)
        return list(found.values())

    return {"cells": lambda: len(cells()), "cells that agree": lambda: sum(c.verdict == "agrees" for c in cells())}


def _distances(reports: Reports) -> dict[str, Callable[[], float]]:
    """How far tables lie from the printed ones, by our protocol and by that of the released code."""

    def mean_over(name: str, value: Callable[[CellReport], float | None]) -> float:
        judged = [(value(c), c.cell) for c in reports[name].cells if c.verdict in ("agrees", "differs")]
        if absent := [f"{cell.row}, {cell.column}" for number, cell in judged if number is None]:
            raise ValueError(f"{name} lacks this number in {len(absent)} cells, first in {absent[0]}")
        return fmean(number for number, _ in judged if number is not None)

    distances: dict[str, Callable[[], float]] = {}
    for table in REPEATED:
        for protocol, name in (("", f"tab:{table}"), (", released", f"released:{table}")):
            mean = partial(mean_over, name)
            distances[f"{table} distance{protocol}"] = partial(mean, _distance)
            distances[f"{table} offset{protocol}"] = partial(mean, lambda c: c.difference)
            distances[f"{table} deviation{protocol}"] = partial(mean, lambda c: c.std)
            distances[f"{table} deviation, printed"] = partial(mean, lambda c: c.cell.printed and c.cell.printed[1])
            distances |= {f"{table} {what}{protocol}": count for what, count in _judged(reports, (name,)).items()}
    return distances


def _distance(cell: CellReport) -> float | None:
    """How far the mean of a cell lies from the printed one."""
    return None if cell.difference is None else abs(cell.difference)


def _pairs(reports: Reports) -> dict[str, Callable[[], float]]:
    """How many distinct pairs there are with and without WT-AWP, and how many of those under attack gain."""

    @cache
    def attacked() -> list[PairedDifference]:
        return [pair.gain for pair, is_attacked in _distinct_pairs(reports) if is_attacked and pair.gain is not None]

    def num_significant() -> int:
        gains = attacked()
        corrected = holm([gain.p_value for gain in gains])
        return sum(g.mean > 0 and p < SIGNIFICANCE_LEVEL for g, p in zip(gains, corrected, strict=True))

    return {
        "pairs": lambda: sum(1 for _ in _distinct_pairs(reports)),
        "attacked pairs": lambda: len(attacked()),
        "attacked pairs that gain": lambda: sum(gain.mean > 0 for gain in attacked()),
        "attacked pairs that gain significantly": num_significant,
    }


def _distinct_pairs(reports: Reports) -> Iterator[tuple[PairReport, bool]]:
    """The pairs of the clean and the robustness tables, each once, and whether they are attacked."""
    seen = set()
    for name in ("tab:natacc", *ROBUSTNESS):
        cells = {(c.cell.row, c.cell.column): c.cell for c in reports[name].cells}
        for pair in reports[name].pairs:
            both = [cells[row, pair.column] for row in (pair.before, pair.after)]
            place = tuple((cell.setting.content_json, cell.measure) for cell in both)
            if place not in seen:
                seen.add(place)
                yield pair, both[1].attack is not None


def _drops(reports: Reports) -> dict[str, Callable[[], float]]:
    """What attacks take from the pairs of the robustness tables."""

    @cache
    def drops() -> list[DropComparison]:
        places = {(d.before, d.after, d.column): d for name in ROBUSTNESS for d in compare_drops(reports[name])}
        return list(places.values())

    return {
        "drops": lambda: len(drops()),
        "drops that are smaller": lambda: sum(d.is_smaller for d in drops()),
        "drops that are larger": lambda: sum(d.is_larger for d in drops()),
        "drops that are undecided": lambda: sum(not d.is_smaller and not d.is_larger for d in drops()),
        "mean gain under attack": lambda: fmean(d.gain for d in drops()),
        "mean gain on clean graphs": lambda: fmean(d.clean_gain for d in drops()),
    }


def _flatness(reports: Reports) -> dict[str, Callable[[], float]]:
    """How often WT-AWP's minima are flatter or sharper than those of plain training."""

    @cache
    def verdicts() -> list[str]:
        compared = [c for c in geometry_comparisons(reports["extra:flatness"]) if c.is_flatness]
        differences = {i: c.difference for i, c in enumerate(compared) if c.difference is not None}
        corrected = holm([difference.p_value for difference in differences.values()])
        return [compared[i].verdict(p) for i, p in zip(differences, corrected, strict=True)]

    return {
        "flatness comparisons": lambda: len(verdicts()),
        "flatness flatter": lambda: verdicts().count("flatter"),
        "flatness sharper": lambda: verdicts().count("sharper"),
    }


def _without_tuning(reports: Reports) -> dict[str, Callable[[], float]]:
    """What the paper's values for Cora and lam="auto" do to five models on real data sets."""

    @cache
    def gains(method: str) -> list[PairedDifference]:
        pairs = [p for name in WITHOUT_TUNING for p in reports[name].pairs if p.column not in GENERATED]
        return [p.gain for p in pairs if p.after == f"{p.before}+{method}" and p.gain is not None]

    def num_better(method: str) -> int:
        return sum(g.mean > SMALLEST_CHANGE and g.low is not None and g.low > 0 for g in gains(method))

    def num_worse(method: str) -> int:
        return sum(g.mean < -SMALLEST_CHANGE and g.high is not None and g.high < 0 for g in gains(method))

    def kept() -> list[float]:
        columns: dict[str, dict[str, float]] = {}
        for pair in reports["extra:auto-best"].pairs:
            if pair.gain is not None:
                columns.setdefault(pair.column, {})[pair.after] = pair.gain.mean
        if any(max(column.values()) <= 0 for column in columns.values()):
            raise ValueError("no fixed setting gains anything in a column of extra:auto-best")
        return [100 * column.pop("auto") / max(column.values()) for column in columns.values()]

    found: dict[str, Callable[[], float]] = {
        "study pairs": lambda: len(gains("WT-AWP")),
        "least kept of the best": lambda: min(kept()),
        "most kept of the best": lambda: max(kept()),
    }
    for short, method in (("fixed", "WT-AWP"), ("auto", "WT-AWP auto")):
        found[f"{short} improves"] = partial(num_better, method)
        found[f"{short} harms"] = partial(num_worse, method)
        found[f"{short} mean gain"] = partial(lambda m: fmean(g.mean for g in gains(m)), method)
        found[f"{short} worst gain"] = partial(lambda m: min(g.mean for g in gains(m)), method)
    return found


def _league(reports: Reports, of_plans: Mapping[str, PlanReport]) -> dict[str, Callable[[], float]]:
    """How the methods of the league stand, and how overfitting is related to their gains."""

    @cache
    def league() -> League:
        made = make_league(reports["extra:league"])
        if made is None:
            raise ValueError("extra:league has fewer than two complete columns")
        return made

    def mean_gain(method: str) -> float:
        return fmean(s.gain.mean for s in league().of(method) if s.gain is not None)

    def correlation(name: str, method: str) -> float:
        points = gains_and_overfitting(reports[name]).get(method)
        if not points:
            raise ValueError(f"{name} has no gain of {method}")
        return rank_correlation([x for x, _, _ in points], [y for _, y, _ in points])[0]

    found: dict[str, Callable[[], float]] = {
        "league columns": lambda: len(league().columns),
        "league methods": lambda: len(reports["extra:league"].plan.league),
        "league trials": lambda: len(reports["extra:league"].plan.league[0].rows),
        "league runs": lambda: reports["extra:league"].num_runs,
        "league critical difference": lambda: league().critical_difference,
    }
    contenders = of_plans["extra:league"].plan.league if "extra:league" in of_plans else ()
    for method in (contender.name for contender in contenders):
        found[f"league rank of {method}"] = partial(lambda m: league().mean_ranks[m], method)
        found[f"league gain of {method}"] = partial(mean_gain, method)
        found[f"league better: {method}"] = partial(lambda m: sum(s.is_better for s in league().of(m)), method)
        found[f"league worse: {method}"] = partial(lambda m: sum(s.is_worse for s in league().of(m)), method)
    for name in ("extra:league", "extra:auto-small"):
        for method in ("WT-AWP", "WT-AWP auto"):
            found[f"correlation of {method} in {name}"] = partial(correlation, name, method)
    return found
