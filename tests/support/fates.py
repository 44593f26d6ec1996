"""Work that ends its process or never returns, and processes that are found by a mark in their environment."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

EXITS, KILLED, CRASHES, ABORTS, HANGS = 2, 3, 7, 12, 16  # chunks of twenty
LOST = (EXITS, KILLED, CRASHES, ABORTS, HANGS)


def meet_fate(chunk: int) -> int:
    """Double a number, unless the fate of this chunk is another one."""
    if chunk == EXITS:
        os._exit(3)
    if chunk in (KILLED, CRASHES, ABORTS):
        number = {KILLED: signal.SIGKILL, CRASHES: signal.SIGSEGV, ABORTS: signal.SIGABRT}[chunk]
        signal.signal(signal.SIGABRT, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    if chunk == HANGS:
        time.sleep(600)
    return 2 * chunk


def wait_until(is_so: Callable[[], bool], seconds: float = 180) -> None:
    """Wait for a condition; fail if it does not become true in time."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, f"waited for {seconds} s in vain"
        time.sleep(0.05)


def end_sweep(sweep: "subprocess.Popen[bytes]", started: Path, sent: signal.Signals) -> None:
    """Send a signal to a sweep as soon as two of its chunks have left a note in a folder; it must end by the signal."""
    try:
        wait_until(lambda: len(list(started.iterdir())) == 2)
        sweep.send_signal(sent)
        assert sweep.wait(10) == -sent
    finally:
        sweep.kill()


def marked_processes(mark: str) -> list[int]:
    """The living processes with a text in their environment, children of dead ones too."""
    alive = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_zombie = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            if not is_zombie and mark.encode() in (folder / "environ").read_bytes():
                alive.append(int(folder.name))
        except (OSError, IndexError):  # it is ending, has ended, or belongs to somebody else
            continue
    return alive
