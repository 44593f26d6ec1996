"""Chunks on a Ray cluster: one that runs already, or one started here for as long as the sweep takes.

Ray is loaded when an engine is made, never before. A joined cluster's machines need this package and the data; they
are told `$WTAWP_DATA` and `$WTAWP_HOME` where these are set here.
"""

import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from types import ModuleType
from typing import Any

from wtawp.experiments.execution.engines import DEATHS, C, Engine, EngineError, R

FOLDERS = ("WTAWP_DATA", "WTAWP_HOME")
PATIENCE = 10.0  # seconds for a first answer from a cluster; Ray alone would try for minutes
CANCELLED_TIMES = 3  # at most, a second apart

STORE = 2**28  # bytes for results on their way in a Ray of our own, which would take a third of the memory; more spills


def ray_cluster(*, workers: int | None = None, address: str | None = None, gpus: float = 0) -> Engine:
    """The Ray cluster at `address` or `$RAY_ADDRESS`, left running; else a Ray of our own with `workers` CPUs.

    A chunk takes one CPU and `gpus` GPUs, which may be a share of one; work on GPUs must ask for them. On a cluster
    that is not ours, `workers` is the number of chunks at a time. A chunk whose workers die is tried `DEATHS` times,
    then set aside until the others are done, and reported; at `DEATHS` such chunks the sweep stops.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be >= 1, got {workers}")
    if not (0 <= gpus <= 1 or (gpus > 1 and float(gpus).is_integer())):
        raise ValueError(f"gpus must be a share of one GPU or a whole number of them, got {gpus}")
    ray = _ray()

    def run(chunks: Sequence[C], work: Callable[[C], R]) -> Iterator[tuple[int, R]]:
        with _connected(ray, workers, address or os.environ.get("RAY_ADDRESS") or "local") as is_ours:
            if not _room(ray, gpus):
                raise EngineError(_no_room(ray, gpus))
            # A Ray of our own has the environment; anybody else's does not.
            environment = {name: os.environ[name] for name in FOLDERS if name in os.environ and not is_ours}
            task = ray.remote(lambda work, chunk: work(chunk)).options(
                num_cpus=1, num_gpus=gpus, max_retries=DEATHS - 1, retry_exceptions=False, name="wtawp",
                runtime_env={"env_vars": environment} if environment else None,
            )  # fmt: skip
            limit = None if is_ours else workers
            yield from _results(ray, chunks, task, ray.put(work), limit=lambda: limit or 2 * max(1, _room(ray, gpus)))

    return run


def _results(
    ray: ModuleType, chunks: Sequence[C], task: Any, work: Any, *, limit: Callable[[], int]
) -> Iterator[tuple[int, Any]]:
    """Keep `limit()` tasks in flight, asked anew each time as clusters grow and shrink; fetch one result at a time."""
    waiting = iter(enumerate(chunks))
    flying: dict[Any, int] = {}
    done, lost, trouble = 0, 0, None
    try:
        while lost < DEATHS:
            for i, chunk in islice(waiting, max(0, limit() - len(flying))):
                flying[task.remote(work, chunk)] = i
            if not flying:
                break
            (ready,), _ = ray.wait(list(flying), num_returns=1)
            i = flying.pop(ready)
            try:
                result = ray.get(ready)
            except ray.exceptions.RayTaskError as error:
                raise _own(ray, error) from error
            except ray.exceptions.RayError as error:  # the worker's end, not the work's
                lost, trouble = lost + 1, error
                continue
            done += 1
            yield i, result
            del ready, result  # or the last one would stay while we wait for the next
        if lost:
            raise EngineError(
                f"workers died {DEATHS} times on each of {lost} chunks ({type(trouble).__name__}), "
                f"{len(chunks) - done} chunks are left; "
                "what is done is kept: start again with fewer workers or more memory to go on"
            ) from trouble
    finally:
        left = list(flying)
        for _ in range(CANCELLED_TIMES):  # a chunk that is just being started may miss its cancellation
            for unfinished in left:
                ray.cancel(unfinished, force=True)
            left = ray.wait(left, num_returns=len(left), timeout=1)[1] if left else []


def _own(ray: ModuleType, error: Any) -> BaseException:
    """What `work` raised, out of what Ray wraps it in; unless it was never reached."""
    cause = error.cause
    if isinstance(cause, ray.exceptions.RayError):
        why = str(cause).partition("\n")[0]
        return EngineError(f"workers cannot load the work ({why}); install this version of wtawp on every machine")
    return cause if isinstance(cause, BaseException) else error


@contextmanager
def _connected(ray: ModuleType, workers: int | None, address: str) -> Iterator[bool]:
    """Whether Ray is ours. What was connected before stays; a cluster we join is left, our own is ended."""
    if ray.is_initialized():
        yield False
        return
    is_ours = address == "local"
    try:
        if is_ours:  # and quiet: at "warning", every start would tell that access is by a token
            quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
            ray.init("local", num_cpus=workers, object_store_memory=STORE, **quiet)
        else:
            _knock(address)
            ray.init(address, log_to_driver=False, logging_level=logging.WARNING)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        where = "start Ray here" if is_ours else f"join the Ray cluster at {address}"
        hint = "" if is_ours else "; if it runs and asks for a token, set RAY_AUTH_MODE=token"
        raise EngineError(f"cannot {where}: {error}{hint}") from error
    try:
        yield is_ours
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()


def _room(ray: ModuleType, gpus: float) -> int:
    """How many chunks the cluster holds at once; each needs its CPU and GPUs on one machine."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return sum(int(min(n.get("CPU", 0), n.get("GPU", 0) / gpus if gpus else float("inf"))) for n in nodes)


def _no_room(ray: ModuleType, gpus: float) -> str:
    found = ray.cluster_resources()
    return (
        f"no machine of the Ray cluster has 1 CPU and {gpus:g} GPUs for a chunk, all together have "
        f"{found.get('CPU', 0):g} CPUs and {found.get('GPU', 0):g} GPUs; ask for fewer, or train on the CPU"
    )


def _ray() -> ModuleType:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Else Ray tries for ever what does not fit into memory. Both are read while Ray is loaded.
    os.environ.setdefault("RAY_task_oom_retries", str(DEATHS - 1))
    try:
        import ray
    except ImportError as error:
        raise EngineError(f"a cluster needs Ray ({error}); pip install 'ray>=2.40', or wtawp[cluster]") from error
    return ray
