"""The engine for a Ray cluster: one that runs already, or one that is started for the duration of the sweep.

Ray is imported when an engine is made, never before. The machines of an existing cluster need this package and the
data; `$WTAWP_DATA` and `$WTAWP_HOME` are passed on to them if they are set.
"""

import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from wtawp.experiments.execution.engines import (
    MAX_DEATHS,
    POLL_INTERVAL,
    C,
    ChunkProgress,
    Engine,
    EngineError,
    LostChunk,
    R,
    check_time_limit,
)
from wtawp.experiments.execution.ray_watch import VARIABLE

FORWARDED_VARIABLES = ("WTAWP_DATA", "WTAWP_HOME")
CONNECT_TIMEOUT = 10.0  # seconds for the first answer of a cluster; Ray alone would try for minutes
MAX_CANCELLATIONS = 3  # of a chunk, a second apart
OBJECT_STORE = 2**28  # bytes for results in a Ray that we start; its default is a third of the memory, the rest spills


def ray_cluster(
    *, workers: int | None = None, address: str | None = None, gpus: float = 0, time_limit: float | None = None
) -> Engine:
    """Make an engine that works on a Ray cluster: an existing one, which is left running, or else one started here.

    A chunk whose worker dies is tried again after the others, `MAX_DEATHS` times in all, and is lost then. A chunk that
    exceeds the time limit is lost at once; its worker is killed. A Ray that was started here ends when this process
    does, however that ends.

    Args:
        workers: The number of CPUs of a Ray that is started here, by default all of the machine; on an existing
            cluster, the number of chunks at the same time, by default twice as many as fit.
        address: The address of an existing cluster; by default `$RAY_ADDRESS`. Without either, Ray is started here.
        gpus: The GPUs that a chunk takes beside its CPU: a share of one, or a whole number. Work on GPUs needs some.
        time_limit: Seconds that a chunk may take, not counting the time until a worker has room for it; by default any
            time.

    Returns:
        The engine. It raises EngineError if the cluster cannot be reached or has no machine for a chunk, or if workers
        cannot load the work. It never learns how much of a chunk is done.

    Raises:
        ValueError: If `workers`, `gpus` or `time_limit` is not valid.
        EngineError: If Ray is not installed.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be >= 1, got {workers}")
    if not (0 <= gpus <= 1 or (gpus > 1 and float(gpus).is_integer())):
        raise ValueError(f"gpus must be a share of one GPU or a whole number of them, got {gpus}")
    check_time_limit(time_limit)
    ray = _import_ray()

    def run(
        chunks: Sequence[C],
        work: Callable[[C], R],
        progress: ChunkProgress | None = None,  # noqa: ARG001  # a task of Ray has no way back but its results
    ) -> Generator[tuple[int, R | LostChunk], None, None]:
        with _connected(ray, workers, address or os.environ.get("RAY_ADDRESS") or "local") as is_ours:
            if not _capacity(ray, gpus):
                raise EngineError(_no_capacity(ray, gpus))
            # A Ray that we start inherits the environment; an existing one does not.
            environment = {name: os.environ[name] for name in FORWARDED_VARIABLES if name in os.environ and not is_ours}
            task = ray.remote(_work_on).options(
                num_cpus=1, num_gpus=gpus, max_retries=0, num_returns="streaming", name="wtawp",
                runtime_env={"env_vars": environment} if environment else None,
            )  # fmt: skip
            max_tasks = None if is_ours else workers
            yield from _results(
                ray, chunks, partial(task.remote, ray.put(work)), time_limit or float("inf"),
                max_tasks=lambda: max_tasks or 2 * max(1, _capacity(ray, gpus)),
            )  # fmt: skip

    return run


def _work_on(work: Callable[[C], R], chunk: C) -> Iterator[R | None]:
    """The task: yield None when the work starts, then its result."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Ray's raises SystemExit, which would be a failure of the work
    yield None
    yield work(chunk)


@dataclass
class _Task:
    """A task of Ray: the index of its chunk, and when its work started, if it has."""

    i: int
    began: float | None = None

    @property
    def seconds(self) -> float:
        return 0.0 if self.began is None else time.monotonic() - self.began


def _results(
    ray: ModuleType, chunks: Sequence[C], start: Callable[[C], Any], limit: float, *, max_tasks: Callable[[], int]
) -> Iterator[tuple[int, Any]]:
    """Keep `max_tasks()` tasks running and fetch one result at a time; their number may change as the cluster does."""
    waiting, deaths = deque(range(len(chunks))), Counter[int]()
    running: dict[Any, _Task] = {}
    try:
        while waiting or running:
            while waiting and len(running) < max_tasks():
                i = waiting.popleft()
                running[start(chunks[i])] = _Task(i)
            for stream in ray.wait(list(running), num_returns=1, timeout=POLL_INTERVAL)[0]:
                task = running[stream]
                try:
                    result = ray.get(next(stream))
                except ray.exceptions.RayTaskError as error:
                    raise _cause_of(ray, error) from error
                except ray.exceptions.RayError as error:  # the worker died; the work raised nothing
                    del running[stream]
                    deaths[task.i] += 1
                    if deaths[task.i] < MAX_DEATHS:
                        waiting.append(task.i)
                    else:
                        yield task.i, LostChunk.after_deaths(_summary(error), task.seconds)
                    continue
                if task.began is None:
                    task.began = time.monotonic()
                else:
                    del running[stream], stream
                    yield task.i, result
                del result  # or Ray would hold this result while we wait for the next
            for stream, task in list(running.items()):
                if task.seconds > limit:
                    del running[stream]
                    _cancel(ray, [stream])
                    yield task.i, LostChunk.after_time_limit(limit, task.seconds)
    finally:
        _cancel(ray, list(running))


