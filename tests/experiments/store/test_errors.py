import sqlite3
from pathlib import Path
from typing import Literal

import pytest

from wtawp.experiments.store import StoreError
from wtawp.experiments.store.errors import error_code, explain_sqlite_errors

UNCHANGED = "what was there before still is"


def error_of(code: int | None) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("SQLite's words")
    if code is not None:
        error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("action", "code", "explanation", "is_unchanged"),
    [
        ("open", sqlite3.SQLITE_NOTADB, "it is not a store of results", False),
        ("read", sqlite3.SQLITE_CORRUPT, "it is damaged", False),
        ("write", sqlite3.SQLITE_FULL, "the disk is full", True),
        ("write", sqlite3.SQLITE_IOERR_WRITE, "the disk cannot be read or written", True),  # an extended code
        ("write", sqlite3.SQLITE_CORRUPT, "it is damaged", False),  # nobody knows what is left
        ("write", sqlite3.SQLITE_MISUSE, "see what SQLite says", True),
    ],
)
def test_an_error_says_what_to_do_and_what_is_left(
    action: Literal["open", "read", "write"], code: int, explanation: str, is_unchanged: bool
) -> None:
    with pytest.raises(StoreError) as caught, explain_sqlite_errors(Path("results.sqlite"), action):
        raise error_of(code)
    message = str(caught.value)
    assert message.startswith(f"cannot {action} results.sqlite: {explanation}")
    assert "(SQLite says: SQLite's words)" in message
    assert (UNCHANGED in message) == is_unchanged


def test_an_error_that_is_not_about_the_file_passes_unchanged() -> None:
    closed = error_of(None)
    assert error_code(closed) is None
    assert error_code(error_of(sqlite3.SQLITE_IOERR_WRITE)) == sqlite3.SQLITE_IOERR
    with pytest.raises(sqlite3.OperationalError) as caught, explain_sqlite_errors(Path("results.sqlite"), "read"):
        raise closed
    assert caught.value is closed
