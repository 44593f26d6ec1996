"""A program that outlives a sweep: when the sweep has ended, however it ended, it kills what is left of its Ray.

    python ray_watch.py MARK < pipe

The sweep holds the other end of the pipe, which the system closes when the sweep ends. Processes of its Ray are known
by MARK, the value of a variable that they inherited, or by their parents. Ray alone takes half a minute to notice that
a sweep was killed. The program imports nothing of this package, so that it starts fast, and needs the /proc of Linux.
"""

import os
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path

VARIABLE = "WTAWP_RAY_SESSION"  # its value marks the processes of one Ray
SECONDS = 20.0  # for which processes are looked for: some may just be starting
INTERVAL = 0.2


def processes_of(mark: str) -> list[int]:
    """Find the living processes of a Ray: those with its mark, and all that these have started.

    Args:
        mark: The value of `VARIABLE` in their environment. Workers of Ray overwrite theirs with a title of their own.

    Returns:
        Their process ids; zombies do not count.
    """
    entry, children, found = f"{VARIABLE}={mark}".encode(), defaultdict[int, list[int]](list), []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[:2]
            if state != "Z":
                children[int(parent)].append(int(folder.name))
                if entry in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        except (OSError, ValueError):  # it is ending, has ended, or belongs to somebody else
            continue
    for process in found:  # the list grows while it is read
        found += [child for child in children[process] if child not in found]
    return found


def kill_marked(mark: str, seconds: float) -> None:
    """Kill the processes of a Ray until none is left in two looks.

    Args:
        mark: The value of `VARIABLE` in their environment.
        seconds: Give up after this time.
    """
    deadline, empty_looks = time.monotonic() + seconds, 0
    while empty_looks < 2 and time.monotonic() < deadline:
        processes = [process for process in processes_of(mark) if process != os.getpid()]
        empty_looks = 0 if processes else empty_looks + 1
        for process in processes:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:  # it has ended meanwhile
                continue
        time.sleep(INTERVAL)


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # they are meant for the sweep
        signal.signal(ignored, signal.SIG_IGN)
    sys.stdin.read()
    kill_marked(sys.argv[1], SECONDS)