def _cancel(ray: ModuleType, streams: list[Any]) -> None:
    """Kill the workers of tasks."""
    for _ in range(MAX_CANCELLATIONS):  # a chunk that is just being started may miss its cancellation
        for stream in streams:
            ray.cancel(stream, force=True)
        ends = {stream.completed(): stream for stream in streams}
        streams = [ends[end] for end in ray.wait(list(ends), num_returns=len(ends), timeout=1)[1]] if ends else []


def _summary(error: Exception) -> str:
    """What Ray says of a dead worker, as the end of a sentence about it."""
    return f"was lost ({type(error).__name__}: {str(error).partition(chr(10))[0][:200]})"


def _cause_of(ray: ModuleType, error: Any) -> BaseException:
    """The exception that `work` raised, without Ray's wrapper; an EngineError if the work could not be loaded."""
    cause = error.cause
    if isinstance(cause, ray.exceptions.RayError):
        reason = str(cause).partition("\n")[0]
        return EngineError(f"workers cannot load the work ({reason}); install this version of wtawp on every machine")
    return cause if isinstance(cause, BaseException) else error


@contextmanager
def _connected(ray: ModuleType, workers: int | None, address: str) -> Iterator[bool]:
    """Connect to Ray; yields whether it was started here.

    At the end a cluster that we joined is left, one that we started is shut down, and an earlier connection is kept.
    """
    if ray.is_initialized():
        yield False
        return
    is_ours = address == "local"
    with _watched() if is_ours and sys.platform == "linux" else nullcontext():
        _start_or_join(ray, workers, address)
        try:
            yield is_ours
        finally:
            ray.shutdown()


def _start_or_join(ray: ModuleType, workers: int | None, address: str) -> None:
    """Start Ray here if the address is "local", or else join the cluster there."""
    is_ours = address == "local"
    sigterm_handler = signal.getsignal(signal.SIGTERM)
    try:
        if is_ours:  # with errors only: Ray warns at every start that access is by a token
            quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
            ray.init("local", num_cpus=workers, object_store_memory=OBJECT_STORE, **quiet)
        else:
            _check_address(address)
            ray.init(address, log_to_driver=False, logging_level=logging.WARNING)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        where = "start Ray here" if is_ours else f"join the Ray cluster at {address}"
        hint = "" if is_ours else "; if it runs and asks for a token, set RAY_AUTH_MODE=token"
        raise EngineError(f"cannot {where}: {error}{hint}") from error
    finally:
        if threading.current_thread() is threading.main_thread() and sigterm_handler is not None:
            signal.signal(signal.SIGTERM, sigterm_handler)  # Ray's would end the cluster before the sweep can leave it
        os.environ.pop(VARIABLE, None)  # the workers inherit it from Ray; other processes are not meant


@contextmanager
def _watched() -> Iterator[None]:
    """Let no process of a Ray that is started inside outlive the context, nor this process, however it ends."""
    mark = secrets.token_hex(8)
    command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("ray_watch.py")), mark]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True):
        os.environ[VARIABLE] = mark
        yield  # then the pipe is closed, and the watch kills what is left


def _check_address(address: str) -> None:
    """Raise OSError if nothing listens at an address with a port; Ray itself would try for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT).close()


def _capacity(ray: ModuleType, gpus: float) -> int:
    """How many chunks the cluster can work on at the same time; each needs its CPU and GPUs on one machine."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return sum(int(min(n.get("CPU", 0), n.get("GPU", 0) / gpus if gpus else float("inf"))) for n in nodes)


def _no_capacity(ray: ModuleType, gpus: float) -> str:
    """The message for a cluster on which no chunk fits."""
    total = ray.cluster_resources()
    return (
        f"no machine of the Ray cluster has 1 CPU and {gpus:g} GPUs for a chunk, all together have "
        f"{total.get('CPU', 0):g} CPUs and {total.get('GPU', 0):g} GPUs; ask for fewer, or train on the CPU"
    )


def _import_ray() -> ModuleType:
    """Import Ray with the settings that it reads while it is imported."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Otherwise Ray never stops retrying a task that does not fit into memory; we count the tries ourselves.
    os.environ.setdefault("RAY_task_oom_retries", "0")
    try:
        import ray
    except ImportError as error:
        raise EngineError(f"a cluster needs Ray ({error}); pip install 'ray>=2.40', or wtawp[cluster]") from error
    return ray
