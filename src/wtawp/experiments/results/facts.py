"""Numbers over several plans that texts quote by name: counts of distinct cells and pairs, and means over many of them.

A cell or a pair that stands in several tables counts once.
"""

from collections import UserDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import cache, partial
from statistics import correlation, fmean, median

import numpy as np

from wtawp.experiments.results.certificates import compare_certified
from wtawp.experiments.results.claims import FIRST_EPOCHS, vanishing_epoch
from wtawp.experiments.results.distinct import ROBUSTNESS, distinct_judged, distinct_pairs
from wtawp.experiments.results.drops import DropComparison, compare_drops
from wtawp.experiments.results.geometry import geometry_comparisons, smoothness_comparisons, with_holm
from wtawp.experiments.results.league import League, make_league
from wtawp.experiments.results.main_claims import MAIN_CLAIMS, TIMED_ON_CPU, CheckedClaim, check_claims, cost_ratios
from wtawp.experiments.results.overfitting import gains_and_overfitting, rank_correlation
from wtawp.experiments.results.statistics import SIGNIFICANCE_LEVEL, PairedDifference, holm
from wtawp.experiments.results.summary import TOLERANCE, CellReport, PlanReport

CLEAN = ("tab:natacc", "tab:ablation", "tab:ablation2", "tab:ablationlast")
REPEATED = (
    "natacc",
    "ablation",
    "ablation2",
    "ablationlast",
    "poison",
    "evasion",
)  # tables that are measured by the protocol of the released code, too
WITHOUT_TUNING = ("extra:auto", "extra:auto-small")
GENERATED = ("citation", "toy-moons", "toy-rings")
TIMED = {  # plans that were trained together, without a pause
    "flatness": ("extra:flatness", "extra:sharpness"),
}
SMALLEST_CHANGE = 0.15  # points that count as an improvement or as harm
CLEAR_Z = 2.0  # standard errors that chance seldom explains


IMPORT_ADVICE = "import the records first: wtawp results import results/*.jsonl.gz, or pass --records results"


class Reports(UserDict[str, PlanReport]):
    """Plans with their measurements, by name; a plan that is not there, or was not measured, is a ValueError."""

    def __getitem__(self, name: str) -> PlanReport:
        if name not in self.data:
            raise ValueError(
                f"this needs the plan {name}, which is not among those shown; add its label to the command"
            )
        return with_records(self.data[name])


def with_records(report: PlanReport) -> PlanReport:
    """Refuse a plan of which nothing is stored.

    Args:
        report: The plan with its measurements.

    Returns:
        The same report.

    Raises:
        ValueError: If no run of it is stored; the message says how to import some.
    """
    if report.device is None:
        raise ValueError(f"this needs the plan {report.plan.name}, of which nothing is stored; {IMPORT_ADVICE}")
    return report


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
        **_claims(reports),
        **_times(reports, of_plans),
        **_smoothness(reports),
        **_certificates(reports),
        **_gradients(reports),
        **_flatness(reports),
        **_without_tuning(reports),
        **_leagues(reports, of_plans),
    }


