"""Plans and records into numbers: every cell beside the paper's, and every pair with and without the method.

A pure function: nothing is trained, and the order of the records does not matter.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, stdev
from typing import Literal

from wtawp.experiments.results.statistics import PairedDifference, holm, paired_difference, unpaired_p_value
from wtawp.experiments.spec import Cell, Plan, Record

Verdict = Literal["agrees", "differs", "reported", "incomplete"]
TOLERANCE = 0.5  # points between our mean and the printed one


@dataclass(frozen=True)
class CellReport:
    """A cell with what was measured for it, on one device. Accuracies are those of the test set, in per cent."""

    cell: Cell
    keys: tuple[str, ...]  # of all its runs
    records: tuple[Record, ...]  # of finished runs, split by split
    failed: tuple[Record, ...]

    @property
    def wanted(self) -> int:
        """How many runs the plan asks for."""
        return len(self.keys)

    @property
    def found(self) -> int:
        """How many of them are finished."""
        return len(self.records)

    @property
    def is_complete(self) -> bool:
        return self.found == self.wanted

    @cached_property
    def accuracies(self) -> dict[tuple[int, int], float]:
        """By split and initialisation."""
        return {(r.split, r.init): 100 * self._accuracy(r) for r in self.records}

    def _accuracy(self, record: Record) -> float:
        if self.cell.measure is None:
            return (record.accuracy or {})["test"]
        return float((record.measured or [])[self.cell.measure]["accuracy"])

    @property
    def mean(self) -> float | None:
        return fmean(self.accuracies.values()) if self.records else None

    @property
    def std(self) -> float | None:
        """The standard deviation over runs, where there are two."""
        return stdev(self.accuracies.values()) if self.found > 1 else None

    @property
    def difference(self) -> float | None:
        """Our mean less the printed one."""
        return None if self.mean is None or self.cell.printed is None else self.mean - self.cell.printed[0]

    @property
    def verdict(self) -> Verdict:
        """A missing run is said before anything else; what is not judged, or not printed, is only reported."""
        if not self.is_complete:
            return "incomplete"
        if self.difference is None or not self.cell.judged:
            return "reported"
        return "agrees" if round(abs(self.difference), 9) <= TOLERANCE else "differs"

    def histories(self, column: str) -> list[list[float]]:
        """A curve over the epochs for each run that kept it."""
        return [r.history[column] for r in self.records if r.history is not None and column in r.history]


@dataclass(frozen=True)
class PairReport:
    """Two rows of a column, compared on the runs that both have."""

    before: str
    after: str
    column: str
    is_complete: bool
    runs_p_value: float | None  # the paper's test: all runs, taken for independent
    gain: PairedDifference | None  # paired over the means of splits
    holm_p_value: float | None  # of the gain, corrected over all pairs of the plan


@dataclass(frozen=True)
class PlanReport:
    """A plan with its measurements, all from one device."""

    plan: Plan
    device: str | None  # None where nothing was trained yet
    other_devices: tuple[tuple[str, int], ...]  # finished runs that are not looked at here
    cells: tuple[CellReport, ...]
    pairs: tuple[PairReport, ...]

    @property
    def wanted(self) -> int:
        """Runs of the plan; one that several cells share counts once."""
        return len({key for c in self.cells for key in c.keys})

    @property
    def records(self) -> tuple[Record, ...]:
        """Of all finished runs, each once."""
        return tuple({r.key: r for c in self.cells for r in c.records}.values())

    @property
    def failed(self) -> tuple[Record, ...]:
        return tuple({r.key: r for c in self.cells for r in c.failed}.values())

    @property
    def columns(self) -> tuple[str, ...]:
        """In the order of the cells."""
        return tuple(dict.fromkeys(c.cell.column for c in self.cells))

    def column(self, name: str) -> tuple[CellReport, ...]:
        """Its cells, from the first row to the last."""
        return tuple(c for c in self.cells if c.cell.column == name)

    def count(self, verdict: Verdict) -> int:
        """How many cells have that verdict."""
        return sum(c.verdict == verdict for c in self.cells)


def summarise(plan: Plan, records: Iterable[Record], device: str | None = None) -> PlanReport:
    """Find the runs of a plan in the records of one device: the given one, or that with most of them finished."""
    keys = [tuple(run.key for run in cell.runs()) for cell in plan.cells]
    wanted = {key for each in keys for key in each}
    best: dict[tuple[str, str], Record] = {}  # (device, key) -> record
    for record in records:
        place = record.device, record.key
        if record.key in wanted and (place not in best or _preference(record) > _preference(best[place])):
            best[place] = record
    done = Counter(d for (d, _), record in best.items() if record.status == "done")
    any_state = Counter(d for d, _ in best)
    if device is None:
        device = min(any_state, key=lambda d: (-done[d], -any_state[d], d), default=None)
    found = {key: record for (d, key), record in best.items() if d == device}
    cells = tuple(_cell(cell, each, found) for cell, each in zip(plan.cells, keys, strict=True))
    others = tuple(sorted((d, n) for d, n in done.items() if d != device))
    return PlanReport(plan, device, others, cells, _pairs(plan, cells))


def split_means(before: CellReport, after: CellReport) -> tuple[list[float], list[float]]:
    """The mean accuracy of each split that both have, over the initialisations that both have."""
    one, other = before.accuracies, after.accuracies
    by_split: dict[int, list[tuple[int, int]]] = {}
    for run in sorted(one.keys() & other.keys()):
        by_split.setdefault(run[0], []).append(run)
    means = [[fmean(cell[run] for run in runs) for runs in by_split.values()] for cell in (one, other)]
    return means[0], means[1]


def paired_over_splits(before: CellReport, after: CellReport) -> PairedDifference | None:
    """The gain over the splits that both have, if there are two; the initialisations of a split are averaged first.

    They share the split, so they are not independent, and counting each would make chance look like certainty.
    """
    first, second = split_means(before, after)
    return paired_difference(first, second) if len(first) > 1 else None


def _preference(record: Record) -> tuple[bool, str, str]:
    """Of two records of a run on a device: a finished one, then the newer one."""
    return record.status == "done", record.created, record.to_json()


def _cell(cell: Cell, keys: tuple[str, ...], found: Mapping[str, Record]) -> CellReport:
    records = [found[key] for key in keys if key in found]
    done = tuple(r for r in records if r.status == "done")
    return CellReport(cell, keys, done, tuple(r for r in records if r.status == "failed"))


def _pairs(plan: Plan, cells: tuple[CellReport, ...]) -> tuple[PairReport, ...]:
    places = {(c.cell.row, c.cell.column): c for c in cells}
    columns = dict.fromkeys(c.cell.column for c in cells)
    compared = [
        (
            places[before, column],
            places[after, column],
            paired_over_splits(places[before, column], places[after, column]),
        )
        for before, after in plan.pairs
        for column in columns
        if (before, column) in places and (after, column) in places
    ]
    corrected = iter(holm([gain.p_value for _, _, gain in compared if gain is not None]))
    return tuple(
        PairReport(
            before.cell.row,
            after.cell.row,
            before.cell.column,
            before.is_complete and after.is_complete,
            _over_runs(before, after),
            gain,
            None if gain is None else next(corrected),
        )
        for before, after, gain in compared
    )


def _over_runs(before: CellReport, after: CellReport) -> float | None:
    if min(before.found, after.found) < 2:
        return None
    return unpaired_p_value(tuple(before.accuracies.values()), tuple(after.accuracies.values()))
