"""Engines, which decide where chunks are trained: in this process, by worker processes, or on a Ray cluster.

An engine is a function of the chunks and of the work on one chunk; it yields the results as they arrive, in any order.
The records do not depend on the engine. A chunk whose worker dies or takes too long does not end the sweep: a
`LostChunk` takes the place of its result.
"""

import atexit
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Generic, Protocol, TypeVar

from wtawp.base import WtawpError, progress_receiver
from wtawp.experiments.execution.workers import Worker, WorkerDiedError, WorkShare

C = TypeVar("C")
R = TypeVar("R")
ChunkProgress = Callable[[int, float], None]  # is called with the index of a chunk, and the share of it that is done
MAX_DEATHS = 3  # of the workers of a chunk, after which the chunk is lost; also of workers that cannot start
EXIT_TIMEOUT = 5.0  # seconds that idle workers have to end by themselves after the last chunk
POLL_INTERVAL = 1.0  # seconds between two looks at workers that do not answer


class EngineError(WtawpError):
    """Raised if worker processes cannot be started, or cannot load the work."""


@dataclass(frozen=True)
class LostChunk:
    """Takes the place of a result if the workers of a chunk died, or if it took longer than the time limit.

    Attributes:
        reason: What is known of the cause, as a sentence without its full stop.
        seconds: The time from the start of the last try to its end.
    """

    reason: str
    seconds: float

    @staticmethod
    def after_deaths(how: str, seconds: float) -> "LostChunk":
        """The loss of a chunk whose workers died `MAX_DEATHS` times.

        Args:
            how: How the last worker ended, as the end of a sentence about it.
            seconds: The time that it worked on the chunk.

        Returns:
            The lost chunk.
        """
        reason = f"its worker process died {MAX_DEATHS} times; after {seconds:.1f} s of the last try it {how}"
        return LostChunk(reason, seconds)

    @staticmethod
    def after_time_limit(time_limit: float, seconds: float) -> "LostChunk":
        """The loss of a chunk that took too long.

        Args:
            time_limit: The time limit.
            seconds: The time after which it was stopped.

        Returns:
            The lost chunk.
        """
        return LostChunk(f"it was stopped after {time_limit:g} s, the time limit of a chunk", seconds)


class Engine(Protocol):
    """Yields the result of `work` on every chunk as it arrives, with the index of the chunk."""

    def __call__(
        self, chunks: Sequence[C], work: Callable[[C], R], progress: ChunkProgress | None = None
    ) -> Generator[tuple[int, R | LostChunk], None, None]:
        """Work on all chunks, until the generator is closed.

        Args:
            chunks: The chunks.
            work: The work on one chunk, which must be picklable for engines with several processes.
            progress: Called when the work on a chunk calls `report_progress`, by engines that learn of it.

        Yields:
            The index of a chunk and the result of the work on it, or why there is none; in any order.
        """
        ...


def local(workers: int = 1, *, time_limit: float | None = None) -> Engine:
    """Make an engine that works on this machine.

    A chunk whose worker process dies is tried again after the others, `MAX_DEATHS` times in all, and is lost then. A
    chunk that exceeds the time limit is lost at once; its worker is killed. Workers end when this process does, however
    that ends.

    Args:
        workers: The number of processes that work on a chunk each. A single one without a time limit works in the
            calling process, which a chunk that kills its process then ends.
        time_limit: Seconds that a chunk may take; by default any time.

    Returns:
        The engine. It raises EngineError if worker processes cannot be started or cannot load the work.

    Raises:
        ValueError: If `workers` is below 1, or the time limit is not positive.

    Example:
        >>> list(local()([1, 2], lambda chunk: 10 * chunk))
        [(0, 10), (1, 20)]
    """
    if workers < 1:
        raise ValueError(f"workers must be >= 1, got {workers}")
    check_time_limit(time_limit)

    def run(
        chunks: Sequence[C], work: Callable[[C], R], progress: ChunkProgress | None = None
    ) -> Generator[tuple[int, R | LostChunk], None, None]:
        if workers > 1 or time_limit is not None:
            return _Pool(chunks, work, workers, time_limit, progress).results()
        return _work_here(chunks, work, progress)

    return run


def _work_here(
    chunks: Sequence[C], work: Callable[[C], R], progress: ChunkProgress | None
) -> Generator[tuple[int, R], None, None]:
    """Work on one chunk after the other in this process."""
    for i, chunk in enumerate(chunks):

        def receive(share: float, i: int = i) -> None:
            try:
                if progress is not None:
                    progress(i, share)
            except Exception as error:
                raise _ProgressError from error

        try:
            with progress_receiver(receive):
                result = work(chunk)
        except _ProgressError as error:
            raise error.__cause__ or error from None
        yield i, result