def _judged(reports: Reports, names: tuple[str, ...], *, attacked: bool = False) -> dict[str, Callable[[], float]]:
    """How many distinct cells the paper prints and we judge, how many agree, and how many are off by more than chance.

    "agree without the method" counts the cells as if it did nothing: our plain row stands in for every row with it.
    """

    @cache
    def cells() -> list[CellReport]:
        return distinct_judged(reports, names, attacked=attacked)

    @cache
    def plain() -> dict[tuple[str, int | None], CellReport]:
        every = (c for name in ("tab:natacc", *names) for c in reports[name].cells)
        return {(c.cell.setting.content_json, c.cell.measure): c for c in every if c.cell.setting.awp is None}

    def agrees_without(c: CellReport) -> bool:
        without = plain().get((replace(c.cell.setting, awp=None).content_json, c.cell.measure))
        if without is None or without.mean is None or c.cell.printed is None:
            raise ValueError(f"{c.cell.row}, {c.cell.column} has no plain row to stand in for it")
        return round(abs(without.mean - c.cell.printed[0]), 9) <= TOLERANCE

    def is_clear(c: CellReport) -> bool:
        return c.z is not None and abs(c.z) > CLEAR_Z

    return {
        "cells": lambda: len(cells()),
        "cells that agree": lambda: sum(c.verdict == "agrees" for c in cells()),
        "cells that agree without the method": lambda: sum(map(agrees_without, cells())),
        "cells beyond two errors": lambda: sum(map(is_clear, cells())),
        "cells that differ beyond two errors": lambda: sum(c.verdict == "differs" and is_clear(c) for c in cells()),
    }


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
        return [
            pair.gain
            for pair, is_attacked in distinct_pairs(reports, ("tab:natacc", *ROBUSTNESS))
            if is_attacked and pair.gain is not None
        ]

    def num_significant() -> int:
        gains = attacked()
        corrected = holm([gain.p_value for gain in gains])
        return sum(g.mean > 0 and p < SIGNIFICANCE_LEVEL for g, p in zip(gains, corrected, strict=True))

    def gain_correlation() -> float:
        both = [
            (p.gain.mean, p.printed_gain)
            for p, _ in distinct_pairs(reports, ("tab:natacc", *ROBUSTNESS))
            if p.gain is not None
        ]
        return correlation(*zip(*((ours, paper) for ours, paper in both if paper is not None), strict=True))

    def ablation_correlation() -> float:
        cells = [c for name in CLEAN[1:] for c in reports[name].cells if c.verdict in ("agrees", "differs")]
        both = [(c.mean, c.cell.printed[0]) for c in cells if c.mean is not None and c.cell.printed is not None]
        return correlation(*zip(*both, strict=True))

    per_table: dict[str, Callable[[], float]] = {}
    for name in ("tab:natacc", *ROBUSTNESS):
        table = name.removeprefix("tab:")
        per_table |= {f"{table} {what}": count for what, count in _judged(reports, (name,)).items()}
        per_table[f"{table} pairs"] = partial(lambda n: len(reports[n].pairs), name)
        per_table[f"{table} pairs that gain"] = partial(_num_gaining, reports, name, 1.0)
        per_table[f"{table} pairs that gain significantly"] = partial(_num_gaining, reports, name, SIGNIFICANCE_LEVEL)
    return per_table | {
        "correlation of gains with the printed ones": gain_correlation,
        "correlation over ablation cells": ablation_correlation,
        "pairs": lambda: sum(1 for _ in distinct_pairs(reports, ("tab:natacc", *ROBUSTNESS))),
        "attacked pairs": lambda: len(attacked()),
        "attacked pairs that gain": lambda: sum(gain.mean > 0 for gain in attacked()),
        "attacked pairs that gain significantly": num_significant,
    }


def _num_gaining(reports: Reports, name: str, level: float) -> int:
    """How many pairs of a table gain, with a p-value of at most `level` after Holm's correction over the table."""
    pairs = [(p.gain.mean, p.holm_p_value) for p in reports[name].pairs if p.gain is not None]
    return sum(gain > 0 and p is not None and (p < level or level == 1.0) for gain, p in pairs)


def _claims(reports: Reports) -> dict[str, Callable[[], float]]:
    """How many claims of the paper there are, and how many hold; all plans that decide the main ones are needed."""

    @cache
    def claims() -> list[CheckedClaim]:
        for name in sorted({name for claim in MAIN_CLAIMS for name in claim.plans}):
            reports[name]  # is refused if nothing of it is stored
        return check_claims({name: report for name, report in reports.data.items() if report.records})

    def count(verdict: str | None, *, main: bool) -> int:
        return sum(c.is_main >= main and verdict in (None, c.outcome.verdict) for c in claims())

    return {
        "claims": lambda: count(None, main=False),
        "claims that hold": lambda: count("holds", main=False),
        "main claims": lambda: count(None, main=True),
        "main claims that hold": lambda: count("holds", main=True),
        "times the seconds of plain training": lambda: median(cost_ratios(reports[TIMED_ON_CPU])),
    }


