"""Where chunks are trained: in this process, by workers on this machine, or on a Ray cluster. The records are the same.

An engine is a function from chunks and the work on one of them to the results, as they arrive, in any order.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky.process_executor import TerminatedWorkerError

from wtawp.base import WtawpError

C = TypeVar("C")
R = TypeVar("R")
DEATHS = 3  # of workers, after which something other than bad luck is at work


class EngineError(WtawpError):
    """Workers that cannot be had or kept."""


class Engine(Protocol):
    """Yields the result of `work` on every chunk, as it arrives, with the chunk's place."""

    def __call__(self, chunks: Sequence[C], work: Callable[[C], R]) -> Iterator[tuple[int, R]]: ...


def local(workers: int = 1) -> Engine:
    """This machine: one chunk after another, or `workers` processes with a chunk each."""
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
                # Threads inside workers are not ours to share out: `work` itself uses one. Never one worker, even for
                # one chunk: joblib would work on it in this process, which must outlive a chunk that kills.
                with parallel_config("loky", n_jobs=workers, inner_max_num_threads=1):
                    jobs = (delayed(_numbered)(i, work, chunk) for i, chunk in list(left.items()))
                    for i, result in Parallel(return_as="generator_unordered")(jobs):
                        del left[i]
                        yield i, result
            except TerminatedWorkerError as error:
                deaths += 1
                if deaths == DEATHS:
                    raise EngineError(
                        f"workers died {deaths} times (out of memory?), {len(left)} chunks are left; "
                        "what is done is kept: start again with fewer workers to go on"
                    ) from error

    return run


def _numbered(i: int, work: Callable[[C], R], chunk: C) -> tuple[int, R]:
    return i, work(chunk)
