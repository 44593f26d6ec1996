"""How long a sweep will take, estimated before it starts from what similar runs took on the same kind of device."""

from collections.abc import Callable, Sequence
from typing import Any

from wtawp.experiments.execution.costs import remaining_share
from wtawp.experiments.execution.jobs import Chunk, Job
from wtawp.experiments.spec import Run, Setting
from wtawp.experiments.store import Store

Kind = tuple[str, str, tuple[tuple[str, str], ...]]  # data set, model, and each measure with its attack


def describe_cost(
    store: Store, jobs: Sequence[Job], device: str, cost: Callable[[Chunk], float], *, num_surrogates: int = 0
) -> str:
    """Say how much there is to train, and how long it takes if runs like it are stored.

    A stored run is like another one if data set, model, measures and attacks are the same: an attack can take a
    thousand times as long as a training, or less time than it, so that one says nothing about the other.

    Args:
        store: The store.
        jobs: The chunks to train, at least one.
        device: The kind of device, as in the records.
        cost: The cost of a chunk in any unit that is proportional to its time on one data set.
        num_surrogates: How many of the runs are those of surrogates, on which attacks find flips that poison a graph.

    Returns:
        A sentence or two. The estimate leaves out runs that have no like among the stored ones, and says how many.
    """
    num_runs = sum(len(job.new_indices) for job in jobs)
    seconds, num_estimated = _estimate(store, jobs, device, cost)
    amount = f"{num_runs:,} runs to train in {len(jobs):,} chunks"
    if (num_stored := sum(len(job.runs) for job in jobs) - num_runs) > 0:
        amount += f" (with {num_stored:,} known ones of the same chunks, whose records stay as they are)"
    if num_surrogates:
        amount += f", {num_surrogates:,} of them surrogates (models on which an attack finds its flips)"
    if not num_estimated:
        return (
            f"{amount}. No run of the same data, model, measures and attack is stored from this device, so there is no "
            "estimate of the time: the bar shows one as soon as it moves."
        )
    source = "by what stored runs of the same data, models, measures and attacks took"
    if num_estimated == num_runs:
        return f"{amount}, about {_duration(seconds)} of work for one process, {source}."
    return (
        f"{amount}. {num_estimated:,} of the runs are about {_duration(seconds)} of work for one process, {source};"
        f" there is no estimate for the other {num_runs - num_estimated:,}, which may take much longer."
    )


def _estimate(store: Store, jobs: Sequence[Job], device: str, cost: Callable[[Chunk], float]) -> tuple[float, int]:
    """Add up the expected seconds of jobs for which a similar run is stored, and count their new runs."""
    newest = {
        _kind(row.setting): row.key
        for row in sorted(store.summary(), key=lambda row: row.last)
        if row.device == device and row.done and not row.failed and not row.unreadable
    }
    rates: dict[Kind, float | None] = {}
    total, num_runs = 0.0, 0
    for job in jobs:
        kind = _kind(job.runs[0].setting.content)
        if kind not in newest:
            continue
        if kind not in rates:
            try:
                record = store.records([newest[kind]], status="done", device=device)[0]
                run = Run(Setting.from_content(record.setting), record.split, record.init)
                rates[kind] = record.seconds / cost((run,))
            except (LookupError, TypeError, ValueError):  # not readable, or options that this program does not know
                rates[kind] = None
        rate = rates[kind]
        if rate is not None:
            total += rate * cost(job.runs) * remaining_share(job)
            num_runs += len(job.new_indices)
    return total, num_runs


def _kind(setting: dict[str, Any]) -> Kind:
    """What runs have in common that take a time proportional to their cost, from the content of their setting."""
    measures = [(measure["name"], dict(measure["options"])) for measure in setting.get("measures", ())]
    return setting["dataset"], setting["model"], tuple((name, str(options.get("attack"))) for name, options in measures)


def _duration(seconds: float) -> str:
    """A duration in the unit that people would use, with two digits."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{_two_digits(seconds / size)} {unit}"
    return f"{_two_digits(seconds)} s"


def _two_digits(value: float) -> str:
    """A number with two digits, or as a whole number where it has more."""
    return f"{value:.2g}" if value < 99.5 else f"{value:.0f}"
