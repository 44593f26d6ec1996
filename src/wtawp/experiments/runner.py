"""Carry out plans: train what the store does not have yet, and keep every result the moment it is there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from wtawp.experiments.engines import Engine
from wtawp.experiments.execute import check, device_name, train
from wtawp.experiments.plan import Plan, Run, chunks
from wtawp.experiments.store import Store

Progress = Callable[[float, str], None]  # share done, what was done last
COST = {  # of an epoch, roughly
    "GCN": 1.0, "GAT": 3.5, "PPNP": 2.2, "MLP": 0.5, "GraphSAGE": 1.5, "GIN": 1.5, "GCNJaccard": 1.0, "GCNSVD": 2.0,
    "RGCN": 3.0, "SimPGCN": 3.0, "GNNGuard": 4.0, "SoftMedianGCN": 9.0,
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What a sweep did."""

    trained: int
    known: int  # were in the store already
    failed: int


def carry_out(
    plans: Sequence[Plan],
    store: Store,
    *,
    engine: Engine,
    device: str = "cpu",
    tf32: bool = False,
    progress: Progress | None = None,
) -> Outcome:
    """Train the runs of all plans that are not in the store for this device; failed ones are tried again.

    A chunk is trained whole or not at all, so a sweep that was stopped goes on with the same chunks and ends with the
    same records as one that was not. Plans are checked before the first run starts.
    """
    store.add([])  # a store that cannot be written is noticed now, not after the first chunk
    for plan in plans:
        check(plan)
    runs = tuple({run.key: run for plan in plans for run in plan.runs()}.values())
    known = store.done((run.key for run in runs), device_name(device, tf32=tf32), str(torch.__version__))
    todo = [c for c in chunks(runs, together=device != "cpu") if not all(run.key in known for run in c)]
    total, done, failed = sum(map(_cost, todo)), 0.0, 0
    for i, records in engine(todo, partial(train, device=device, tf32=tf32)):
        fresh = [record for record in records if record.key not in known]
        store.add(fresh)
        failed += sum(record.status == "failed" for record in fresh)
        done += _cost(todo[i])
        if progress is not None:
            progress(done / total, str(todo[i][0].setting))
    return Outcome(trained=len(runs) - len(known) - failed, known=len(known), failed=failed)


def _cost(chunk: tuple[Run, ...]) -> float:
    setting = chunk[0].setting
    passes = 1 if setting.awp is None else 1 + setting.awp.steps
    return len(chunk) * setting.epochs * COST[setting.model] * (passes + 0.5)
