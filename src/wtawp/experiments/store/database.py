"""The store: records in one SQLite file, which stays consistent if a process is killed at any moment.

A record is identified by the key of its run, the kind of device and the version of torch. A measured result is never
changed: a repetition must give the same one, and only the record of a failed run is replaced by a later record.
"""

import json
import sqlite3
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from wtawp.base import home
from wtawp.experiments.spec import Record, RecordError
from wtawp.experiments.spec.record import first_difference
from wtawp.experiments.spec.record_checks import is_share, wrong_setting_fields
from wtawp.experiments.store.errors import (
    LOCK_TIMEOUT,
    StoreError,
    UnreadableRecordWarning,
    error_code,
    explain_sqlite_errors,
)
from wtawp.experiments.store.json_lines import load_lines, read_record, write_lines

SCHEMA = 1  # in `PRAGMA user_version`
APPLICATION = 0x77746177  # in `PRAGMA application_id`: distinguishes our files from databases of other programs
Status = Literal["done", "failed"]
_TABLE = """CREATE TABLE records (
    key TEXT NOT NULL, device TEXT NOT NULL, torch TEXT NOT NULL, status TEXT NOT NULL, split INTEGER NOT NULL,
    init INTEGER NOT NULL, setting TEXT NOT NULL, created TEXT NOT NULL, test REAL, content TEXT NOT NULL,
    PRIMARY KEY (key, device, torch))"""  # `content` is the record; `test` is its accuracy, so that lists parse no JSON
_ORDER = "setting, split, init, device, torch, key"
_IS_AMONG = "IN (SELECT value FROM json_each(?))"  # any number of values in one parameter


