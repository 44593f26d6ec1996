"""Whether memory, open files and threads stay flat over thousands of trainings and hundreds of sweeps in one process.

    python benchmarks/soak.py [--fits 3000] [--sweeps 330]

Each fit trains a fresh small GCN by WT-AWP; each sweep trains a plan of two settings into a store of its own, reads the
records back and removes the store. After a tenth of the work, what the process holds is taken as the level; at the end
it is compared with that.
"""

import argparse
import gc
import os
import platform
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from wtawp.base import rng
from wtawp.core import AwpConfig
from wtawp.experiments.execution.engines import local
from wtawp.experiments.execution.runner import run_plans
from wtawp.experiments.spec import Cell, Plan, Setting
from wtawp.experiments.store import Store
from wtawp.graphs import citation, stratified
from wtawp.models import GCN
from wtawp.training import fit

PLAIN = Setting(dataset="wine", epochs=3)
PLAN = Plan(
    "soak",
    "Two settings",
    (
        Cell("GCN", "wine", PLAIN, 1, 1),
        Cell("GCN+WT-AWP", "wine", replace(PLAIN, awp=AwpConfig(rho=0.5, lam=0.5)), 1, 1),
    ),
)


def held() -> dict[str, float]:
    """Resident memory in MB, open files and threads of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return {
        "MB": pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        "open files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
    }


def train_once() -> None:
    data = citation(seed=0, num_nodes=300, num_words=32)
    model = GCN(32, int(data.y.max()) + 1, generator=rng("init"))
    fit(model, data, stratified(data.y, seed=0), seed=0, awp=AwpConfig(rho=0.5, lam=0.5), epochs=3)


def sweep_once() -> None:
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "results.sqlite") as store:
        run_plans([PLAN], store, engine=local(1))
        if len(store.records(status="done")) != 2:
            raise RuntimeError("the sweep did not end with two records")


def soak(what: str, work: Callable[[], None], times: int) -> None:
    start, level = time.perf_counter(), {}
    for i in range(times):
        work()
        if i + 1 == max(1, times // 10):
            level = held()
    end = held()
    growth = ", ".join(f"{name} {level[name]:.0f} to {end[name]:.0f}" for name in level)
    print(f"| {what} | {times:,} | {time.perf_counter() - start:.0f} | {growth} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=3000)
    parser.add_argument("--sweeps", type=int, default=330)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}\n")
    print("| what | times | seconds | after a tenth, and at the end |\n|---|---:|---:|---|")
    soak("fit", train_once, options.fits)
    soak("sweep of two chunks in this process", sweep_once, options.sweeps)


if __name__ == "__main__":
    main()
