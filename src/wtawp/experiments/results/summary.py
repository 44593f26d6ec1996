"""Summarise the records of a plan: every cell beside the paper's number, every pair with and without the method.

`summarise` is a pure function: it trains nothing, and the order of the records does not matter.
"""

import math
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
PRINTED_SPLITS = 20  # of the paper's tables whose cells are judged


@dataclass(frozen=True)
class CellReport:
    """A cell of a plan with its measurements on one device. Accuracies are those of the test set, in per cent.

    Attributes:
        cell: The cell.
        keys: The content keys of all its runs.
        records: The records of its finished runs, split by split.
        failed: The records of its failed runs.
        clean: The records of the same trainings on the clean graph; empty where the cell has no attack.
    """

    cell: Cell
    keys: tuple[str, ...]
    records: tuple[Record, ...]
    failed: tuple[Record, ...]
    clean: tuple[Record, ...] = ()

    @property
    def num_runs(self) -> int:
        """The number of runs that the plan asks for."""
        return len(self.keys)

    @property
    def num_finished(self) -> int:
        """The number of finished runs."""
        return len(self.records)

    @property
    def is_complete(self) -> bool:
        """Whether every run is finished."""
        return self.num_finished == self.num_runs

    @cached_property
    def accuracies(self) -> dict[tuple[int, int], float]:
        """The accuracy of each finished run, by split and initialisation."""
        return {(r.split, r.init): 100 * self._accuracy(r) for r in self.records}

    @cached_property
    def drops(self) -> dict[tuple[int, int], float]:
        """What the attack takes from each run in points, by split and initialisation; empty without an attack.

        A drop is the test accuracy on the clean graph less that under attack. A run has one where the same setting was
        trained on the clean graph from the same split and initialisation, on the same device.
        """
        clean = {(r.split, r.init): 100 * (r.accuracy or {})["test"] for r in self.clean}
        return {run: clean[run] - accuracy for run, accuracy in self.accuracies.items() if run in clean}

    @property
    def mean_drop(self) -> float | None:
        """The mean drop over runs; None where no run, or not every finished one, has a drop."""
        return fmean(self.drops.values()) if self.drops and len(self.drops) == self.num_finished else None

    def _accuracy(self, record: Record) -> float:
        """The accuracy that the cell shows: that after training, or that of one of its measures."""
        if self.cell.measure is None:
            return (record.accuracy or {})["test"]
        return float((record.measured or [])[self.cell.measure]["accuracy"])

    @property
    def mean(self) -> float | None:
        """The mean over runs; None where no run is finished."""
        return fmean(self.accuracies.values()) if self.records else None

    @property
    def std(self) -> float | None:
        """The standard deviation over runs; None with fewer than two."""
        return stdev(self.accuracies.values()) if self.num_finished > 1 else None

    @property
    def difference(self) -> float | None:
        """Our mean less the printed one; None where either is missing."""
        return None if self.mean is None or self.cell.printed is None else self.mean - self.cell.printed[0]

    @cached_property
    def split_means(self) -> list[float]:
        """The mean over the initialisations of each split; over splits if masks describe the only one."""
        over: Literal["inits", "splits"] = "splits" if has_only_split(self.cell) else "inits"
        return paired_means(self.accuracies, self.accuracies, over=over)[0]

    @cached_property
    def standard_error(self) -> float | None:
        """The standard error of the mean over splits, in points; None with fewer than two.

        The initialisations of a split share it, so they are averaged first. Where masks describe the only split, it is
        the error over initialisations.
        """
        means = self.split_means
        return stdev(means) / math.sqrt(len(means)) if len(means) > 1 else None

    @property
    def z(self) -> float | None:
        """The difference from the printed mean, in standard errors of both; None where the cell is not judged.

        The paper prints a deviation over all its runs, which mixes splits and initialisations. Divided by the root of
        the number of splits it is the largest standard error that it allows, so the true |z| is at least this one.
        """
        deviation = None if self.cell.printed is None else self.cell.printed[1]
        if self.difference is None or self.standard_error is None or deviation is None or not self.cell.judged:
            return None
        error = math.hypot(self.standard_error, deviation / math.sqrt(PRINTED_SPLITS))
        return self.difference / error if error > 0 else None

    @property
    def verdict(self) -> Verdict:
        """How the mean compares to the printed one.

        "incomplete" where runs are missing; "reported" where the cell is not judged or nothing is printed.
        """
        if not self.is_complete:
            return "incomplete"
        if self.difference is None or not self.cell.judged:
            return "reported"
        return "agrees" if round(abs(self.difference), 9) <= TOLERANCE else "differs"

    def histories(self, column: str) -> list[list[float]]:
        """The curves over epochs that the finished runs recorded.

        Args:
            column: A column of the history, such as "train_loss".

        Returns:
            A curve for each run that has the column.
        """
        return [r.history[column] for r in self.records if r.history is not None and column in r.history]


