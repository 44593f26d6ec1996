import os
import re
import signal
import sys
import threading
import time
from functools import partial
from multiprocessing import active_children
from pathlib import Path
from types import ModuleType

import pytest
from fates import ABORTS, CRASHES, EXITS, HANGS, KILLED, LOST, meet_fate

from wtawp.base import report_progress
from wtawp.experiments.execution import engines
from wtawp.experiments.execution.engines import EngineError, LostChunk, local


def double(x: int) -> int:
    return 2 * x


class DiesOnce:
    """Kills its worker the first time it sees 3."""

    def __init__(self, mark: Path, times: int = 1) -> None:
        self.mark, self.times = mark, times

    def __call__(self, x: int) -> int:
        died = len(list(self.mark.parent.glob(f"{self.mark.name}*")))
        if x == 3 and died < self.times:
            self.mark.with_name(f"{self.mark.name}{died}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return 2 * x


@pytest.mark.parametrize("workers", [1, 2])
def test_every_chunk_is_worked_on_once(workers: int) -> None:
    results = sorted(local(workers)(range(7), double))
    assert results == [(i, 2 * i) for i in range(7)]


def double_slowly(x: int) -> int:
    report_progress(0.25)
    time.sleep(0.3)  # reports that follow each other too fast are dropped
    report_progress(0.75)
    report_progress(0.8)
    return 2 * x


@pytest.mark.parametrize("workers", [1, 2])
def test_work_reports_which_share_of_a_chunk_is_done(workers: int) -> None:
    reports: list[tuple[int, float]] = []
    results = local(workers)(range(3), double_slowly, lambda i, share: reports.append((i, share)))
    assert sorted(results) == [(i, 2 * i) for i in range(3)]
    assert sorted(reports) == [(i, share) for i in range(3) for share in (0.25, 0.75)]
    assert sorted(local(workers)(range(3), double_slowly)) == [(i, 2 * i) for i in range(3)]  # nobody listens


@pytest.mark.parametrize("workers", [1, 2])
def test_an_exception_of_who_listens_is_no_failure_of_the_work(workers: int) -> None:
    def cautious(x: int) -> int:
        try:
            return double_slowly(x)
        except Exception:
            return -1

    def refuse(_: int, __: float) -> None:
        raise LookupError("the window was closed")

    with pytest.raises(LookupError, match="the window was closed"):
        list(local(workers)(range(3), cautious, refuse))


def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    results = sorted(local(2)(range(6), DiesOnce(tmp_path / "died")))
    assert results == [(i, 2 * i) for i in range(6)]


def test_of_twenty_chunks_four_kill_their_workers_one_hangs_and_fifteen_are_done() -> None:
    results = dict(local(2, time_limit=3.0)(range(20), meet_fate))
    assert {i: r for i, r in results.items() if i not in LOST} == {i: 2 * i for i in range(20) if i not in LOST}
    reasons = {i: results[i].reason for i in LOST}  # type: ignore[union-attr]
    for i, how in {
        EXITS: "exited with status 3",
        CRASHES: "was killed by SIGSEGV",
        ABORTS: "was killed by SIGABRT",
    }.items():
        assert re.fullmatch(rf"its worker process died 3 times; after \d+\.\d s of the last try it {how}", reasons[i])
    assert reasons[KILLED].endswith("it was killed by SIGKILL (out of memory? use fewer workers)")
    assert reasons[HANGS] == "it was stopped after 3 s, the time limit of a chunk"
    assert results[HANGS].seconds > 3  # type: ignore[union-attr]


def test_one_worker_with_a_time_limit_is_a_process_of_its_own() -> None:
    results = dict(local(1, time_limit=60)([EXITS, 1], meet_fate))
    assert isinstance(results[0], LostChunk)
    assert results[1] == 2


def test_an_exception_comes_out_as_itself_with_the_traceback_of_the_worker() -> None:
    with pytest.raises(KeyError, match="6") as caught:
        list(local(2)(range(7), {i: i for i in range(6)}.__getitem__))
    assert "in a worker process:\nTraceback" in caught.value.__notes__[0]


def test_an_exception_that_cannot_be_sent_comes_out_as_text() -> None:
    class LockedError(Exception):
        def __init__(self) -> None:
            super().__init__("locked", threading.Lock())

    def fail(_: int) -> None:
        raise LockedError

    with pytest.raises(RuntimeError, match=r"LockedError: \('locked', "):
        list(local(2)(range(2), fail))


def test_work_that_workers_cannot_load_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = ModuleType("only_here")
    exec("def double(x): return 2 * x", elsewhere.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", elsewhere)
    with pytest.raises(EngineError, match="cannot load the work: ModuleNotFoundError: No module named 'only_here'"):
        list(local(2)(range(2), elsewhere.double))


class KillsItsReader:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> tuple[object, ...]:
        return os._exit, (7,)

    def __call__(self, chunk: int) -> int:
        return chunk


def test_workers_that_die_before_they_start_are_reported() -> None:
    with pytest.raises(
        EngineError, match=r"3 worker processes in a row died while they loaded .* exited with status 7"
    ):
        list(local(2)(range(2), KillsItsReader()))


def test_processes_that_the_system_refuses_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(engines, "Worker", refuse)
    with pytest.raises(EngineError, match=r"cannot be started \(Resource .*\); use fewer workers"):
        list(local(2)(range(2), double))


def test_workers_end_when_nobody_wants_their_results_any_more() -> None:
    results = local(2)(range(20), partial(slow, seconds=0.2))
    next(results)
    assert len(active_children()) == 2
    results.close()
    assert active_children() == []


def slow(chunk: int, seconds: float) -> int:
    time.sleep(seconds)
    return chunk


def process(_: int) -> int:
    return os.getpid()


def test_a_last_chunk_is_not_worked_on_in_this_process() -> None:
    assert dict(local(2)([3], process))[0] != os.getpid()


def test_fewer_than_one_worker_is_refused() -> None:
    with pytest.raises(ValueError, match="workers must be >= 1, got 0"):
        local(0)


@pytest.mark.parametrize("time_limit", [0, -1.0, float("nan")])
def test_time_limits_that_are_not_positive_are_refused(time_limit: float) -> None:
    with pytest.raises(ValueError, match=f"time_limit must be a number of seconds > 0, or None .*, got {time_limit}"):
        local(2, time_limit=time_limit)
