"""Progress of long computations, reported to whoever waits for it without a callback in every signature between."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_PROGRESS: ContextVar[Callable[[float], None] | None] = ContextVar("progress", default=None)


def report_progress(share: float) -> None:
    """Say how much of a long computation is done, to whoever waits for it; without one this does next to nothing.

    Loops call this in each round. It saves passing a callback through every function between a loop and a command.

    Args:
        share: The share of the computation that is done, from 0 to 1.

    Example:
        >>> with progress_receiver(print, interval=0.0):
        ...     report_progress(0.5)
        0.5
    """
    receive = _PROGRESS.get()
    if receive is not None:
        receive(share)


@contextmanager
def progress_receiver(receive: Callable[[float], None], *, interval: float = 0.25) -> Iterator[None]:
    """Receive what `report_progress` is called with inside of the context, in this thread.

    Args:
        receive: Called with the share that is done.
        interval: Seconds in which it is called once at most, so that loops with short rounds are not slowed down.

    Returns:
        A context manager.
    """
    last = -interval

    def receive_now_and_then(share: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= interval:
            last = now
            receive(share)

    token = _PROGRESS.set(receive_now_and_then)
    try:
        yield
    finally:
        _PROGRESS.reset(token)


@contextmanager
def part_of_progress(start: float, end: float) -> Iterator[None]:
    """Let a computation inside of the context report its own share, as a part of a longer computation.

    Args:
        start: The share of the longer computation that is done before this part.
        end: The share that is done after it.

    Returns:
        A context manager. It reports `end` at the end, unless an exception is raised.

    Example:
        >>> with progress_receiver(print, interval=0.0), part_of_progress(0.5, 1.0):
        ...     report_progress(0.5)
        0.75
        1.0
    """
    receive = _PROGRESS.get()
    if receive is None:
        yield
        return
    token = _PROGRESS.set(lambda share: receive(start + share * (end - start)))
    try:
        yield
    finally:
        _PROGRESS.reset(token)
    receive(end)
