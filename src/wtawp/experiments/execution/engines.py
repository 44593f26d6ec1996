"""Engines, which decide where chunks are trained: in this process, by worker processes, or on a Ray cluster.

An engine is a function of the chunks and of the work on one chunk; it yields the results as they arrive, in any order.
The records do not depend on the engine.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky.process_executor import TerminatedWorkerError

from wtawp.base import WtawpError

C = TypeVar("C")
R = TypeVar("R")
MAX_DEATHS = 3  # of worker processes, after which an engine gives up


class EngineError(WtawpError):
    """Raised if worker processes cannot be started, or keep dying."""


class Engine(Protocol):
    """Yields the result of `work` on every chunk as it arrives, with the index of the chunk."""

    def __call__(self, chunks: Sequence[C], work: Callable[[C], R]) -> Iterator[tuple[int, R]]:
        """Work on all chunks.

        Args:
            chunks: The chunks.
            work: The work on one chunk, which must be picklable for engines with several processes.

        Yields:
            The index of a chunk and the result of the work on it, in any order.
        """
        ...


def local(workers: int = 1) -> Engine:
    """Make an engine that works on this machine.

    Args:
        workers: The number of processes that work on a chunk each; 1 works in the calling process.

    Returns:
        The engine. It raises EngineError if worker processes die `MAX_DEATHS` times.

    Raises:
        ValueError: If `workers` is below 1.

    Example:
        >>> list(local()([1, 2], lambda chunk: 10 * chunk))
        [(0, 10), (1, 20)]
    """
    if workers < 1:
        raise ValueError(f"workers must be >= 1, got {workers}")

    def run(chunks: Sequence[C], work: Callable[[C], R]) -> Iterator[tuple[int, R]]:
        if workers == 1:
            for i, chunk in enumerate(chunks):
                yield i, work(chunk)
            return
        left, deaths = dict(enumerate(chunks)), 0
        while left:
            try:
                # Each worker uses one thread, as `work` does. There are always several workers, even for one chunk:
                # with one, joblib would work in this process, which a chunk that kills its process must not end.
                with parallel_config("loky", n_jobs=workers, inner_max_num_threads=1):
                    jobs = (delayed(_with_index)(i, work, chunk) for i, chunk in list(left.items()))
                    for i, result in Parallel(return_as="generator_unordered")(jobs):
                        del left[i]
                        yield i, result
            except TerminatedWorkerError as error:
                deaths += 1
                if deaths == MAX_DEATHS:
                    raise EngineError(
                        f"workers died {deaths} times (out of memory?), {len(left)} chunks are left; "
                        "finished chunks are kept: start again with fewer workers to go on"
                    ) from error

    return run


def _with_index(i: int, work: Callable[[C], R], chunk: C) -> tuple[int, R]:
    """A function of the module, and not a closure, so that it can be pickled."""
    return i, work(chunk)
