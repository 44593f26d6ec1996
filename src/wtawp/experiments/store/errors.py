"""The error of a store, and SQLite's errors explained: what happened to the file, and what to do about it."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from wtawp.base import WtawpError

LOCK_TIMEOUT = 60.0  # seconds that SQLite waits until another process releases the file
WAY_OUT = (
    "`wtawp results export FILE --salvage` writes the records that can still be read to a file for `wtawp results"
    " import`; or replace the store by a copy"
)
_EXPLANATIONS = {
    sqlite3.SQLITE_READONLY: "it may only be read here; get permission to write it, or choose another store",
    sqlite3.SQLITE_FULL: "the disk is full; make room, then repeat the command",
    sqlite3.SQLITE_IOERR: "the disk cannot be read or written; check that it is mounted and has room, then repeat the"
    " command",
    sqlite3.SQLITE_BUSY: f"another process has kept it locked for {LOCK_TIMEOUT:.0f} s; repeat the command when that"
    " process has ended",
    sqlite3.SQLITE_NOTADB: "it is not a store of results; choose another file",
    sqlite3.SQLITE_CORRUPT: f"it is damaged; {WAY_OUT}",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check that it is a file and that you may read it; its folder must be"
    " writable if the store is new or was left by a process that was killed",
}


class StoreError(WtawpError):
    """Raised if a store, or a file of exported records, cannot be opened, read or written."""


class UnreadableRecordWarning(UserWarning):
    """Warns that records of a store are damaged or cannot be right, and were left out of what was read."""


def error_code(error: sqlite3.Error) -> int | None:
    """The primary code of an error that SQLite reports; None for a misuse of the Python interface.

    Args:
        error: The error.

    Returns:
        One of the `SQLITE_...` constants of the module `sqlite3`, without SQLite's extension of it.
    """
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


@contextmanager
def explain_sqlite_errors(path: Path, action: Literal["open", "read", "write"]) -> Iterator[None]:
    """Turn SQLite's errors into a StoreError that says what to do.

    Errors that are not about the file, such as using a store that was closed, pass unchanged.

    Args:
        path: The file of the store, for the message.
        action: What is done inside the context. A failed "write" has been rolled back, which the message says.

    Returns:
        A context manager.

    Raises:
        StoreError: If SQLite reports an error.
    """
    try:
        yield
    except UnicodeDecodeError as error:  # by `sqlite3`, from a message that quotes damaged names
        raise StoreError(f"cannot {action} {path}: {_EXPLANATIONS[sqlite3.SQLITE_CORRUPT]}") from error
    except sqlite3.Error as error:
        if (code := error_code(error)) is None:
            raise
        explanation = _EXPLANATIONS.get(code, "see what SQLite says")
        was_rolled_back = action == "write" and code != sqlite3.SQLITE_CORRUPT
        unchanged = " Nothing of it was written; what was there before still is." if was_rolled_back else ""
        raise StoreError(f"cannot {action} {path}: {explanation} (SQLite says: {error}).{unchanged}") from error
