"""Kill sweeps and their workers at random moments, on both engines: are the records right, and is no process left?

Sweeps run as a user runs them, by `wtawp run`. At a random moment the command itself or one of its workers is sent
SIGKILL or SIGTERM. After a kill of the command all its processes must be gone within 10 s, and what it has stored must
be part of what an undisturbed sweep stores. The same command is then repeated, and killed again, until a sweep comes to
its end: its records must be those of the undisturbed sweep, bit for bit.

    python benchmarks/kills.py --kills 50 --seed 0

It needs Linux, since it finds the processes of a sweep in /proc by a mark in their environment.
"""

import argparse
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median

from wtawp.experiments.store import Store

PLAN = """
splits = {splits}
inits = 2

[base]
dataset = "wine"
epochs = {epochs}
keep = ["history"]

[[cell]]
row = "GCN"

[[cell]]
row = "GCN+WT-AWP"
awp = {{ rho = 0.5, lam = 0.5 }}
"""
MARK = "WTAWP_KILLS_MARK"
DEADLINE = 10.0  # seconds after which no process of a killed sweep may be left
SWEEP_TIMEOUT = 300.0  # seconds after which a sweep counts as hanging


class Sweep:
    """A running `wtawp run`, whose processes carry a mark of their own."""

    def __init__(self, plan: Path, store: Path, engine: str, workers: int) -> None:
        self.engine, self.mark = engine, secrets.token_hex(8)
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}  # or Ray writes one into the home
        command = [sys.executable, "-m", "wtawp.cli", "run", plan, "--store", store, "--engine", engine]
        self.process = subprocess.Popen(
            [*map(str, command), "--workers", str(workers), "--json"], env=os.environ | token | {MARK: self.mark},
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def pids(self) -> list[int]:
        """The processes of the sweep that are alive, wherever they are in the tree."""
        mark, alive = f"{MARK}={self.mark}".encode(), []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                is_zombie = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
                if not is_zombie and mark in (folder / "environ").read_bytes().split(b"\0"):
                    alive.append(int(folder.name))
            except OSError:  # it has ended, or belongs to somebody else
                continue
        return alive

    def workers(self) -> list[int]:
        """The processes that work on chunks, or will."""
        return [pid for pid in self.pids() if is_worker(pid)]

    def seconds_until_gone(self) -> float:
        """Wait until no process is left, `DEADLINE` at most."""
        start = time.monotonic()
        while self.pids() and time.monotonic() - start < DEADLINE:
            time.sleep(0.05)
        return time.monotonic() - start

    def messages(self) -> str:
        """What the command printed as errors."""
        return "" if self.process.stderr is None else self.process.stderr.read()[-2000:]


def is_worker(pid: int) -> bool:
    """Whether a process is a worker of the local engine or of Ray."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"popen_loky" in command or command.startswith((b"ray::IDLE", b"ray::wtawp"))


def outcomes(path: Path) -> dict[str, str]:
    """What a store holds, by key, as text in which NaN is equal to NaN."""
    if not path.exists():
        return {}
    with Store(path) as store:
        return {record.key: repr(record.outcome) for record in store.records()}


@dataclass(frozen=True)
class Kill:
    """What happened after one kill: when the last process was gone, and how many were left at the deadline."""

    engine: str
    victim: str
    signal: str
    status: int
    seconds: float
    left: int
    is_right: bool
    num_records: int

    def __str__(self) -> str:
        verdict = "right" if self.is_right else "WRONG"
        return (
            f"{verdict}: {self.engine}, {self.signal} to {self.victim}, status {self.status}, "
            f"{self.num_records} records, gone after {self.seconds:.1f} s, {self.left} left"
        )


def kill_once(sweep: Sweep, store: Path, expected: dict[str, str], moment: float, dice: random.Random) -> Kill:
    """Let a sweep run for some seconds, send a signal to the command or to a worker, and see what becomes of it."""
    time.sleep(moment)
    workers, sent = sweep.workers(), dice.choice([signal.SIGKILL, signal.SIGTERM])
    victim = dice.choice(["the command", "a worker"]) if workers else "the command"
    with suppress(ProcessLookupError):
        if sweep.process.poll() is None:
            os.kill(dice.choice(workers) if victim == "a worker" else sweep.process.pid, sent)
        else:
            victim = "nobody, it had ended"
    if victim != "the command":
        sweep.process.wait(SWEEP_TIMEOUT)
    seconds = sweep.seconds_until_gone()
    status, left, stored = sweep.process.wait(SWEEP_TIMEOUT), len(sweep.pids()), outcomes(store)
    is_right = stored == expected if status == 0 else victim == "the command" and stored.items() <= expected.items()
    return Kill(sweep.engine, victim, sent.name, status, seconds, left, is_right and not left, len(stored))


def kill_many(plan: Path, engine: str, number: int, expected: dict[str, str], dice: random.Random) -> list[Kill]:
    """Kill sweeps on one engine; each continues what the one before has stored, until one comes to its end."""
    stores = (plan.with_name(f"{engine}{i}.sqlite") for i in count())
    start, store, kills = time.monotonic(), next(stores), []
    assert Sweep(plan, store, engine, 2).process.wait(SWEEP_TIMEOUT) == 0
    assert outcomes(store) == expected, "workers change the records"
    duration, store = time.monotonic() - start, next(stores)
    print(f"{engine}: an undisturbed sweep takes {duration:.1f} s", flush=True)
    for _ in range(number):
        sweep = Sweep(plan, store, engine, 2)
        kills.append(kill_once(sweep, store, expected, dice.uniform(0.0, duration), dice))
        print(kills[-1], flush=True)
        if not kills[-1].is_right and not kills[-1].left:
            print(sweep.messages(), flush=True)
        if kills[-1].status == 0:
            store = next(stores)
    assert Sweep(plan, store, engine, 2).process.wait(SWEEP_TIMEOUT) == 0
    assert outcomes(store) == expected, "the last sweep, which nobody killed, ends with other records"
    return kills


def print_table(kills: list[Kill]) -> None:
    """Print one row for each engine, victim and signal."""
    groups: dict[tuple[str, str, str], list[Kill]] = defaultdict(list)
    for kill in kills:
        groups[kill.engine, kill.victim, kill.signal].append(kill)
    print("\n| engine | killed | signal | kills | wrong | processes left | the last gone after, s (median, longest) |")
    print("|---|---|---|---:|---:|---:|---:|")
    for (engine, victim, name), some in sorted(groups.items()):
        wrong, left, seconds = sum(not k.is_right for k in some), sum(k.left for k in some), [k.seconds for k in some]
        print(
            f"| `{engine}` | {victim} | {name} | {len(some)} | {wrong} | {left} | {median(seconds):.1f}, "
            f"{max(seconds):.1f} |"
        )


def main() -> None:
    """Kill, print each kill and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="kills in all, the same number on each engine")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", action="append", choices=["local", "ray"], help="default: both")
    parser.add_argument("--splits", type=int, default=6, help="half the number of chunks of a sweep")
    parser.add_argument("--epochs", type=int, default=200)
    options = parser.parse_args()
    engines, dice = options.engine or ["local", "ray"], random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.toml"
        plan.write_text(PLAN.format(splits=options.splits, epochs=options.epochs), encoding="utf-8")
        store = plan.with_name("undisturbed.sqlite")
        assert Sweep(plan, store, "local", 1).process.wait(SWEEP_TIMEOUT) == 0
        expected = outcomes(store)
        kills = [k for e in engines for k in kill_many(plan, e, options.kills // len(engines), expected, dice)]
    print_table(kills)
    sys.exit(any(not kill.is_right for kill in kills))


if __name__ == "__main__":
    main()
