"""Connections to the file of a store, which may be damaged, or made by somebody else.

Nothing in the file is trusted: its tables must be exactly those that wtawp creates, so that no view, trigger or default
of a stranger is ever evaluated, and SQLite checks the structure of all pages when a store is opened (0.2 s for 50,000
records).
"""

import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wtawp.experiments.store.errors import LOCK_TIMEOUT, WAY_OUT, StoreError, error_code

SCHEMA = 2  # in `PRAGMA user_version`; since 2, records have checksums, which earlier versions of wtawp cannot read
APPLICATION = 0x77746177  # in `PRAGMA application_id`: distinguishes our files from databases of other programs
ORDER = "setting, split, init, device, torch, key"
_TABLE = """CREATE TABLE records (
    key TEXT NOT NULL, device TEXT NOT NULL, torch TEXT NOT NULL, status TEXT NOT NULL, split INTEGER NOT NULL,
    init INTEGER NOT NULL, setting TEXT NOT NULL, created TEXT NOT NULL, test REAL, content TEXT NOT NULL,
    PRIMARY KEY (key, device, torch))"""  # `content` is the record; `test` is its accuracy, so that lists parse no JSON
_INDEX = f"CREATE INDEX in_order ON records ({ORDER})"
_TABLES = {
    ("table", "records", "records", _TABLE),
    ("index", "sqlite_autoindex_records_1", "records", None),  # of the primary key
    ("index", "in_order", "records", _INDEX),
}


def connect(path: Path) -> sqlite3.Connection:
    """Connect for reading and writing, or else for reading only, if no process can be writing the file.

    Args:
        path: The absolute path of the file.

    Returns:
        A connection on which transactions are begun explicitly.

    Raises:
        sqlite3.Error: If the file cannot be opened, or is no database.
    """
    uri = path.as_uri()  # escapes characters that begin options of the URI, and makes ":memory:" a file
    try:
        return _connect(f"{uri}?mode=rwc")
    except sqlite3.OperationalError as error:
        log = path.with_name(path.name + "-wal")
        is_complete = path.is_file() and not (log.exists() and log.stat().st_size)
        if not is_complete or error_code(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise
    # In WAL mode SQLite writes files beside the store even to read it, unless it is called immutable; that is what
    # a read-only folder needs. Not if there is a log: the records in it would be left out silently.
    return _connect(f"{uri}?immutable=1")


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Connect for reading only, and leave no file beside the store, as SQLite does where it may write.

    Args:
        path: The absolute path of the file.

    Returns:
        A connection.

    Raises:
        sqlite3.Error: If the file cannot be opened, or is no database.
    """
    log = path.with_name(path.name + "-wal")
    is_complete = not (log.exists() and log.stat().st_size)
    return _connect(f"{path.as_uri()}?{'immutable=1' if is_complete else 'mode=ro'}")


def _connect(uri: str) -> sqlite3.Connection:
    """Open a database and read from it, since SQLite opens no file before the first query.

    Transactions are begun explicitly, so that `sqlite3` must begin none.
    """
    db = sqlite3.connect(uri, uri=True, timeout=LOCK_TIMEOUT, isolation_level=None)
    db.text_factory = lambda content: content.decode(errors="surrogateescape")  # damage must not stop a query
    try:
        if sys.version_info >= (3, 12):
            db.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA cell_size_check = ON")
        db.execute("PRAGMA synchronous = FULL")  # cheap, beside minutes of training
        db.execute("SELECT count(*) FROM sqlite_master")
    except BaseException:
        db.close()
        raise
    return db


def prepare(db: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that is not an intact store before anything is written, then create the table if there is none.

    Args:
        db: The connection.
        path: The file, for messages.

    Raises:
        StoreError: If the file is damaged, or belongs to another program or to a newer version of wtawp.
        sqlite3.Error: If SQLite cannot read or write the file.
    """
    if is_store(db, path):
        if problems := structural_problems(db, most=1):
            raise StoreError(f"{path} is damaged; {WAY_OUT} (SQLite says: {problems[0]})")
        return
    _switch_to_wal(db)
    with transaction(db):
        if not is_store(db, path):  # another process may have been faster
            db.execute(_TABLE)
            db.execute(_INDEX)
            db.execute(f"PRAGMA application_id = {APPLICATION}")


def is_store(db: sqlite3.Connection, path: Path) -> bool:
    """Whether a file is a store, with exactly the tables that wtawp creates.

    Args:
        db: The connection.
        path: The file, for messages.

    Returns:
        False if the file is empty.

    Raises:
        StoreError: If the file is anything else than a store or empty.
    """
    tables = db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
    application, version = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    if not tables:  # read first: if another process has just created the table, it has also set the numbers
        return False
    if application != APPLICATION:
        raise StoreError(f"{path} is a database of another program; choose another file")
    if version > SCHEMA:
        raise StoreError(
            f"{path} was written by a newer wtawp (its schema is {version}, this one knows {SCHEMA});"
            " upgrade wtawp or choose another store"
        )
    if version < 1 or set(tables) != _TABLES:
        raise StoreError(f"{path} has other tables than wtawp creates: it was damaged, or changed; {WAY_OUT}")
    return True


def structural_problems(db: sqlite3.Connection, *, most: int) -> list[str]:
    """Let SQLite check the structure of all pages, and the table against its indexes; values are not checked.

    Args:
        db: The connection.
        most: The largest number of problems to list.

    Returns:
        What SQLite says of each problem, on one line; empty if there is none.

    Raises:
        sqlite3.Error: If the file is so damaged that it cannot be checked.
    """
    lines = [" ".join(str(line).split()) for (line,) in db.execute(f"PRAGMA integrity_check({most})")]
    return [] if lines == ["ok"] else lines


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Write everything that is done inside, or nothing.

    Args:
        db: The connection.

    Returns:
        A context manager.

    Raises:
        sqlite3.Error: If the file cannot be written, also if nothing is done inside.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        # SQLite accepts an empty transaction on a file that it cannot write. This is a write, so that a sweep notices
        # before it trains; and once this version has written records, earlier ones must not.
        db.execute(f"PRAGMA user_version = {SCHEMA}")
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # if the disk is full, SQLite has rolled back by itself
            db.execute("ROLLBACK")
        raise


def _switch_to_wal(db: sqlite3.Connection) -> None:
    """Let processes read while one writes; SQLite itself does not wait if two processes switch at the same time."""
    deadline = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