def default_path() -> Path:
    """The file of the store that is used if no other is chosen.

    Returns:
        `results.sqlite` in `$WTAWP_HOME`, or else in the platform's folder for user data; it may not exist yet.
    """
    return home() / "results.sqlite"


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The records of one setting on one kind of device, counted.

    Attributes:
        setting: The content of the setting, as plain data; text where it is no JSON.
        device: The kind of device, as in the records.
        done: The number of runs that succeeded.
        failed: The number of runs that failed.
        accuracy: The mean accuracy on the test nodes over the runs that succeeded; None if there is none.
        last: When the newest record was created.
        key: The key of the newest record.
        unreadable: The number of records, counted nowhere else, that cannot be right: their setting is none, their
            status is neither "done" nor "failed", or they are done without an accuracy between 0 and 1.
    """

    setting: Any
    device: str
    done: int
    failed: int
    accuracy: float | None
    last: str
    key: str
    unreadable: int = 0


class Store:
    """The records in an SQLite file; a context manager that closes it. Several processes may write at the same time.

    A file without permission to write is opened for reading.

    Args:
        path: The file; by default that of `default_path`.
        create: Whether a file that does not exist is created.

    Attributes:
        path: The absolute path of the file.

    Raises:
        StoreError: If the file cannot be opened, belongs to another program or to a newer version of wtawp, or does not
            exist and must not be created.
    """

    def __init__(self, path: Path | str | None = None, *, create: bool = True) -> None:
        self.path = (default_path() if path is None else Path(path)).absolute()
        try:
            if not create and not self.path.exists():
                raise StoreError(f"there is no store of results at {self.path}; importing records creates one")
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot reach the folder of {self.path}: {error}; choose another store") from error
        with explain_sqlite_errors(self.path, "open"), ExitStack() as on_error:
            self._db = on_error.enter_context(closing(self._connect()))
            self._prepare()
            on_error.pop_all()

    def _connect(self) -> sqlite3.Connection:
        """Connect for reading and writing, or else for reading only, if no process can be writing the file."""
        uri = self.path.as_uri()  # escapes characters that begin options of the URI, and makes ":memory:" a file
        try:
            return _connect(f"{uri}?mode=rwc")
        except sqlite3.OperationalError as error:
            log = self.path.with_name(self.path.name + "-wal")
            is_complete = self.path.is_file() and not (log.exists() and log.stat().st_size)
            if not is_complete or error_code(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                raise
        # In WAL mode SQLite writes files beside the store even to read it, unless it is called immutable; that is what
        # a read-only folder needs. Not if there is a log: the records in it would be left out silently.
        return _connect(f"{uri}?immutable=1")

    def _prepare(self) -> None:
        """Refuse a file that is not a store before anything is written, then create the table if there is none."""
        self._db.execute("PRAGMA synchronous = FULL")  # cheap, beside minutes of training
        if not self._is_initialised():
            self._switch_to_wal()
            with self._transaction():
                if not self._is_initialised():  # another process may have been faster
                    self._db.execute(_TABLE)
                    self._db.execute(f"CREATE INDEX in_order ON records ({_ORDER})")
                    self._db.execute(f"PRAGMA application_id = {APPLICATION}")
                    self._db.execute(f"PRAGMA user_version = {SCHEMA}")

    def _is_initialised(self) -> bool:
        """Whether the file is a store with its table; False if it is empty, and an error if it is anything else."""
        queries = ("SELECT count(*) FROM sqlite_master", "PRAGMA application_id", "PRAGMA user_version")
        tables, application, version = (self._db.execute(query).fetchone()[0] for query in queries)
        if not tables:  # read first: if another process has just created the table, it has also set the numbers
            return False
        if application != APPLICATION:
            raise StoreError(f"{self.path} is a database of another program; choose another file")
        if version > SCHEMA:
            raise StoreError(
                f"{self.path} was written by a newer wtawp (its schema is {version}, this one knows {SCHEMA});"
                " upgrade wtawp or choose another store"
            )
        return True

    def _switch_to_wal(self) -> None:
        """Let processes read while one writes; SQLite itself does not wait if two processes switch at the same time."""
        deadline = time.monotonic() + LOCK_TIMEOUT
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def close(self) -> None:
        """Close the file; closing twice does nothing."""
        self._db.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def add(self, records: Iterable[Record]) -> tuple[int, int]:
        """Add records: all of them or, after an error, none.

        The record of a failed run is replaced by one that succeeded, or that failed later.

        Args:
            records: The records, each with its version of torch.

        Returns:
            How many were new, and how many the store had already.

        Raises:
            RecordError: If a record contradicts the stored one of the same run, or has no version of torch.
            StoreError: If the file cannot be written.
        """
        with self._transaction():
            is_new = [self._insert(record) for record in records]
        return sum(is_new), len(is_new) - sum(is_new)

    def _insert(self, record: Record) -> bool:
        """Add one record inside a transaction; returns whether the store changed."""
        if not isinstance(torch := record.versions.get("torch"), str):
            raise RecordError(f"run {record.key} on {record.device} does not name its version of torch")
        identity, text = (record.key, record.device, torch), record.to_json()
        query = "SELECT content FROM records WHERE key = ? AND device = ? AND torch = ?"
        row = self._db.execute(query, identity).fetchone()
        if row and row[0] == text:
            return False
        stored = None if row is None else _record_or_none(row[0])
        if stored is not None:  # otherwise there is none, or an unreadable one, which is replaced
            difference = first_difference(stored, record)
            if difference is None or (stored.status, record.status) == ("done", "failed"):
                return False
            if stored.status == record.status == "failed" and record.created < stored.created:
                return False  # so the order of imports does not matter
            if stored.status == "done" and stored.versions.get("stack") != record.versions.get("stack"):
                return False  # stacks of other sizes round differently: both records are right, the first stays
            if stored.status == "done":
                raise RecordError(
                    f"run {record.key} on {record.device} with torch {torch} contradicts its record in {self.path}:"
                    f" {difference}; nothing of this batch was written"
                )
        values = (*identity, record.status, record.split, record.init, _text(record.setting), record.created,
                  (record.accuracy or {}).get("test"), text)  # fmt: skip
        self._db.execute(f"INSERT OR REPLACE INTO records VALUES ({', '.join('?' * len(values))})", values)
        return True

    def done(self, keys: Iterable[str], device: str, torch: str) -> set[str]:
        """Find the runs that succeeded and need not be trained again.

        Args:
            keys: Keys of runs, any number of them.
            device: The kind of device, as in the records.
            torch: The version of torch.

        Returns:
            The keys of the runs that succeeded on this kind of device with this version of torch.
        """
        where: dict[str, str | None]
        where = {f"key {_IS_AMONG}": _text(list(keys)), "device = ?": device, "torch = ?": torch, "status = ?": "done"}
        return {record.key for record in self._records(where)}

    def records(
        self, keys: Iterable[str] | None = None, status: Status | None = None, device: str | None = None
    ) -> list[Record]:
        """Read the records that meet all conditions.

        Args:
            keys: Keys of runs; None reads those of all runs.
            status: "done" or "failed"; None reads both.
            device: The kind of device, as in the records; None reads those of all devices.

        Returns:
            The records in the order of setting, split, initialisation, device and version of torch. Those that cannot
            be read are left out, with an UnreadableRecordWarning.
        """
        keys_json = None if keys is None else _text(list(keys))
        return self._records({f"key {_IS_AMONG}": keys_json, "status = ?": status, "device = ?": device})

    def find(self, prefix: str) -> list[Record]:
        """Read the records of one run, named by the beginning of its key.

        Args:
            prefix: The first characters of the key, as many as distinguish it from the others.

        Returns:
            One record for each kind of device and version of torch. Those that cannot be read are left out, with an
            UnreadableRecordWarning, if there are others.

        Raises:
            RecordError: If the keys of no run, or of several, start with the prefix, or its records cannot be read.
        """
        condition: dict[str, str | None] = {"substr(key, 1, length(?1)) = ?1": prefix}
        where, values = _where(condition)
        keys = [str(key) for (key,) in self._read(f"SELECT DISTINCT key FROM records{where} ORDER BY key", values)]
        if len(keys) != 1:
            several = f"{len(keys)} runs: {', '.join(keys[:5])}{', ...' * (len(keys) > 5)}"
            raise RecordError(f"{prefix!r} starts the key of {several if keys else 'no run'} in {self.path}")
        records, reasons = self._partition(condition)
        if not records:
            raise RecordError(
                f"the record of run {keys[0]} in {self.path} is unreadable: {next(iter(reasons.values()))}"
            )
        self._warn_of(reasons)
        return records

    def summary(self) -> list[Summary]:
        """Count the records of each setting on each kind of device.

        Returns:
            One row for each setting and kind of device.
        """
        groups: dict[tuple[str, str], list[tuple[str, str, str, float | None]]] = {}
        for setting, device, *row in self._read("SELECT setting, device, created, key, status, test FROM records"):
            groups.setdefault((setting, device), []).append(tuple(row))
        return [_summarise(setting, device, group) for (setting, device), group in sorted(groups.items())]

    def prune(self, *, failed: bool = False, device: str | None = None, keep: Iterable[str] | None = None) -> int:
        """Delete the records that meet all conditions, of which there must be at least one.

        Args:
            failed: Delete only records of failed runs.
            device: Delete only records of this kind of device.
            keep: Delete only records whose keys are not among these.

        Returns:
            The number of deleted records.

        Raises:
            ValueError: If there is no condition.
            StoreError: If the file cannot be written.
        """
        if not failed and device is None and keep is None:
            raise ValueError("prune needs failed=True, device= or keep=: without any, it would delete everything")
        keys_json = None if keep is None else _text(list(keep))
        where, values = _where(
            {"status = ?": "failed" if failed else None, "device = ?": device, f"key NOT {_IS_AMONG}": keys_json}
        )
        with self._transaction():
            return self._db.execute(f"DELETE FROM records{where}", values).rowcount

    def export(self, file: Path | str, *, device: str | None = None) -> int:
        """Write records to a file of JSON lines, for `import_` on another machine. Equal records give equal bytes.

        Args:
            file: The file, which is replaced atomically; it is compressed if its name ends in .gz.
            device: Write only records of this kind of device.

        Returns:
            The number of written records.

        Raises:
            StoreError: If the file cannot be written, or is the store itself.
        """
        return write_lines(self._lines({"device = ?": device}), Path(file), store=self.path)

    def import_(self, file: Path | str) -> tuple[int, int]:
        """Add the records of a file that `export` wrote: all of them or, after an error, none.

        Args:
            file: The file of JSON lines.

        Returns:
            How many were new, and how many the store had already.

        Raises:
            RecordError: If a line holds no valid record, or contradicts a stored one; the message names the line.
            StoreError: If the file cannot be read, or the store cannot be written.
        """
        new = number = 0
        with self._transaction():
            for number, record in enumerate(load_lines(file), start=1):
                try:
                    new += self._insert(record)
                except (RecordError, ValueError, OverflowError) as error:  # the latter two: what SQLite cannot hold
                    raise RecordError(f"{file}, line {number}: {error}") from error
        return new, number - new

    def _records(self, conditions: dict[str, str | None]) -> list[Record]:
        """The readable records that meet the conditions, in the order of lists, with a warning of the others."""
        records, reasons = self._partition(conditions)
        self._warn_of(reasons)
        return records

    def _partition(self, conditions: dict[str, str | None]) -> tuple[list[Record], dict[str, str]]:
        """The readable records that meet the conditions, and why the others cannot be read, by their keys."""
        where, values = _where(conditions)
        records, reasons = [], {}
        for key, line in self._read(f"SELECT key, content FROM records{where} ORDER BY {_ORDER}", values):
            try:
                record = read_record(line)
                if record.key != key:
                    raise RecordError(f"it is stored under the key of another run than {record.key}")
                records.append(record)
            except RecordError as error:
                reasons[str(key)] = str(error)
        return records, reasons

    def _warn_of(self, reasons: dict[str, str]) -> None:
        """Warn of unreadable records, if there are any."""
        if reasons:
            key, reason = next(iter(reasons.items()))
            warnings.warn(
                f"{len(reasons)} unreadable records in {self.path} are left out; training or importing their runs again"
                f" replaces them. The first is {key!a}: {reason}",
                UnreadableRecordWarning,
                stacklevel=4,
            )

    def _lines(self, conditions: dict[str, str | None]) -> Iterator[str]:
        """The records that meet the conditions, as JSON, in the order of lists."""
        where, values = _where(conditions)
        return (line for (line,) in self._read(f"SELECT content FROM records{where} ORDER BY {_ORDER}", values))

    def _read(self, query: str, values: tuple[str, ...] = ()) -> Iterator[tuple[Any, ...]]:
        with explain_sqlite_errors(self.path, "read"):
            yield from self._db.execute(query, values)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Write everything that is done inside, or nothing."""
        with explain_sqlite_errors(self.path, "write"):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # if the disk is full, SQLite has rolled back by itself
                    self._db.execute("ROLLBACK")
                raise


