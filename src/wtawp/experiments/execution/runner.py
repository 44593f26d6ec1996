"""Run plans: train the runs that the store does not have, and store every result as soon as it arrives."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from wtawp.experiments.execution.building import describe_split
from wtawp.experiments.execution.changed_files import hash_files
from wtawp.experiments.execution.checks import check_plan
from wtawp.experiments.execution.costs import cost_of, remaining_share
from wtawp.experiments.execution.engines import Engine, LostChunk
from wtawp.experiments.execution.estimate import describe_cost
from wtawp.experiments.execution.jobs import Chunk, Job
from wtawp.experiments.execution.provenance import device_name
from wtawp.experiments.execution.registrations import Registrations
from wtawp.experiments.execution.training import failed_records, train_job
from wtawp.experiments.measures.shared.flips import flips_from_result
from wtawp.experiments.spec import Plan, Record, Run, chunks
from wtawp.experiments.store import Store
from wtawp.graphs import EdgeFlips

Progress = Callable[[float, str], None]  # is called with the share that is done, and what was done last


@dataclass(frozen=True)
class SweepCounts:
    """The numbers of runs of a sweep.

    Attributes:
        trained: Runs that were trained successfully, those of surrogates included.
        known: Runs of the plans that the store had already.
        failed: Runs that failed.
        surrogates: How many of the trained runs are those of surrogates, on which attacks find flips that poison the
            graphs of others; they are not among the runs of the plans.
        kept: How many of the failed runs have a record of an earlier success, which stays. Not counted without `fresh`.
        first_error: The traceback of the first run that failed, or what else is known of the cause. It is not always
            in the store, since a failure does not replace a measured result.
    """

    trained: int
    known: int
    failed: int
    surrogates: int = 0
    kept: int = 0
    first_error: str | None = field(default=None, compare=False)


def run_plans(
    plans: Sequence[Plan],
    store: Store,
    *,
    engine: Engine,
    device: str = "cpu",
    tf32: bool = False,
    fresh: bool = False,
    progress: Progress | None = None,
    announce: Callable[[str], None] | None = None,
    weights: Path | None = None,
    cost: Callable[[Chunk], float] = cost_of,
    on_stored: Callable[[Sequence[Record]], None] | None = None,
) -> SweepCounts:
    """Train the runs of plans that are not in the store for this device; failed runs are tried again.

    All plans are checked before the first run starts. The surrogates of poisoned settings are trained first, if the
    store does not have their flips. A chunk is trained as a whole or not at all, so that a sweep that was stopped
    continues with the same chunks and ends with the same records as one that was not. Runs of a chunk that the store
    has already are trained with the others and not measured again. The runs of a chunk that kills its worker processes,
    or exceeds the time limit of the engine, are recorded as failed, and the sweep goes on.

    Args:
        plans: The plans; a run that is in several of them is trained once.
        store: The store for the records.
        engine: Where chunks are trained.
        device: "cpu" or "cuda".
        tf32: Whether TF32 matrix products are allowed on a GPU; such runs are stored as those of another device.
        fresh: Whether all runs are trained, also those that the store has, whose records are then replaced.
        progress: Called with the share that is done, and a description, after each chunk; and several times inside of a
            long one, unless the engine does not learn of it, as that for Ray.
        announce: Called with sentences, before anything is trained: how the data are split, which results are known
            and since when, whether the store has some from other devices, how much there is to train and how long it
            may take.
        weights: A folder for the weights of trained models, so that runs that differ in their measures alone are
            trained once; by default none are kept.
        cost: The cost of a chunk in any unit that is proportional to its time, for the progress; estimated by default.
        on_stored: Called with the records of each chunk, also of surrogates, once they are in the store.

    Returns:
        How many runs were trained, known and failed.

    Raises:
        PlanError: If a plan cannot be run.
        ChangedFileError: If a file of the user whose content is part of the keys changes meanwhile. The chunks that
            were done before are stored.
        StoreError: If the store cannot be written.
        EngineError: If worker processes cannot be started, or cannot load the work.
    """
    where = device_name(device, tf32=tf32), str(torch.__version__)  # a device that is not there is noticed now
    store.add([])  # a store that cannot be written is noticed now, not after the first chunk
    runs = tuple({run.key: run for plan in plans for run in plan.runs()}.values())
    settings = dict.fromkeys(run.setting for run in runs)
    files = hash_files([*settings, *(s for s in (setting.surrogate for setting in settings) if s is not None)])
    for plan in plans:
        check_plan(plan)
    known: set[str] = set() if fresh else store.done((run.key for run in runs), *where)
    to_train = _jobs(runs, known, device)
    surrogates = tuple({run.key: run for job in to_train if (run := surrogate_of(job.runs[0])) is not None}.values())
    attacks = () if fresh else store.records((run.key for run in surrogates), status="done")  # on any device
    attacked = {record.key for record in attacks}
    to_attack = _jobs(surrogates, attacked, device)
    if announce is not None:
        for sentence in _announcements(store, runs, known, where[0], fresh=fresh):
            announce(sentence)
        if to_attack or to_train:
            num_surrogates = sum(len(job.new_indices) for job in to_attack)
            announce(describe_cost(store, to_attack + to_train, where[0], cost, num_surrogates=num_surrogates))
    advance, trained_surrogates = _meter(to_attack + to_train, progress, cost), 0
    failures: list[Record] = []
    work = partial(train_job, device=device, tf32=tf32, registrations=Registrations.collect(), weights=weights)
    for stage in (to_attack, to_train):  # the second stage trains on the flips that the first finds
        jobs = [
            replace(job, flips=_poisoning_flips(job.runs[0], store, where), files=files[job.runs[0].setting])
            for job in stage
        ]

        def receive(i: int, share: float, stage: list[Job] = stage) -> None:
            advance(stage[i], share)

        with closing(engine(jobs, work, receive)) as results:  # an exception ends the workers now, not at some time
            for i, result in results:
                if isinstance(result, LostChunk):
                    error = f"The chunk was lost: {result.reason}."
                    records = failed_records(jobs[i], device=device, tf32=tf32, error=error, seconds=result.seconds)
                else:
                    records = result
                store.add(records, replace=fresh)
                if on_stored is not None:
                    on_stored(records)
                failed = [record for record in records if record.status == "failed"]
                failures += failed
                trained_surrogates += len(records) - len(failed) if stage is to_attack else 0
                advance(stage[i], 1.0)
    total_runs = len(runs) + sum(len(job.new_indices) for job in to_attack)
    return SweepCounts(
        trained=total_runs - len(known) - len(failures), known=len(known), failed=len(failures),
        surrogates=trained_surrogates, first_error=failures[0].error if failures else None,
        kept=len(store.done((record.key for record in failures), *where)) if fresh and failures else 0,
    )  # fmt: skip


def _jobs(runs: tuple[Run, ...], stored: set[str], device: str) -> list[Job]:
    """A job for each chunk that has runs without a record."""
    jobs = [
        Job(chunk, stored=frozenset(run.key for run in chunk if run.key in stored))
        for chunk in chunks(runs, together=device != "cpu")
    ]
    return [job for job in jobs if job.new_indices]


def _meter(
    jobs: Sequence[Job], progress: Progress | None, cost: Callable[[Chunk], float]
) -> Callable[[Job, float], None]:
    """Make a function that takes the share of a job that is done, and calls `progress` with that of all jobs."""
    costs, done = {job: cost(job.runs) * remaining_share(job) for job in jobs}, dict.fromkeys(jobs, 0.0)
    total = sum(costs.values())

    def advance(job: Job, share: float) -> None:
        done[job] = max(share * costs[job], done[job])  # a chunk that is tried again does not move the bar back
        if progress is not None:
            progress(sum(done.values()) / total, str(job.runs[0].setting))

    return advance


def _announcements(store: Store, runs: Sequence[Run], known: set[str], device: str, *, fresh: bool) -> Iterator[str]:
    """Sentences for the user about what is going to be trained, and what is not."""
    described = {(run.setting.dataset, run.setting.features, run.setting.split_rule): run.setting for run in runs}
    yield from map(describe_split, described.values())
    if known and (dates := store.dates(known, device)) is not None:
        first, last = (date[:16].replace("T", " ") for date in dates)
        when = f"at {first}" if first == last else f"between {first} and {last}"
        yield (
            f"{len(known):,} of {len(runs):,} runs are known from before: they were trained {when} UTC, with the same "
            "data and settings, and keep their records (--fresh replaces them)."
        )
    if not fresh and (sentence := _describe_elsewhere(store, runs, known, device)):
        yield sentence


def _describe_elsewhere(store: Store, runs: Sequence[Run], known: set[str], device: str) -> str | None:
    """A sentence about runs that are not known here, and finished on other devices; None if there are none."""
    missing = [run.key for run in runs if run.key not in known]
    others = {name: count for name, count in store.count_done(missing).items() if name != device}
    if not others:
        return None
    stored = ", ".join(f"{count:,} from {name}" for name, count in others.items())
    return (
        f"The store has {stored} of the {len(missing):,} runs to train. Another kind of device rounds differently, so"
        f" they are kept apart and trained again on {device}; a report uses the runs of one device."
    )


def surrogate_of(run: Run) -> Run | None:
    """Find the run whose attack poisons the graph of another run; it depends on the split and the draw alone.

    Args:
        run: The run that is trained on the poisoned graph.

    Returns:
        The run of the surrogate model; None if the graph is not poisoned.
    """
    setting = run.setting.surrogate
    return None if setting is None else Run(setting, run.split, run.poison_draw)


def _poisoning_flips(run: Run, store: Store, where: tuple[str, str]) -> EdgeFlips | None:
    """The flips that poison the graph of a run; None if nothing does, or if the run of its surrogate failed.

    Flips that were found on this kind of device with this version of torch are preferred. Those of other devices are
    used as well, since an attack may take hours where a training takes seconds.
    """
    surrogate = surrogate_of(run)
    if surrogate is None:
        return None
    records = store.records([surrogate.key], status="done")
    records.sort(key=lambda record: ((record.device, record.versions.get("torch")) == where, record.created))
    flips = flips_from_result((records[-1].measured or [])[0]) if records else None
    assert flips is None or isinstance(flips, EdgeFlips)  # records of poisoning hold no flips of features
    return flips
