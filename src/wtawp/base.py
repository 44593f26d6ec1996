"""What every package may use: errors and warnings, random generators derived from names, files, lazy imports.

This module does not import torch before a function needs it, so that reading options, plans and results stays fast.
"""

import errno
import gc
import hashlib
import operator
import os
import stat
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    import torch

_PROGRESS: ContextVar[Callable[[float], None] | None] = ContextVar("progress", default=None)


class WtawpError(Exception):
    """The base class of all errors that this package defines."""


class NotPerturbableError(WtawpError, ValueError):
    """Raised for a model whose weights cannot be perturbed, because they are distributions."""


class DataError(WtawpError, ValueError):
    """Raised for a graph, a split, or the name of a data set that is not valid."""


class AttackError(WtawpError):
    """Raised if a model cannot be attacked as requested: it ignores the graph, or its output is not finite."""


class NoFlipError(AttackError):
    """Raised if an attack looked at all flips that it may make, and none is allowed: the target withstands it."""


class CertificateError(WtawpError):
    """Raised if a model cannot be certified: it does not return a class for every node, or votes do not match."""


class AnalysisError(WtawpError):
    """Raised if a model cannot be analyzed: its loss is not finite, or not differentiable with respect to the graph."""


class CheckpointError(WtawpError):
    """Raised if a training cannot be saved in a file or continued from it. The file is left as it is."""


class OutputError(WtawpError, OSError):
    """Raised if a file cannot be written. It is left as it was, or is not there."""


class DownloadError(WtawpError):
    """Raised if a data file is neither stored locally nor available for download."""


class DamagedCacheWarning(UserWarning):
    """Warns that a file of intermediate results is damaged, and that they are computed again."""


class UncountedVotesWarning(UserWarning):
    """Warns that no vote under noise is confident enough to count, so that nothing is predicted."""


class UnusedDataWarning(UserWarning):
    """Warns that a file holds something about a graph that is not used, such as the weights of its edges."""


class VanishingGradientWarning(UserWarning):
    """Warns that the gradient at the perturbed weights vanishes although the natural one does not: rho is too large."""


def find_stack_level() -> int:
    """Find the `stacklevel` with which `warnings.warn` names the code that called this package.

    Returns:
        The number of frames between the caller and the nearest one outside of `wtawp`, counted as `warnings` does.

    Example:
        >>> find_stack_level() >= 1
        True
    """
    level, frame = 1, sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] == "wtawp" and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    return level


