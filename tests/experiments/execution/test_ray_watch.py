import os
import subprocess
import sys
import time
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


def start_watch(mark: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", str(Path(ray_watch.__file__)), mark]
    return subprocess.Popen(command, stdin=subprocess.PIPE)


def ids_of(mark: str, known: frozenset[ray_watch.Process] = frozenset()) -> set[int]:
    return {process for process, _ in ray_watch.processes_of(mark, set(known))}


def test_processes_are_found_by_their_mark_alone() -> None:
    ours, theirs = start(SLEEP, "mark-a"), start(SLEEP, "mark-ab")
    try:
        wait_until(lambda: ids_of("mark-a") == {ours.pid}, 10)
        ours.kill()
        wait_until(lambda: not ids_of("mark-a"), 10)
        assert Path(f"/proc/{ours.pid}").exists(), "it is a zombie, which does not count"
        assert ids_of("mark-ab") == {theirs.pid}
    finally:
        for process in (ours, theirs):
            process.kill()
            process.wait()


def is_running(process: int) -> bool:
    folder = Path(f"/proc/{process}")
    return folder.exists() and (folder / "stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_children_without_the_mark_belong_to_it_also_after_their_parent_has_died() -> None:
    parent = start([sys.executable, "-S", "-c", STARTS_ONE], "mark-e")
    try:
        wait_until(lambda: len(ids_of("mark-e")) == 2, 10)
        known = ray_watch.processes_of("mark-e", set())
        (child,) = {process for process, _ in known} - {parent.pid}
        parent.kill()
        parent.wait()
        assert not ids_of("mark-e")
        assert ids_of("mark-e", frozenset(known)) == {child}
        assert not ids_of("mark-e", frozenset({(child, "0")})), "another process that had the same id"
        ray_watch.kill_all("mark-e", known, 10)
        wait_until(lambda: not is_running(child), 10)
    finally:
        parent.kill()
        parent.wait()


def test_the_watch_kills_children_of_processes_that_died_with_the_sweep() -> None:
    parent, watch = start([sys.executable, "-S", "-c", STARTS_ONE], "mark-f"), start_watch("mark-f")
    try:
        wait_until(lambda: len(ids_of("mark-f")) == 2, 10)
        (child,) = ids_of("mark-f") - {parent.pid}
        time.sleep(3 * ray_watch.INTERVAL_BEFORE)
        parent.kill()
        parent.wait()
        assert watch.stdin is not None
        watch.stdin.close()
        wait_until(lambda: not is_running(child), 10)
        assert watch.wait(10) == 0
    finally:
        for process in (parent, watch):
            process.kill()
            process.wait()


def test_when_the_sweep_ends_all_marked_processes_are_killed_and_the_watch_ends() -> None:
    processes = [start(command, "mark-c") for command in (SLEEP, STUBBORN)]
    other = start(SLEEP, "mark-d")
    watch = start_watch("mark-c")
    try:
        wait_until(lambda: len(ids_of("mark-c")) == 2, 10)
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
