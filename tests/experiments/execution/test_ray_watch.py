import os
import subprocess
import sys
from pathlib import Path

import pytest
from fates import wait_until

from wtawp.experiments.execution import ray_watch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="NOT CHECKED: the watch finds processes in /proc")
SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
STUBBORN = [sys.executable, "-S", "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"]


def start(command: list[str], mark: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env=os.environ | {ray_watch.VARIABLE: mark})


def test_processes_are_found_by_their_mark_alone() -> None:
    ours, theirs = start(SLEEP, "mark-a"), start(SLEEP, "mark-ab")
    try:
        wait_until(lambda: ray_watch.marked_processes("mark-a") == [ours.pid], 10)
        ours.kill()
        wait_until(lambda: ray_watch.marked_processes("mark-a") == [], 10)  # a zombie does not count
    finally:
        for process in (ours, theirs):
            process.kill()
            process.wait()


def test_when_the_sweep_ends_all_marked_processes_are_killed_and_the_watch_ends() -> None:
    processes = [start(command, "mark-c") for command in (SLEEP, STUBBORN)]
    other = start(SLEEP, "mark-d")
    script = str(Path(ray_watch.__file__))
    watch = subprocess.Popen([sys.executable, "-I", "-S", script, "mark-c"], stdin=subprocess.PIPE)
    try:
        wait_until(lambda: len(ray_watch.marked_processes("mark-c")) == 2, 10)
        assert watch.poll() is None
        assert watch.stdin is not None
        watch.stdin.close()  # as the system does when the sweep was killed
        assert [process.wait(10) for process in processes] == [-9, -9]
        assert watch.wait(10) == 0
        assert other.poll() is None
    finally:
        for process in (*processes, other, watch):
            process.kill()
            process.wait()
