"""Two real processes that run named cases over gloo, with time limits so that nothing waits for ever."""

import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

Results = dict[str, list[dict[str, Any]]]  # case -> what each rank reported
WORLD = 2
PATIENCE = 60  # seconds that a collective waits for the other rank


def run_pair(script: Path, cases: Iterable[str], *, limit: float) -> Results:
    """Run the cases of a script, one after another, in two processes, and return what each rank reported.

    A process that is still running after `limit` seconds is killed. A case that a rank did not finish is reported with
    the key "failed" and the end of what that rank printed.
    """
    cases = list(cases)
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        source = Path(__file__).parents[2] / "src"
        environment["PYTHONPATH"] = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(source)]).strip(os.pathsep)
        logs = [Path(folder) / f"log{rank}" for rank in range(WORLD)]
        processes = []
        for rank, log in enumerate(logs):
            with log.open("w") as stream:
                command = [sys.executable, str(script), str(rank), folder, *cases]
                processes.append(subprocess.Popen(command, stdout=stream, stderr=stream, env=environment))
        deadline = time.monotonic() + limit
        for process in processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        return {case: [_report(Path(folder), logs[rank], rank, case) for rank in range(WORLD)] for case in cases}


def _report(folder: Path, log: Path, rank: int, case: str) -> dict[str, Any]:
    """What a rank wrote about a case."""
    path = folder / f"{case}.{rank}.json"
    if path.is_file():
        return dict(json.loads(path.read_text(encoding="utf-8")))
    return {"failed": f"rank {rank} did not finish {case}: {log.read_text(encoding='utf-8')[-3000:]}"}


def run_cases(known: Mapping[str, Callable[[int], dict[str, Any]]]) -> None:
    """Run the cases named on the command line, each in a process group of its own: the script's side of `run_pair`."""
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    rank, folder = int(sys.argv[1]), Path(sys.argv[2])
    for case in sys.argv[3:]:
        distributed.init_process_group(
            "gloo",
            init_method=f"file://{folder / case}.rendezvous",
            rank=rank,
            world_size=WORLD,
            timeout=timedelta(seconds=PATIENCE),
        )
        try:
            report = known[case](rank)
        except Exception:  # every failure is reported to the test, which fails on it
            report = {"failed": f"rank {rank}: {traceback.format_exc()[-3000:]}"}
        (folder / f"{case}.{rank}.json").write_text(json.dumps(report), encoding="utf-8")
        distributed.destroy_process_group()
