"""A sweep of 20 chunks of which four kill their worker and one hangs, on both engines: 15 are done, 5 have failed.

python benchmarks/lost_chunks.py [--engine local] [--time-limit 20]

"""

import argparse
import os
import secrets
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from torch import Tensor, nn

from wtawp.experiments.execution.engine_ray import ray_cluster
from wtawp.experiments.execution.engines import local
from wtawp.experiments.execution.runner import run_plans
from wtawp.experiments.spec import Cell, Plan, Setting
from wtawp.experiments.store import Store

LEARNING_RATES = [0.01 * (i + 1) for i in range(20)]
FATES = dict(zip((0, 1, 5, 9, 14), ("exits", "is killed", "crashes", "aborts", "hangs"), strict=True))
SIGNALS = {"is killed": signal.SIGKILL, "crashes": signal.SIGSEGV, "aborts": signal.SIGABRT}


class Fatal(nn.Module):
    """A linear model of the features whose training ends its process, or never ends, if the option says so."""

    def __init__(self, d_in: int, d_out: int, fate: str = "lives") -> None:
        super().__init__()
        self.first, self.last, self.fate = nn.Linear(d_in, 4), nn.Linear(4, d_out), fate

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # noqa: ARG002
        if self.training and self.fate == "exits":
            os._exit(3)
        if self.training and self.fate == "hangs":
            time.sleep(3600)
        if self.training and self.fate in SIGNALS:
            signal.signal(signal.SIGABRT, signal.SIG_DFL)
            os.kill(os.getpid(), SIGNALS[self.fate])
        return self.last(self.first(x).relu())


def main() -> None:
    """Run the sweep on the engines and print what became of the chunks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", action="append", choices=["local", "ray"], help="default: both")
    parser.add_argument("--time-limit", type=float, default=20.0)
    options = parser.parse_args()
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))  # or Ray writes one into the home
    cells = []
    for i, lr in enumerate(LEARNING_RATES):
        fate = {"options": (("fate", FATES[i]),)} if i in FATES else {}
        cells.append(
            Cell(str(i), "", Setting(dataset="wine", model="lost_chunks:Fatal", epochs=3, lr=lr, **fate), 1, 1)
        )
    plan, all_right = Plan("fatal", "Some chunks kill their workers", tuple(cells)), True
    for name in options.engine or ["local", "ray"]:
        make = {"local": local, "ray": ray_cluster}[name]
        with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "s.sqlite") as store:
            start = time.monotonic()
            outcome = run_plans([plan], store, engine=make(workers=2, time_limit=options.time_limit))
            print(f"{name}: {outcome} in {time.monotonic() - start:.0f} s", flush=True)
            for record in store.records(status="failed"):
                print(f"  {dict(record.setting['options'])['fate']}: {record.error}", flush=True)
            statuses = Counter(record.status for record in store.records())
            all_right &= statuses == {"done": 15, "failed": 5}
    sys.exit(not all_right)


if __name__ == "__main__":
    main()