def _times(reports: Reports, of_plans: Mapping[str, PlanReport]) -> dict[str, Callable[[], float]]:
    """How long plans took: the sum of their records' seconds, and the minutes from the first record to the last."""

    def minutes(names: tuple[str, ...]) -> float:
        times = [datetime.fromisoformat(r.created) for name in names for r in reports[name].records]
        return (max(times) - min(times)).total_seconds() / 60

    numbers: dict[str, Callable[[], float]] = {f"minutes of {g}": partial(minutes, n) for g, n in TIMED.items()}
    for name in of_plans:
        numbers[f"seconds of {name}"] = partial(lambda n: sum(r.seconds for r in reports[n].records), name)
    return numbers


def _smoothness(reports: Reports) -> dict[str, Callable[[], float]]:
    """In how many pairs WT-AWP is both more accurate and smoother, by definition and epoch."""

    def better(definition: str, is_last: bool) -> int:
        compared = smoothness_comparisons(reports["fig:lipcora"])
        return sum(c.num_better for c in compared if (c.definition, c.is_last_epoch) == (definition, is_last))

    return {
        f"better and smoother, {definition}{epoch}": partial(better, definition, bool(epoch))
        for definition in ("paper", "released")
        for epoch in ("", ", last epoch")
    }


def _certificates(reports: Reports) -> dict[str, Callable[[], float]]:
    """At how many radii WT-AWP certifies more nodes than plain training, and at how many fewer."""
    numbers: dict[str, Callable[[], float]] = {}
    for data, name in (("Cora", "fig:certcora"), ("Citeseer", "fig:certcite")):
        for part in ("features", "edges"):
            compared = cache(partial(lambda n, p: compare_certified(reports[n], f"smoothed, {p}"), name, part))
            where = f"radii of {part} on {data}"
            numbers[where] = partial(lambda c: len(c()), compared)
            numbers[f"{where}, higher"] = partial(lambda c: sum(r.gain.mean > 0 for r in c()), compared)
            numbers[f"{where}, lower"] = partial(lambda c: sum(r.gain.mean < 0 for r in c()), compared)
            numbers[f"{where}, significantly higher"] = partial(lambda c: sum(r.is_higher for r in c()), compared)
            numbers[f"{where}, significantly lower"] = partial(lambda c: sum(r.is_lower for r in c()), compared)
    return numbers


def _gradients(reports: Reports) -> dict[str, Callable[[], float]]:
    """By which factor the gradient of AWP with rho = 20 falls from its mean over five epochs, and when it vanishes."""

    def fall(dataset: str, epoch: int) -> float:
        (cell,) = reports["claim:vanishing-gradient"].column(dataset)
        norms = np.median(cell.histories("perturbed_norm"), axis=0)
        return float(norms[:FIRST_EPOCHS].mean() / norms[epoch])

    def vanished(dataset: str) -> float:
        (cell,) = reports["claim:vanishing-gradient"].column(dataset)
        epoch = vanishing_epoch(np.median(cell.histories("perturbed_norm"), axis=0).tolist())
        if epoch is None:
            raise ValueError(f"the gradient never vanishes on {dataset}")
        return epoch

    measured = [(dataset, epoch) for dataset in ("cora", "citeseer", "polblogs") for epoch in (20, 80, 199)]
    falls: dict[str, Callable[[], float]]
    falls = {f"fall of the gradient on {d} by epoch {e}": partial(fall, d, e) for d, e in measured}
    return falls | {f"epoch of the vanished gradient on {d}": partial(vanished, d) for d, _ in measured}


