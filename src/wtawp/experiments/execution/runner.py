"""Carry out plans: train what the store does not have yet, and keep every result the moment it is there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from wtawp.experiments.execution.checks import check_plan
from wtawp.experiments.execution.engines import Engine
from wtawp.experiments.execution.provenance import device_name
from wtawp.experiments.execution.training import train_job
from wtawp.experiments.measures.shared.flips import flips_from_result
from wtawp.experiments.measures.shared.registry import measure_spec, options_of
from wtawp.experiments.spec import Plan, Run, chunks
from wtawp.experiments.store.database import Store
from wtawp.graphs import EdgeFlips
from wtawp.models.registry import model_spec

Progress = Callable[[float, str], None]  # share done, what was done last


@dataclass(frozen=True)
class Outcome:
    """What a sweep did."""

    trained: int
    known: int  # were in the store already
    failed: int


def run_plans(
    plans: Sequence[Plan],
    store: Store,
    *,
    engine: Engine,
    device: str = "cpu",
    tf32: bool = False,
    progress: Progress | None = None,
) -> Outcome:
    """Train the runs of all plans that are not in the store for this device; failed ones are tried again.

    Surrogates of poisoned settings come first, where their flips are not there yet. A chunk is trained whole or not at
    all, so a sweep that was stopped goes on with the same chunks and ends with the same records as one that was not.
    Plans are checked before the first run starts.
    """
    store.add([])  # a store that cannot be written is noticed now, not after the first chunk
    for plan in plans:
        check_plan(plan)
    runs = tuple({run.key: run for plan in plans for run in plan.runs()}.values())
    where = device_name(device, tf32=tf32), str(torch.__version__)
    known = store.done((run.key for run in runs), *where)
    trained = [chunk for chunk in chunks(runs, together=device != "cpu") if not all(run.key in known for run in chunk)]
    attackers = tuple({run.key: run for c in trained if (run := surrogate_of(c[0])) is not None}.values())
    attacked = {record.key for record in store.records((run.key for run in attackers), status="done")}  # on any device
    first = [c for c in chunks(attackers, together=device != "cpu") if not all(run.key in attacked for run in c)]
    total, done, failed = sum(map(_cost, first + trained)), 0.0, 0
    for stage in (first, trained):  # the second trains on the flips that the first finds
        jobs = [(chunk, _flips(chunk[0], store, where)) for chunk in stage]
        for i, records in engine(jobs, partial(train_job, device=device, tf32=tf32)):
            fresh = [record for record in records if record.key not in known | attacked]
            store.add(fresh)
            failed += sum(record.status == "failed" for record in fresh)
            done += _cost(stage[i])
            if progress is not None:
                progress(done / total, str(stage[i][0].setting))
    wanted = len(runs) + sum(map(len, first))
    return Outcome(trained=wanted - len(known) - failed, known=len(known), failed=failed)


def surrogate_of(run: Run) -> Run | None:
    """The run whose attack poisons the graph of this one, if any does: it depends on the split alone."""
    setting = run.setting.surrogate
    return None if setting is None else Run(setting, run.split, 0)


def _flips(run: Run, store: Store, where: tuple[str, str]) -> EdgeFlips | None:
    """Those of the run's surrogate, if it has one that did not fail; found on this kind of device, or else on another.

    An attack may take hours where a training takes seconds: flips that were imported are taken as they are.
    """
    attacker = surrogate_of(run)
    if attacker is None:
        return None
    found = store.records([attacker.key], status="done")
    found.sort(key=lambda record: ((record.device, record.versions.get("torch")) == where, record.created))
    return flips_from_result((found[-1].measured or [])[0]) if found else None


def _cost(chunk: tuple[Run, ...]) -> float:
    """Roughly how long a chunk takes, in epochs of a GCN."""
    setting = chunk[0].setting
    passes = 1 if setting.awp is None else 1 + setting.awp.steps
    epochs = setting.epochs * model_spec(setting.model).cost * (passes + 0.5)
    cost = epochs * (1 if setting.batch_size is None else 20)
    return len(chunk) * (cost + sum(measure_spec(m.name).cost(options_of(m)) for m in setting.measures))
