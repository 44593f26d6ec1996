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

STARTS_ONE = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"], env={})
time.sleep(60)
"""


def start(command: list[str], mark: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env=os.environ | {ray_watch.VARIABLE: mark})


def test_processes_are_found_by_their_mark_alone() -> None:
    ours, theirs = start(SLEEP, "mark-a"), start(SLEEP, "mark-ab")
    try:
        wait_until(lambda: ray_watch.processes_of("mark-a") == [ours.pid], 10)
        ours.kill()
        wait_until(lambda: ray_watch.processes_of("mark-a") == [], 10)
        assert Path(f"/proc/{ours.pid}").exists(), "it is a zombie, which does not count"
        assert ray_watch.processes_of("mark-ab") == [theirs.pid]
    finally:
        for process in (ours, theirs):
            process.kill()
            process.wait()


def test_children_without_the_mark_belong_to_it() -> None:
    parent = start([sys.executable, "-S", "-c", STARTS_ONE], "mark-e")
    try:
        wait_until(lambda: len(ray_watch.processes_of("mark-e")) == 2, 10)
        child = max(ray_watch.processes_of("mark-e"), key=lambda process: process != parent.pid)
        ray_watch.kill_marked("mark-e", 10)
        assert parent.wait(10) == -9
        wait_until(lambda: not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text(), 10)
    finally:
        parent.kill()
        parent.wait()


def test_when_the_sweep_ends_all_marked_processes_are_killed_and_the_watch_ends() -> None:
    processes = [start(command, "mark-c") for command in (SLEEP, STUBBORN)]
    other = start(SLEEP, "mark-d")
    script = str(Path(ray_watch.__file__))
    watch = subprocess.Popen([sys.executable, "-I", "-S", script, "mark-c"], stdin=subprocess.PIPE)
    try:
        wait_until(lambda: len(ray_watch.processes_of("mark-c")) == 2, 10)
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