class _ProgressError(BaseException):
    """Carries what `progress` raises through the work, which may take any Exception for a failure of its own."""


def check_time_limit(time_limit: float | None) -> None:
    """Refuse a time limit that is not positive.

    Args:
        time_limit: Seconds, or None for no limit.

    Raises:
        ValueError: If the limit is not above 0.
    """
    if time_limit is not None and not time_limit > 0:
        raise ValueError(f"time_limit must be a number of seconds > 0, or None for no limit, got {time_limit}")


class _Pool(Generic[C, R]):
    """The worker processes of one sweep, which share its chunks."""

    def __init__(
        self,
        chunks: Sequence[C],
        work: Callable[[C], R],
        size: int,
        time_limit: float | None,
        progress: ChunkProgress | None,
    ) -> None:
        self._chunks, self._work, self._size, self._progress = chunks, work, size, progress
        self._limit = float("inf") if time_limit is None else time_limit
        self._waiting = deque(range(len(chunks)))
        self._workers: list[Worker] = []
        self._deaths: Counter[int] = Counter()  # by chunk
        self._failed_starts = 0  # since the last worker that became ready

    def results(self) -> Generator[tuple[int, R | LostChunk], None, None]:
        """Keep the workers busy until every chunk is done or lost."""
        atexit.register(self._end)  # or Python would wait at its end for workers of a generator that nobody closed
        try:
            while self._waiting or self._num_busy():
                self._distribute()
                wait([worker.connection for worker in self._workers], self._patience())
                for worker in list(self._workers):
                    if worker.has_news():
                        yield from self._news(worker)
                    elif worker.chunk is not None and worker.seconds > self._limit:
                        lost, seconds = worker.chunk, worker.seconds
                        self._workers.remove(worker)
                        worker.kill()
                        yield lost, LostChunk.after_time_limit(self._limit, seconds)
            self._end(EXIT_TIMEOUT)
        finally:
            self._end()
            atexit.unregister(self._end)

    def _num_busy(self) -> int:
        return sum(worker.chunk is not None for worker in self._workers)

    def _distribute(self) -> None:
        """Start the workers that are missing, and give chunks to those without one."""
        while len(self._workers) < min(self._size, len(self._waiting) + self._num_busy()):
            try:
                self._workers.append(Worker(self._work))
            except OSError as error:
                raise EngineError(f"a worker process cannot be started ({error}); use fewer workers") from error
        for worker in self._workers:
            if worker.is_ready and worker.chunk is None and self._waiting:
                i = self._waiting.popleft()
                worker.begin(i, self._chunks[i])

    def _patience(self) -> float:
        """Seconds to wait for an answer before workers are checked: until the next one reaches its time limit."""
        left = [self._limit - worker.seconds for worker in self._workers if worker.chunk is not None]
        return max(0.0, min([POLL_INTERVAL, *left]))

    def _news(self, worker: Worker) -> Iterator[tuple[int, R | LostChunk]]:
        """Read what a worker has sent, or notice that it died; yields at most one result or loss."""
        i, seconds, was_ready = worker.chunk, worker.seconds, worker.is_ready
        try:
            result = worker.receive()
        except WorkerDiedError as death:
            self._workers.remove(worker)
            if i is not None:
                self._deaths[i] += 1
                if self._deaths[i] < MAX_DEATHS:
                    self._waiting.append(i)
                else:
                    yield i, LostChunk.after_deaths(str(death), seconds)
            elif not was_ready:
                self._failed_starts += 1
                if self._failed_starts == MAX_DEATHS:
                    raise EngineError(
                        f"{MAX_DEATHS} worker processes in a row died while they loaded the work; the last one {death}"
                    ) from death
        except Exception as error:
            if was_ready:
                raise
            raise EngineError(f"worker processes cannot load the work: {type(error).__name__}: {error}") from error
        else:
            self._failed_starts = 0
            if i is not None and isinstance(result, WorkShare):
                if self._progress is not None:
                    self._progress(i, result.done)
            elif i is not None:
                yield i, result

    def _end(self, patience: float = 0.0) -> None:
        """Kill all workers; those that are idle have some seconds to end by themselves."""
        for worker in self._workers:
            worker.connection.close()
        deadline = time.monotonic() + patience
        for worker in self._workers:
            worker.kill(deadline - time.monotonic() if worker.is_ready else 0.0)
        self._workers.clear()