def home() -> Path:
    """Find the folder for results and downloads: `$WTAWP_HOME`, or else the platform's folder for user data.

    Returns:
        The folder, which may not exist yet.
    """
    if chosen := os.environ.get("WTAWP_HOME"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        parent = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        parent = Path.home() / "Library" / "Application Support"
    else:
        parent = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return parent / "wtawp"


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Write a file atomically: it has the complete new content or is left as it was, also if the machine fails.

    What is no ordinary file, such as /dev/stdout, cannot be replaced and is written as it is.

    Args:
        path: The file, in a folder that exists. The target of a link is replaced, not the link, and keeps its
            permissions.

    Yields:
        A new file for the content. An exception inside the context discards it.

    Raises:
        OutputError: If the file cannot be written.
    """
    try:
        with _replacement_of(path.resolve()) as file:
            yield file
    except OSError as error:
        if error.filename is not None and Path(os.fsdecode(error.filename)).resolve().parent != path.resolve().parent:
            raise  # of another file, which the caller reads meanwhile
        reason = error.strerror or str(error)
        raise OutputError(f"cannot write {path}: {reason}; make room there or choose another file") from error


@contextmanager
def _replacement_of(path: Path) -> Iterator[BinaryIO]:
    """A file that replaces another one when it is complete and on the disk."""
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    part = path.with_name(f".{path.name}.{os.getpid()}.part")  # an incomplete file never has the complete one's name
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # otherwise a power failure can leave an empty file under the new name
        if path.exists():
            os.chmod(part, stat.S_IMODE(path.stat().st_mode))
        os.replace(part, path)
    finally:
        with suppress(OSError):  # a disk that fails must not hide its first error
            part.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk, on systems that can."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):  # file systems without this
            raise
    finally:
        os.close(descriptor)


def write_atomic(path: Path, content: bytes) -> None:
    """Write content to a file atomically, see `atomic_file`.

    Args:
        path: The file, in a folder that exists.
        content: The new content of the file.

    Raises:
        OutputError: If the file cannot be written; it is left as it was.
    """
    with atomic_file(path) as file:
        file.write(content)


def shortened(text: str, length: int = 160) -> str:
    """Shorten a text of unknown length for a message.

    Args:
        text: Any text, for example from a file.
        length: The largest length that is shown whole.

    Returns:
        The text on one line, without its middle if it is long.

    Example:
        >>> shortened("a long text", 6)
        'a l ... ext'
    """
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length // 2]} ... {line[-(length // 2) :]}"


def matching_name(name: str, known: Collection[str]) -> str | None:
    """Find the spelling under which a name is registered; upper and lower case do not matter.

    Args:
        name: A name as the user wrote it.
        known: The registered names.

    Returns:
        The registered name that equals it but for case; None if there is none.

    Example:
        >>> matching_name("Cora", ["cora", "planetoid-cora"]), matching_name("core", ["cora"])
        ('cora', None)
    """
    if name in known:
        return name
    return {each.casefold(): each for each in known}.get(str(name).casefold())


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Suggest the registered name that is most similar to one that is not registered.

    Args:
        name: A name as the user wrote it.
        known: The registered names.

    Returns:
        A question for the end of a message, or nothing if no name is similar.

    Example:
        >>> did_you_mean("coar", ["cora", "wine"])
        '; did you mean cora?'
    """
    written, spelled = str(name).casefold(), {each.casefold(): each for each in known}
    nearest = get_close_matches(written, spelled, n=3)
    nearest.sort(key=lambda each: sorted(each) != sorted(written))  # first of all, one with two letters exchanged
    return f"; did you mean {spelled[nearest[0]]}?" if nearest else ""


def checked_seed(seed: object, name: str = "seed") -> int:
    """Refuse what is not a whole number as a seed, and turn whole numbers of NumPy and torch into Python's.

    Numbers are derived from the text of a seed, so that 1.0 and True would silently give others than 1.

    Args:
        seed: What a user has passed.
        name: The name of the argument, for the message.

    Returns:
        The seed as an `int`.

    Raises:
        ValueError: If it is something else, such as a float, a boolean or None.

    Example:
        >>> import numpy as np
        >>> checked_seed(np.int64(3))
        3
    """
    is_boolean = isinstance(seed, bool) or str(getattr(seed, "dtype", "")) in ("bool", "torch.bool")
    try:
        if not is_boolean:
            return operator.index(seed)  # type: ignore[arg-type]
    except TypeError:
        pass
    raise ValueError(f"{name} must be a whole number, such as 0, got {shortened(repr(seed), 60)}")


def seed_of(*names: str | int) -> int:
    """Derive a seed from names.

    Args:
        *names: Words and numbers that together identify the use of the random numbers.

    Returns:
        A number of 56 bits, which depends on the names and their order alone.

    Raises:
        ValueError: If a name is neither a word nor a whole number.

    Example:
        >>> seed_of("split", "cora", 3)
        15076007366361354
    """
    digest = hashlib.sha256("/".join(map(_word, names)).encode()).digest()
    return int.from_bytes(digest[:7], "big")


def _word(name: str | int) -> str:
    """One of the names that random numbers are derived from, as text."""
    return name if isinstance(name, str) else str(checked_seed(name, "each name that is not a word"))


def rng(*names: str | int, device: "str | torch.device" = "cpu") -> "torch.Generator":
    """Make a random generator with a seed derived from names, so that adding a run never changes another.

    Args:
        *names: Words and numbers that together identify the use of the random numbers.
        device: The device of the tensors that will be drawn.

    Returns:
        A new generator.

    Raises:
        ValueError: If a name is neither a word nor a whole number.

    Example:
        >>> import torch
        >>> bool(torch.rand(1, generator=rng("split", "cora", 3)) == torch.rand(1, generator=rng("split", "cora", 3)))
        True
    """
    import torch

    return torch.Generator(device).manual_seed(seed_of(*names))


@contextmanager
def isolated_rng(*names: str | int) -> Iterator[None]:
    """Seed torch's global random state from names, and restore it at the end as if nothing had been drawn.

    This is for modules that draw from the global state and accept no generator, such as `F.dropout`.

    Args:
        *names: Words and numbers that together identify the use of the random numbers.

    Returns:
        A context manager, for the CPU and all CUDA devices.
    """
    import torch

    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed_of(*names))
        yield


def resolve(reference: str) -> object:
    """Import what a reference of the form "package.module:name" names.

    Registries hold such references, so that reading a registry imports nothing that computes.

    Args:
        reference: Module and attribute, separated by a colon.

    Returns:
        The attribute of the module.

    Raises:
        ImportError: If the module does not exist, or has no such attribute.

    Example:
        >>> resolve("math:sqrt")(4.0)
        2.0
    """
    module_name, _, name = reference.partition(":")
    module = import_module(module_name)
    if not hasattr(module, name):
        raise ImportError(f"module {module_name} has no attribute {name!r}")
    attribute: object = getattr(module, name)
    return attribute


def is_reference(text: object) -> bool:
    """Whether something has the form of a reference, "package.module:name".

    Args:
        text: Any value.

    Returns:
        True for a text of dotted identifiers, a colon and an identifier.

    Example:
        >>> is_reference("package.module:Class"), is_reference("C:/graphs/mine.npz")
        (True, False)
    """
    if not isinstance(text, str):
        return False
    module, _, name = text.partition(":")
    return name.isidentifier() and all(part.isidentifier() for part in module.split("."))


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


@contextmanager
def fast_imports() -> Iterator[None]:
    """Import large libraries inside of this context faster, in a process that uses them until it ends.

    An import of torch creates hundreds of thousands of objects that live as long as the process. The garbage collector
    would examine them several times while they are created, and once more when the process ends. Inside of the context
    it is off, and afterwards it leaves alone all that is there. Together that is a third of the time of such an import.

    Returns:
        A context manager, for programs of one's own: in a process of somebody else, it would keep garbage for ever.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def lazy_exports(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Make a module-level `__getattr__` that imports each public name of a package when it is first used.

    Args:
        package: The package's `__name__`.
        homes: Each public name and the module of the package that defines it, as in {"GCN": "gcn"}.

    Returns:
        A function to assign to `__getattr__` in the package's `__init__`.

    Raises:
        AttributeError: By the returned function, for a name that is not in `homes`.

    Example:
        >>> __getattr__ = lazy_exports("wtawp.core", {"AwpConfig": "config"})
    """

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(homes)}")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)  # the next use finds it without coming here
        return value

    return get