def _drops(reports: Reports) -> dict[str, Callable[[], float]]:
    """What attacks take from the pairs of the robustness tables."""

    @cache
    def drops() -> list[DropComparison]:
        distinct = {(d.before, d.after, d.column): d for name in ROBUSTNESS for d in compare_drops(reports[name])}
        return list(distinct.values())

    return {
        "drops": lambda: len(drops()),
        "drops that are smaller": lambda: sum(d.is_smaller for d in drops()),
        "drops that are larger": lambda: sum(d.is_larger for d in drops()),
        "drops that are undecided": lambda: sum(not d.is_smaller and not d.is_larger for d in drops()),
        "drops of evasion that are smaller": lambda: sum(d.is_smaller for d in compare_drops(reports["tab:evasion"])),
        "mean gain under attack": lambda: fmean(d.gain for d in drops()),
        "mean gain on clean graphs": lambda: fmean(d.clean_gain for d in drops()),
    }


def _flatness(reports: Reports) -> dict[str, Callable[[], float]]:
    """How often WT-AWP's minima are flatter or sharper than those of plain training."""

    @cache
    def verdicts() -> list[str]:
        compared = with_holm(geometry_comparisons(reports["extra:flatness"]))
        return [c.verdict(p) for c, p in compared if p is not None]

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

    numbers: dict[str, Callable[[], float]] = {
        "study pairs": lambda: len(gains("WT-AWP")),
        "least kept of the best": lambda: min(kept()),
        "most kept of the best": lambda: max(kept()),
    }
    for short, method in (("fixed", "WT-AWP"), ("auto", "WT-AWP auto")):
        numbers[f"{short} improves"] = partial(num_better, method)
        numbers[f"{short} harms"] = partial(num_worse, method)
        numbers[f"{short} mean gain"] = partial(lambda m: fmean(g.mean for g in gains(m)), method)
        numbers[f"{short} worst gain"] = partial(lambda m: min(g.mean for g in gains(m)), method)
    return numbers


def _leagues(reports: Reports, of_plans: Mapping[str, PlanReport]) -> dict[str, Callable[[], float]]:
    """How the methods of each league stand ("league public ..."), and how overfitting is related to their gains."""

    def rank_correlation_in(name: str, method: str) -> float:
        points = gains_and_overfitting(reports[name]).get(method)
        if not points:
            raise ValueError(f"{name} has no gain of {method}")
        return rank_correlation([x for x, _, _ in points], [y for _, y, _ in points])[0]

    numbers: dict[str, Callable[[], float]] = {}
    for label in {"extra:league", *(name for name, report in of_plans.items() if report.plan.league)}:
        name = label.removeprefix("extra:").replace("-", " ")
        numbers |= {f"{name} {what}": count for what, count in _standings(reports, of_plans, label).items()}
    for label in ("extra:league", "extra:auto-small"):
        for method in ("WT-AWP", "WT-AWP auto"):
            numbers[f"correlation of {method} in {label}"] = partial(rank_correlation_in, label, method)
    return numbers


def _standings(reports: Reports, of_plans: Mapping[str, PlanReport], label: str) -> dict[str, Callable[[], float]]:
    """How the methods of one league stand."""

    @cache
    def league() -> League:
        made = make_league(reports[label])
        if made is None:
            raise ValueError(f"{label} has fewer than two complete columns")
        return made

    def mean_gain(method: str) -> float:
        return fmean(s.gain.mean for s in league().of(method) if s.gain is not None)

    numbers: dict[str, Callable[[], float]] = {
        "columns": lambda: len(league().columns),
        "methods": lambda: len(reports[label].plan.league),
        "trials": lambda: len(reports[label].plan.league[0].rows),
        "runs": lambda: reports[label].num_runs,
        "critical difference": lambda: league().critical_difference,
        "p value": lambda: league().friedman_p_value,
    }
    contenders = of_plans[label].plan.league if label in of_plans else ()
    for method in (contender.name for contender in contenders):
        numbers[f"rank of {method}"] = partial(lambda m: league().mean_ranks[m], method)
        numbers[f"gain of {method}"] = partial(mean_gain, method)
        numbers[f"better: {method}"] = partial(lambda m: sum(s.is_better for s in league().of(m)), method)
        numbers[f"worse: {method}"] = partial(lambda m: sum(s.is_worse for s in league().of(m)), method)
    return numbers