@dataclass(frozen=True)
class PairReport:
    """Two rows of a column, compared on the runs that both have.

    Attributes:
        before: The row without the method.
        after: The row with it.
        column: The column of both.
        is_complete: Whether every run of both cells is finished.
        runs_p_value: The p-value of the paper's test, which treats all runs as independent.
        gain: The difference paired over the means of splits; None with fewer than two common splits.
        holm_p_value: The p-value of the gain, corrected over all pairs of the plan. Pairs of the same trainings count
            once, and two rows of the same trainings not at all.
        printed_gain: The printed mean of the second row less that of the first; None where the paper prints neither.
        num_compared: The number of different pairs that the p-value is corrected for.
        can_be_compared: Whether the plan asks for two splits, or for two initialisations of the only one.
    """

    before: str
    after: str
    column: str
    is_complete: bool
    runs_p_value: float | None
    gain: PairedDifference | None
    holm_p_value: float | None
    printed_gain: float | None = None
    num_compared: int = 1
    can_be_compared: bool = True


@dataclass(frozen=True)
class PlanReport:
    """A plan with its measurements, all from one device.

    Attributes:
        plan: The plan.
        device: The device whose records are used; None where nothing was trained yet.
        other_devices: Devices whose records are not used, with their numbers of finished runs.
        cells: The cells of the plan, in its order.
        pairs: The pairs of the plan in every column that has both rows.
    """

    plan: Plan
    device: str | None
    other_devices: tuple[tuple[str, int], ...]
    cells: tuple[CellReport, ...]
    pairs: tuple[PairReport, ...]

    @property
    def is_printed(self) -> bool:
        """Whether the paper prints a number for any of the cells."""
        return any(c.cell.printed is not None for c in self.cells)

    @property
    def num_runs(self) -> int:
        """The number of runs of the plan; a run that several cells share counts once."""
        return len({key for c in self.cells for key in c.keys})

    @property
    def records(self) -> tuple[Record, ...]:
        """The records of all finished runs, each once."""
        return tuple({r.key: r for c in self.cells for r in c.records}.values())

    @property
    def failed(self) -> tuple[Record, ...]:
        """The records of all failed runs, each once."""
        return tuple({r.key: r for c in self.cells for r in c.failed}.values())

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in the order of the cells."""
        return tuple(dict.fromkeys(c.cell.column for c in self.cells))

    def column(self, name: str) -> tuple[CellReport, ...]:
        """The cells of a column.

        Args:
            name: The name of the column.

        Returns:
            Its cells from the first row to the last; empty for an unknown name.
        """
        return tuple(c for c in self.cells if c.cell.column == name)

    def count(self, verdict: Verdict) -> int:
        """Count the cells with a verdict.

        Args:
            verdict: "agrees", "differs", "reported" or "incomplete".

        Returns:
            The number of cells.
        """
        return sum(c.verdict == verdict for c in self.cells)


def summarise(plan: Plan, records: Iterable[Record], device: str | None = None) -> PlanReport:
    """Collect the records that belong to a plan, from one device.

    Args:
        plan: The plan.
        records: Records, also of other plans and of several devices.
        device: The device whose records are used. By default the one with the most finished runs of the plan.

    Returns:
        The plan with its cells and pairs.
    """
    keys = [tuple(run.key for run in cell.runs()) for cell in plan.cells]
    planned = {key for each in keys for key in each}
    wanted = planned | {run.key for run in plan.clean_runs()}
    best: dict[tuple[str, str], Record] = {}  # (device, key) -> record
    for record in records:
        name = record.device, record.key
        if record.key in wanted and (name not in best or _preference(record) > _preference(best[name])):
            best[name] = record
    done = Counter(d for (d, key), record in best.items() if key in planned and record.status == "done")
    any_state = Counter(d for d, key in best if key in planned)
    if device is None:
        device = min(any_state, key=lambda d: (-done[d], -any_state[d], d), default=None)
    chosen = {key: record for (d, key), record in best.items() if d == device}
    cells = tuple(_cell(cell, each, chosen) for cell, each in zip(plan.cells, keys, strict=True))
    others = tuple(sorted((d, n) for d, n in done.items() if d != device))
    return PlanReport(plan, device, others, cells, _pairs(plan, cells))


def split_means(before: CellReport, after: CellReport) -> tuple[list[float], list[float]]:
    """Average the accuracies of two cells over the initialisations that both have.

    Args:
        before: The first cell.
        after: The second cell.

    Returns:
        The means of the first and of the second cell, one for each split that both have; or one for each
        initialisation, if masks describe the only split.
    """
    only_split = has_only_split(before.cell) and has_only_split(after.cell)
    return paired_means(before.accuracies, after.accuracies, over="splits" if only_split else "inits")


def paired_means(
    before: Mapping[tuple[int, int], float],
    after: Mapping[tuple[int, int], float],
    *,
    over: Literal["inits", "splits"] = "inits",
) -> tuple[list[float], list[float]]:
    """Average the values of two groups of runs over the runs that both have, so that the means can be paired.

    Args:
        before: Values of the first group, by split and initialisation.
        after: Values of the second group.
        over: What is averaged: the initialisations of each split, or the splits of each initialisation.

    Returns:
        The means of the first and of the second group, one for each split or initialisation that both have.
    """
    groups: dict[int, list[tuple[int, int]]] = {}
    for run in sorted(before.keys() & after.keys()):
        groups.setdefault(run[0 if over == "inits" else 1], []).append(run)
    means = [[fmean(values[run] for run in runs) for runs in groups.values()] for values in (before, after)]
    return means[0], means[1]


def has_only_split(cell: Cell) -> bool:
    """Whether the data of a cell have a single split, that of their masks, so that only initialisations can be paired.

    Args:
        cell: The cell.

    Returns:
        False for a cell that asks for one of many splits.
    """
    return cell.splits == 1 and cell.setting.split_rule.kind == "masks"


def paired_over_splits(before: CellReport, after: CellReport) -> PairedDifference | None:
    """Compare two cells over the splits that both have; the initialisations of a split are averaged first.

    Initialisations share the split, so they are not independent: counting each would make chance look like certainty.

    Args:
        before: The first cell.
        after: The second cell.

    Returns:
        The difference of the second less the first, paired over initialisations if masks describe the only split;
        None with fewer than two common splits, or initialisations of that split.
    """
    first, second = split_means(before, after)
    return paired_difference(first, second) if len(first) > 1 else None


def _preference(record: Record) -> tuple[bool, str, str]:
    """The sort key by which one of several records of a run is chosen: a finished one, then the newest."""
    return record.status == "done", record.created, record.to_json()


def _cell(cell: Cell, keys: tuple[str, ...], by_key: Mapping[str, Record]) -> CellReport:
    """A cell with the records of its runs."""
    records = [by_key[key] for key in keys if key in by_key]
    clean = [] if cell.attack is None else [by_key[r.key] for r in cell.clean_runs() if r.key in by_key]
    done, failed = (tuple(r for r in records if r.status == status) for status in ("done", "failed"))
    return CellReport(cell, keys, done, failed, tuple(r for r in clean if r.status == "done"))


def _pairs(plan: Plan, cells: tuple[CellReport, ...]) -> tuple[PairReport, ...]:
    """The pairs of the plan in every column that has both rows."""
    by_place = {(c.cell.row, c.cell.column): c for c in cells}
    columns = dict.fromkeys(c.cell.column for c in cells)
    compared = [
        (
            by_place[before, column],
            by_place[after, column],
            paired_over_splits(by_place[before, column], by_place[after, column]),
        )
        for before, after in plan.pairs
        for column in columns
        if (before, column) in by_place and (after, column) in by_place
    ]
    p_values = {_runs_of(before, after): gain.p_value for before, after, gain in compared if gain is not None}
    p_values = {runs: p_value for runs, p_value in p_values.items() if len(runs) == 2}  # one: a row and itself
    corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    return tuple(
        PairReport(
            before.cell.row,
            after.cell.row,
            before.cell.column,
            before.is_complete and after.is_complete,
            _over_runs(before, after),
            gain,
            None if gain is None else corrected.get(_runs_of(before, after), 1.0),
            _printed_gain(before.cell, after.cell),
            len(corrected),
            min(_num_paired(before.cell), _num_paired(after.cell)) > 1,
        )
        for before, after, gain in compared
    )


def _runs_of(before: CellReport, after: CellReport) -> frozenset[tuple[tuple[str, ...], int | None]]:
    """What a pair compares, whatever its rows are called: the runs of both cells and the measure that each shows."""
    return frozenset((cell.keys, cell.cell.measure) for cell in (before, after))


def _num_paired(cell: Cell) -> int:
    """The number of splits of a cell; of initialisations if masks describe the only split."""
    return cell.inits if has_only_split(cell) else cell.splits


def _printed_gain(before: Cell, after: Cell) -> float | None:
    """The printed mean of the second cell less that of the first; None where one is not printed."""
    if before.printed is None or after.printed is None:
        return None
    return round(after.printed[0] - before.printed[0], 9)  # of numbers with two decimals


def _over_runs(before: CellReport, after: CellReport) -> float | None:
    """The p-value of the paper's test over all runs; None where a cell has fewer than two."""
    if min(before.num_finished, after.num_finished) < 2:
        return None
    return unpaired_p_value(tuple(before.accuracies.values()), tuple(after.accuracies.values()))
