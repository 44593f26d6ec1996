"""Check stores and files of records to the end, where reading stops at the first error, and save what is left of them.

A record is unchecked if it has no checksum, as those from before there were checksums: it can be right, and nobody
would notice that a number changed.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wtawp.experiments.spec import Record, RecordError
from wtawp.experiments.spec.record import matches_checksum
from wtawp.experiments.store.connection import connect, connect_to_read, is_store, structural_problems
from wtawp.experiments.store.database import Store
from wtawp.experiments.store.errors import StoreError, explain_sqlite_errors
from wtawp.experiments.store.json_lines import read_lines, read_record, write_lines

MOST_PROBLEMS = 100  # of the structure of a store that are listed
_SQLITE = b"SQLite format 3\0"  # the first bytes of every database


@dataclass(frozen=True, kw_only=True)
class FileCheck:
    """What a store or a file of records holds.

    Attributes:
        path: The file.
        done: The number of readable records of runs that succeeded.
        failed: The number of readable records of runs that failed.
        unchecked: How many of both have no checksum.
        problems: What is wrong with the file and with each record that cannot be read.
    """

    path: str
    done: int
    failed: int
    unchecked: int
    problems: tuple[str, ...]


def check_file(path: Path) -> FileCheck:
    """Check a store, or a file of JSON lines, and all records in it.

    Args:
        path: The file; a store is recognised by its first bytes.

    Returns:
        What it holds, and all that is wrong with it.

    Raises:
        StoreError: If there is no such file, or no file of either kind.
    """
    try:
        with path.open("rb") as file:
            is_database = file.read(len(_SQLITE)) == _SQLITE
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error}") from error
    return _check_store(path) if is_database else _check_lines(path)


def first_problem(path: Path) -> str | None:
    """Open a store for reading and read one record; the file is not changed, and the rest of it is not read.

    Args:
        path: The store, which must be there.

    Returns:
        What is wrong; None if the record can be read, or if there is none yet.
    """
    try:
        with explain_sqlite_errors(path, "read"), closing(connect_to_read(path.absolute())) as db:
            if is_store(db, path):
                for (line,) in db.execute("SELECT content FROM records LIMIT 1"):
                    read_record(line)
    except StoreError as error:
        return str(error)
    except (RecordError, TypeError) as error:
        return f"{path} holds a record that cannot be read: {error}"
    return None


def salvage(path: Path, file: Path) -> tuple[int, int]:
    """Write the records of a damaged store that can still be read to a file of JSON lines; nothing is deleted.

    The table is read from its first row and from its last, as far as SQLite gets; indexes are not used.

    Args:
        path: The store.
        file: The file, which is replaced atomically; it is compressed if its name ends in .gz.

    Returns:
        The number of written records, and the number of rows that hold no readable record. Rows that SQLite no longer
        finds are not counted.

    Raises:
        StoreError: If the store cannot be opened at all, or the file cannot be written.
    """
    path = path.absolute()
    if not path.is_file():
        raise StoreError(f"there is no store of results at {path}")
    rows: dict[int, object] = {}
    with explain_sqlite_errors(path, "open"), closing(connect(path)) as db:
        query = "SELECT rowid, content FROM records NOT INDEXED ORDER BY rowid"
        for direction in ("ASC", "DESC"):
            rows |= _rows_before_damage(db, f"{query} {direction}")
    records = {number: record for number, line in sorted(rows.items()) if (record := _record_or_none(line)) is not None}
    distinct = {(r.key, r.device, r.versions.get("torch")): r for r in records.values()}  # damage can repeat rows
    count = write_lines((record.to_json() for record in distinct.values()), file, store=path)
    return count, len(rows) - len(records)


def _check_store(path: Path) -> FileCheck:
    """Check the structure of a store and, if that is intact, every record."""
    try:
        with explain_sqlite_errors(path, "read"), closing(connect(path.absolute())) as db:
            is_store(db, path)
            problems = tuple(structural_problems(db, most=MOST_PROBLEMS))
        if problems:
            return FileCheck(path=str(path), done=0, failed=0, unchecked=0, problems=problems)
        with Store(path, create=False) as store:
            return _count(path, ((f"record {row.key!a}", row.line, row.record) for row in store.rows()))
    except StoreError as error:
        return FileCheck(path=str(path), done=0, failed=0, unchecked=0, problems=(str(error),))


def _check_lines(path: Path) -> FileCheck:
    """Check every line of a file."""

    def lines() -> Iterator[tuple[str, str, Record | RecordError]]:
        for number, line in enumerate(read_lines(path), start=1):
            try:
                text = line.decode()
                yield f"line {number}", text, read_record(text)
            except (RecordError, UnicodeDecodeError) as error:
                yield f"line {number}", "", RecordError(str(error))

    return _count(path, lines())


def _count(path: Path, rows: Iterator[tuple[str, str, Record | RecordError]]) -> FileCheck:
    """Count records, each given with where it is, its text, and itself or why it cannot be read."""
    counts: dict[Any, int] = {}
    problems = []
    try:
        for where, line, record in rows:
            if isinstance(record, RecordError):
                problems.append(f"{where}: {record}")
                continue
            counts[record.status] = counts.get(record.status, 0) + 1
            counts["unchecked"] = counts.get("unchecked", 0) + (matches_checksum(line) is None)
    except StoreError as error:  # the file ends here
        problems.append(str(error))
    numbers = {name: counts.get(name, 0) for name in ("done", "failed", "unchecked")}
    return FileCheck(path=str(path), **numbers, problems=tuple(problems))


def _rows_before_damage(db: sqlite3.Connection, query: str) -> dict[int, object]:
    """The rows of a query by their numbers, as far as SQLite can read them."""
    rows: dict[int, object] = {}
    with suppress(sqlite3.DatabaseError):  # of a damaged page; that rows may be lost is what the command says
        rows.update(db.execute(query))
    return rows


def _record_or_none(line: object) -> Record | None:
    """The record in a row; None if it is unreadable."""
    try:
        return read_record(line) if isinstance(line, str) else None
    except RecordError:
        return None