def _connect(uri: str) -> sqlite3.Connection:
    """Open a database and read from it, since SQLite opens no file before the first query.

    Transactions are begun explicitly, so that `sqlite3` must begin none.
    """
    db = sqlite3.connect(uri, uri=True, timeout=LOCK_TIMEOUT, isolation_level=None)
    try:
        db.execute("SELECT count(*) FROM sqlite_master")
    except BaseException:
        db.close()
        raise
    return db


def _record_or_none(line: str) -> Record | None:
    """The record in a line; None if it is unreadable."""
    try:
        return read_record(line)
    except RecordError:
        return None


def _summarise(setting: str, device: str, group: list[tuple[Any, ...]]) -> Summary:
    """Count the records of a setting on a device, each given as (created, key, status, accuracy)."""
    try:
        content = json.loads(setting)
    except (ValueError, RecursionError):
        content = setting
    is_setting = not wrong_setting_fields(content)
    tests = [test for _, _, status, test in group if is_setting and status == "done" and is_share(test)]
    failed = sum(is_setting and status == "failed" for _, _, status, _ in group)
    last, key = max(row[:2] for row in group)
    return Summary(
        setting=content, device=device, done=len(tests), failed=failed, accuracy=fmean(tests) if tests else None,
        last=last, key=key, unreadable=len(group) - len(tests) - failed,
    )  # fmt: skip


def _text(content: object) -> str:
    """Content as JSON: equal content gives equal text."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def _where(conditions: dict[str, str | None]) -> tuple[str, tuple[str, ...]]:
    """A WHERE clause of the conditions that have a value, and their values."""
    present = {condition: value for condition, value in conditions.items() if value is not None}
    return " WHERE " * bool(present) + " AND ".join(present), tuple(present.values())
