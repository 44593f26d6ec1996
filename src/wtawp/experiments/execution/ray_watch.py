"""A program that outlives a sweep: when the sweep has ended, however it ended, it kills what is left of its Ray.

    python ray_watch.py MARK < pipe

The sweep holds the other end of the pipe, which the system closes when the sweep ends. Processes of its Ray are known
by MARK, the value of a variable that they inherited. Some overwrite their environment; these are known by their
parents. The parents die with the sweep, so the program looks at them while the sweep runs. Ray alone takes half a
minute to notice that a sweep was killed. The program imports nothing of this package, so that it starts fast, and
needs the /proc of Linux.
"""

import os
import select
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path

VARIABLE = "WTAWP_RAY_SESSION"  # its value marks the processes of one Ray
SECONDS = 20.0  # for which processes are looked for: some may just be starting
INTERVAL = 0.2
INTERVAL_BEFORE = 1.0  # while the sweep runs, or more, so that looking takes at most
SHARE = 0.02  # of a core
Process = tuple[int, str]  # a process id and when the process started: ids are used again


def processes_of(mark: str, known: set[Process]) -> set[Process]:
    """Find the living processes of a Ray: those with its mark, those already known, and all that these have started.

    Args:
        mark: The value of `VARIABLE` in their environment. Agents of Ray overwrite theirs with a title of their own.
        known: What an earlier call has found.

    Returns:
        The processes; zombies do not count.
    """
    entry, children, found = f"{VARIABLE}={mark}".encode(), defaultdict[int, list[Process]](list), list[Process]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            state, parent, process = fields[0], int(fields[1]), (int(folder.name), fields[19])
            if state != "Z":
                children[parent].append(process)
                if process in known or entry in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(process)
        except (OSError, ValueError, IndexError):  # it is ending, has ended, or belongs to somebody else
            continue
    for process in found:  # the list grows while it is read
        found += [child for child in children[process[0]] if child not in found]
    return {process for process in found if process[0] != os.getpid()}


def kill_all(mark: str, known: set[Process], seconds: float) -> None:
    """Kill the processes of a Ray until none is left in two looks.

    Args:
        mark: The value of `VARIABLE` in their environment.
        known: Those that were found while it ran.
        seconds: Give up after this time.
    """
    deadline, empty_looks = time.monotonic() + seconds, 0
    while empty_looks < 2 and time.monotonic() < deadline:
        living = processes_of(mark, known)
        known = known | living
        empty_looks = 0 if living else empty_looks + 1
        for process, _ in living:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:  # it has ended meanwhile
                continue
        time.sleep(INTERVAL)


def watch(mark: str) -> None:
    """Look at a Ray until the sweep ends, then kill what is left.

    Args:
        mark: The value of `VARIABLE` in the environment of its processes.
    """
    found, pause = set[Process](), INTERVAL_BEFORE
    while not select.select([sys.stdin], [], [], pause)[0]:  # the sweep writes nothing: it is the end
        began = time.monotonic()
        found = processes_of(mark, found)
        pause = max(INTERVAL_BEFORE, (time.monotonic() - began) / SHARE)
    kill_all(mark, found, SECONDS)


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # they are meant for the sweep
        signal.signal(ignored, signal.SIG_IGN)
    watch(sys.argv[1])
