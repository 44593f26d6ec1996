"""Files that are written atomically, and the folder for results and downloads."""

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from wtawp.base.errors import OutputError


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
