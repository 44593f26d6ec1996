import os
import signal
from pathlib import Path

import pytest

from wtawp.experiments.execution.engines import EngineError, local


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


def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    results = sorted(local(2)(range(6), DiesOnce(tmp_path / "died")))
    assert results == [(i, 2 * i) for i in range(6)]


def test_workers_that_keep_dying_are_reported(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"workers died 3 times .* start again with fewer workers to go on"):
        list(local(2)(range(6), DiesOnce(tmp_path / "died", times=9)))


def process(_: int) -> int:
    return os.getpid()


def test_a_last_chunk_is_not_worked_on_in_this_process() -> None:
    assert dict(local(2)([3], process))[0] != os.getpid()


def test_fewer_than_one_worker_is_refused() -> None:
    with pytest.raises(ValueError, match="workers must be >= 1, got 0"):
        local(0)
