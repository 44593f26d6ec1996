"""Worker processes of the local engine: each works on one chunk at a time, can be killed alone, ends with its parent.

A pool that shares its queues between workers cannot say which chunk killed a worker, nor kill one that hangs without
the others. Here every worker has a pipe of its own, and the process that started it reads all pipes in one thread.
"""

import ctypes
import os
import pickle
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing.connection import Connection
from typing import Any

from joblib.externals.loky.backend import get_context
from joblib.externals.loky.backend.reduction import dumps  # by cloudpickle: also what the user's script defines
from joblib.externals.loky.backend.utils import kill_process_tree

from wtawp.base import fast_imports, progress_receiver

PARENT_CHECK_INTERVAL = 1.0  # seconds
_PR_SET_PDEATHSIG = 1  # from Linux' sys/prctl.h
_THREADS = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS", "NUMEXPR_NUM_THREADS",
)  # fmt: skip


class WorkerDiedError(Exception):
    """Raised when an answer is expected from a worker that has died; the text says how, as the end of a sentence."""


@dataclass(frozen=True)
class WorkShare:
    """What a worker sends while it works on a chunk.

    Attributes:
        done: The share of the chunk that is done, as the work reported it.
    """

    done: float


class Worker:
    """A process that works on chunks, one at a time.

    Attributes:
        connection: The pipe from the worker; it can be read when an answer has come, or when the worker has died.
        is_ready: Whether the worker has loaded the work.
        chunk: The index of the chunk that it works on; None if it has none.
    """

    def __init__(self, work: Callable[[Any], Any]) -> None:
        """Start the process and send it the work.

        Args:
            work: The work on one chunk.

        Raises:
            OSError: If the system starts no more processes.
        """
        context = get_context("loky")  # unlike "spawn", it does not run the user's script again in the worker
        self.connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, os.getpid()), env=dict.fromkeys(_THREADS, "1"), name="wtawp worker"
        )
        self._process.start()
        theirs.close()
        self.is_ready = False
        self.chunk: int | None = None
        self._began = 0.0
        self._send(work)

    def begin(self, i: int, chunk: object) -> None:
        """Send a chunk to the worker, whose time starts now.

        Args:
            i: The index of the chunk.
            chunk: The chunk.
        """
        self.chunk, self._began = i, time.monotonic()
        self._send(chunk)

    def has_news(self) -> bool:
        """Whether the worker has answered or died.

        Returns:
            Whether `receive` returns or raises without waiting.
        """
        return self.connection.poll() or not self._process.is_alive()

    def receive(self) -> Any:
        """Read the answer of the worker: that it is ready, how far it is, or the result of its chunk.

        Returns:
            The result; None from a worker that has become ready; a `WorkShare` from one that is still working.

        Raises:
            WorkerDiedError: If the worker died.
            Exception: What the work raised, or what prevented loading it.
        """
        try:
            if not self.connection.poll():  # it is dead, but a process that it started holds its end of the pipe
                raise EOFError
            is_result, answer = pickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            raise WorkerDiedError(self.kill()) from None
        if not is_result:
            raise answer
        if not isinstance(answer, WorkShare):
            self.is_ready, self.chunk = True, None
        return answer

    @property
    def seconds(self) -> float:
        """The time since the worker was sent its chunk."""
        return time.monotonic() - self._began

    def kill(self, patience: float = 0.0) -> str:
        """Kill the process and what it has started, unless it is dead.

        Args:
            patience: Seconds that the process has to end by itself, as it does once its connection is closed.

        Returns:
            How the process ended, as the end of a sentence: "was killed by SIGSEGV" or "exited with status 3".
        """
        if patience > 0:
            self.connection.close()
            self._process.join(patience)
        if self._process.exitcode is None:
            _kill_tree(self._process)
        self.connection.close()
        return describe_exit(self._process.exitcode or 0)

    def _send(self, content: object) -> None:
        """Send an object; a worker that has died is noticed when its answer is read."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(dumps(content))


def describe_exit(code: int) -> str:
    """Describe how a process ended.

    Args:
        code: Its exit code; minus the number of the signal for a process that a signal killed.

    Returns:
        The end of a sentence about the process.

    Example:
        >>> describe_exit(-9), describe_exit(3)
        ('was killed by SIGKILL (out of memory? use fewer workers)', 'exited with status 3')
    """
    if code >= 0:
        return f"exited with status {code}"
    names = {int(known): known.name for known in signal.Signals}
    name = names.get(-code, f"signal {-code}")
    return f"was killed by {name}{' (out of memory? use fewer workers)' * (name == 'SIGKILL')}"


def _kill_tree(process: Any) -> None:
    """Kill a process and, where the tools for that are there, what it has started."""
    if sys.platform == "win32" or find_spec("psutil") or shutil.which("pgrep"):
        kill_process_tree(process)
    else:
        os.kill(process.pid, signal.SIGKILL)
        process.join()


def end_with_parent(parent: int) -> None:
    """Kill this process as soon as its parent has ended, however that ended.

    Linux does it, also while this process is busy in compiled code. Elsewhere a thread looks once a second.

    Args:
        parent: The process id of the parent.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.name == "posix":  # elsewhere a process keeps the number of a dead parent, and ends when its pipe is closed
        threading.Thread(target=_exit_after, args=(parent,), daemon=True).start()


def _exit_after(parent: int) -> None:
    """Wait until another process is the parent of this one, then exit at once."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_INTERVAL)
    os._exit(1)


def _serve(connection: Connection, parent: int) -> None:
    """Load the work, then work on chunks until the connection is closed. This runs in the worker process."""
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent decides what happens
    with suppress(EOFError, ConnectionError):  # the parent closed the connection, or is dead
        content = connection.recv_bytes()
        work: list[Callable[[Any], Any]] = []
        with fast_imports():
            loaded = _answer(lambda: work.append(pickle.loads(content)))
        connection.send_bytes(loaded)
        while work:
            chunk = connection.recv_bytes()
            with progress_receiver(lambda share: connection.send_bytes(dumps((True, WorkShare(share))))):
                result = _answer(lambda chunk=chunk: work[0](pickle.loads(chunk)))  # type: ignore[misc]
            connection.send_bytes(result)


def _answer(call: Callable[[], object]) -> bytes:
    """Make an answer for the parent: whether the call succeeded, and its result or what it raised."""
    try:
        return bytes(dumps((True, call())))
    except Exception as error:
        error.add_note(f"It was raised in a worker process:\n{traceback.format_exc()}")
        try:
            return bytes(dumps((False, error)))
        except Exception:  # exceptions may hold anything, also what cannot be sent
            return bytes(dumps((False, RuntimeError(traceback.format_exc()))))
