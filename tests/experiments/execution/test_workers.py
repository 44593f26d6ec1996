import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fates import end_sweep, marked_processes, wait_until

from wtawp.experiments.execution import workers
from wtawp.experiments.execution.workers import Worker, WorkerDiedError, describe_exit

SWEEP = """
import os, re, signal, sys, time
from pathlib import Path
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # below nohup it is ignored
from wtawp.experiments.execution.engines import local

folder = Path(sys.argv[1])

def stay(chunk):
    (folder / str(os.getpid())).touch()
    if chunk:
        time.sleep(600)
    re.match("(a+)+$", "a" * 60 + "b")  # for years, without a chance for other threads of its process

list(local(2)(range(5), stay))
"""
NEVER_CLOSED = """
from wtawp.experiments.execution.engines import local
results = local(2)(range(5), lambda chunk: chunk)
print(next(results)[1] in range(5))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_no_process_is_left_ten_seconds_after_the_parent_was_killed(tmp_path: Path, sent: signal.Signals) -> None:
    mark = secrets.token_hex(8)
    command = [sys.executable, "-c", SWEEP, str(tmp_path)]
    with subprocess.Popen(command, env=os.environ | {"MARK": mark}, stderr=subprocess.DEVNULL) as sweep:
        end_sweep(sweep, tmp_path, sent)
    wait_until(lambda: not marked_processes(mark), 10)


def test_a_generator_that_nobody_closes_does_not_keep_python_from_ending() -> None:
    process = subprocess.run([sys.executable, "-c", NEVER_CLOSED], capture_output=True, text=True, timeout=60)
    assert (process.stdout, process.stderr, process.returncode) == ("True\n", "", 0)


@pytest.mark.parametrize("has_tools", [True, False])
def test_a_worker_is_killed_with_or_without_tools_to_find_its_children(
    has_tools: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(time.sleep)
    wait_until(worker.has_news)
    worker.receive()
    worker.begin(0, 600)
    if not has_tools:
        monkeypatch.setattr(workers, "find_spec", lambda _: None)
        monkeypatch.setattr("shutil.which", lambda _: None)
    assert worker.kill() == describe_exit(-signal.SIGKILL)
    assert worker.kill() == describe_exit(-signal.SIGKILL), "a second time changes nothing"


def test_a_worker_answers_that_it_is_ready_then_with_results_until_it_is_killed() -> None:
    worker = Worker(abs)
    try:
        wait_until(worker.has_news)
        assert worker.receive() is None
        worker.begin(4, -7)
        assert worker.chunk == 4
        wait_until(worker.has_news)
        assert worker.receive() == 7
        assert (worker.is_ready, worker.chunk) == (True, None)
    finally:
        assert worker.kill().startswith("was killed by SIGKILL")


def test_a_worker_that_died_says_how() -> None:
    worker = Worker(os._exit)
    wait_until(worker.has_news)
    worker.receive()
    worker.begin(0, 5)
    wait_until(worker.has_news)
    with pytest.raises(WorkerDiedError, match=r"^exited with status 5$"):
        worker.receive()


@pytest.mark.parametrize(
    ("code", "words"), [(0, "exited with status 0"), (-11, "was killed by SIGSEGV"), (-99, "was killed by signal 99")]
)
def test_exit_codes_are_named(code: int, words: str) -> None:
    assert describe_exit(code) == words
