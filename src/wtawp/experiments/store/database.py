"""The store: records in one SQLite file, which stays consistent if a process is killed at any moment.

A record is identified by the key of its run, the kind of device and the version of torch. A measured result is never
changed: a repetition must give the same one, and only the record of a failed run is replaced by a later record.
"""

import json
import warnings
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from wtawp.base import home
from wtawp.experiments.spec import Record, RecordError
from wtawp.experiments.spec.record import first_difference, matches_checksum
from wtawp.experiments.spec.record_checks import is_share, wrong_setting_fields
from wtawp.experiments.store.connection import ORDER, connect, prepare, transaction
from wtawp.experiments.store.errors import StoreError, UnreadableRecordWarning, explain_sqlite_errors
from wtawp.experiments.store.json_lines import load_lines, read_record, write_lines

Status = Literal["done", "failed"]
_ROW = "key, status, created, test, content"  # the other columns are in the indexes: SQLite compares them when it opens
_HAS_STATUS = "(status = ? OR status NOT IN ('done', 'failed'))"  # the latter are damaged, and not left out silently
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
        unreadable: The number of records, counted nowhere else, that are damaged or cannot be right: they do not match
            their checksum, their setting is none, their status is neither "done" nor "failed", or they are done without
            an accuracy between 0 and 1.
    """

    setting: Any
    device: str
    done: int
    failed: int
    accuracy: float | None
    last: str
    key: str
    unreadable: int = 0


@dataclass(frozen=True)
class Row:
    """One row of the table, which may be damaged.

    Attributes:
        number: The number of the row, `rowid` in SQLite.
        key: The key under which the record is stored.
        line: The record as JSON.
        record: The record, or why it cannot be read.
    """

    number: int
    key: str
    line: str
    record: Record | RecordError


class Store:
    """The records in an SQLite file; a context manager that closes it. Several processes may write at the same time.

    A file without permission to write is opened for reading.

    Args:
        path: The file; by default that of `default_path`.
        create: Whether a file that does not exist is created.

    Attributes:
        path: The absolute path of the file.

    Raises:
        StoreError: If the file cannot be opened, is damaged, belongs to another program or to a newer version of wtawp,
            or does not exist and must not be created.
    """

    def __init__(self, path: Path | str | None = None, *, create: bool = True) -> None:
        self.path = (default_path() if path is None else Path(path)).absolute()
        try:
            if not create and not self.path.exists():
                raise StoreError(
                    f"there is no store of results at {self.path} yet: train something first, as with `wtawp compare "
                    "wine`, or import records with `wtawp results import FILE`; --store FILE chooses another one"
                )
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot reach the folder of {self.path}: {error}; choose another store") from error
        with explain_sqlite_errors(self.path, "open"), ExitStack() as on_error:
            self._db = on_error.enter_context(closing(connect(self.path)))
            prepare(self._db, self.path)
            on_error.pop_all()

    def close(self) -> None:
        """Close the file; closing twice does nothing."""
        self._db.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def add(self, records: Iterable[Record], *, replace: bool = False) -> tuple[int, int]:
        """Add records: all of them or, after an error, none.

        The record of a failed run is replaced by one that succeeded, or that failed later.

        Args:
            records: The records, each with its version of torch.
            replace: Whether records of runs that succeeded replace stored ones, also if they contradict them.

        Returns:
            How many were new, and how many the store had already.

        Raises:
            RecordError: If a record contradicts the stored one of the same run, or has no version of torch.
            StoreError: If the file cannot be written.
        """
        with self._transaction():
            is_new = [self._insert(record, replace) for record in records]
        return sum(is_new), len(is_new) - sum(is_new)

    def _insert(self, record: Record, replace: bool = False) -> bool:
        """Add one record inside a transaction; returns whether the store changed."""
        if not isinstance(torch := record.versions.get("torch"), str):
            raise RecordError(f"run {record.key} on {record.device} does not name its version of torch")
        identity = record.key, record.device, torch
        query = f"SELECT {_ROW} FROM records WHERE key = ? AND device = ? AND torch = ?"
        row = self._db.execute(query, identity).fetchone()
        stored = None if row is None else _record_of(*row)
        is_replaced = replace and record.status == "done"
        if isinstance(stored, Record) and not is_replaced:  # otherwise there is none, or an unreadable one
            difference = first_difference(stored, record)
            if difference is None or (stored.status, record.status) == ("done", "failed"):
                return False
            if stored.status == record.status == "failed" and record.created < stored.created:
                return False  # so the order of imports does not matter
            if stored.status == "done" and _may_round_differently(stored, record):
                return False  # both records are right, the first stays
            if stored.status == "done":
                unknown_kind = (
                    ". The device 'cpu' does not say which kind of CPU, and other kinds round differently: if that is"
                    " all, import the file into another store"
                )
                raise RecordError(
                    f"run {record.key} on {record.device} with torch {torch} contradicts its record in {self.path}:"
                    f" {difference}; nothing of this batch was written" + unknown_kind * (record.device == "cpu")
                )
        values = (*identity, record.status, record.split, record.init, _text(record.setting), record.created,
                  _test_accuracy(record), record.to_json())  # fmt: skip
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
        where = {f"key {_IS_AMONG}": _text(list(keys)), "device = ?": device, "torch = ?": torch, _HAS_STATUS: "done"}
        return {record.key for record in self._records(where)}

    def count_done(self, keys: Iterable[str]) -> dict[str, int]:
        """Count the runs that succeeded on each kind of device.

        Args:
            keys: Keys of runs, any number of them.

        Returns:
            The number of these runs, by kind of device; devices without any are left out.
        """
        query = f"SELECT device, count(DISTINCT key) FROM records WHERE status = 'done' AND key {_IS_AMONG}"
        return dict(self._read(f"{query} GROUP BY device ORDER BY device", (_text(list(keys)),)))

    def dates(self, keys: Iterable[str], device: str) -> tuple[str, str] | None:
        """Find when runs were trained that succeeded on a kind of device.

        Args:
            keys: Keys of runs, any number of them.
            device: The kind of device, as in the records.

        Returns:
            When the first and when the last record was created, UTC in ISO 8601; None if there is none.
        """
        query = (
            f"SELECT min(created), max(created) FROM records WHERE status = 'done' AND device = ? AND key {_IS_AMONG}"
        )
        ((first, last),) = self._read(query, (device, _text(list(keys))))
        return None if first is None else (str(first), str(last))

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
        return self._records({f"key {_IS_AMONG}": keys_json, _HAS_STATUS: status, "device = ?": device})

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
        records, unreadable = self._partition(condition)
        if not records:
            raise RecordError(f"the record of run {keys[0]} in {self.path} is unreadable: {unreadable[0].record}")
        self._warn_of(unreadable)
        return records

    def summary(self) -> list[Summary]:
        """Count the records of each setting on each kind of device.

        Returns:
            One row for each setting and kind of device.
        """
        groups: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
        query = "SELECT setting, device, created, key, status, test, content FROM records"
        for setting, device, created, key, *outcome in self._read(query):
            row = str(created), str(key), *outcome  # a damaged column can hold anything
            groups.setdefault((str(setting), str(device)), []).append((*row[:-1], _agrees(*row)))
        return [_summarise(setting, device, group) for (setting, device), group in sorted(groups.items())]

    def prune(
        self,
        *,
        failed: bool = False,
        device: str | None = None,
        keep: Iterable[str] | None = None,
        unreadable: bool = False,
    ) -> int:
        """Delete the records that meet all conditions, of which there must be at least one.

        Args:
            failed: Delete only records of failed runs.
            device: Delete only records of this kind of device.
            keep: Delete only records whose keys are not among these.
            unreadable: Delete only records that are damaged or cannot be right.

        Returns:
            The number of deleted records.

        Raises:
            ValueError: If there is no condition.
            StoreError: If the file cannot be written.
        """
        if not failed and not unreadable and device is None and keep is None:
            raise ValueError(
                "prune needs failed=True, unreadable=True, device= or keep=: without any, it would delete everything"
            )
        keys_json = None if keep is None else _text(list(keep))
        conditions = {
            "status = ?": "failed" if failed else None, "device = ?": device, f"key NOT {_IS_AMONG}": keys_json
        }  # fmt: skip
        with self._transaction():
            if unreadable:
                numbers = [row.number for row in self._rows(conditions) if isinstance(row.record, RecordError)]
                conditions = {f"rowid {_IS_AMONG}": _text(numbers)}
            where, values = _where(conditions)
            return self._db.execute(f"DELETE FROM records{where}", values).rowcount

    def rows(self, *, status: Status | None = None, device: str | None = None) -> Iterator[Row]:
        """Read the rows that meet all conditions, also those that hold no readable record, without a warning.

        Args:
            status: "done" or "failed"; None reads both.
            device: The kind of device, as in the records; None reads those of all devices.

        Returns:
            The rows in the order of `records`.
        """
        return self._rows({_HAS_STATUS: status, "device = ?": device})

    def export(self, file: Path | str, *, device: str | None = None) -> int:
        """Write records to a file of JSON lines, for `import_` on another machine. Equal records give equal bytes.

        Records that cannot be read are left out, with an UnreadableRecordWarning.

        Args:
            file: The file, which is replaced atomically; it is compressed if its name ends in .gz.
            device: Write only records of this kind of device.

        Returns:
            The number of written records.

        Raises:
            StoreError: If the file cannot be written, or is the store itself.
        """
        unreadable: list[Row] = []

        def lines() -> Generator[str, None, None]:
            for row in self.rows(device=device):
                if isinstance(row.record, Record):
                    yield row.record.to_json()
                else:
                    unreadable.append(row)

        with closing(lines()) as each:  # an error must not leave a query open that ends after the store is closed
            count = write_lines(each, Path(file), store=self.path)
        self._warn_of(unreadable)
        return count

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
        records, unreadable = self._partition(conditions)
        self._warn_of(unreadable)
        return records

    def _partition(self, conditions: dict[str, str | None]) -> tuple[list[Record], list[Row]]:
        """The readable records that meet the conditions, and the rows whose records cannot be read."""
        records, unreadable = [], []
        for row in self._rows(conditions):
            if isinstance(row.record, Record):
                records.append(row.record)
            else:
                unreadable.append(row)
        return records, unreadable

    def _rows(self, conditions: dict[str, str | None]) -> Iterator[Row]:
        """The rows that meet the conditions, in the order of lists."""
        where, values = _where(conditions)
        for number, *row in self._read(f"SELECT rowid, {_ROW} FROM records{where} ORDER BY {ORDER}", values):
            yield Row(number, str(row[0]), str(row[-1]), _record_of(*row))

    def _warn_of(self, unreadable: list[Row]) -> None:
        """Warn of unreadable records, if there are any."""
        if unreadable:
            warnings.warn(
                f"{len(unreadable)} unreadable records in {self.path} are left out; training or importing their runs"
                " again replaces them, `wtawp results prune --unreadable` shows and deletes them. The first is"
                f" {unreadable[0].key!a}: {unreadable[0].record}",
                UnreadableRecordWarning,
                stacklevel=4,
            )

    def _read(self, query: str, values: tuple[str, ...] = ()) -> Iterator[tuple[Any, ...]]:
        with explain_sqlite_errors(self.path, "read"):
            yield from self._db.execute(query, values)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Write everything that is done inside, or nothing."""
        with explain_sqlite_errors(self.path, "write"), transaction(self._db):
            yield


def _may_round_differently(stored: Record, record: Record) -> bool:
    """Whether two runs on one kind of device were trained in stacks of other sizes, or compiled in other ways."""
    ours, theirs = stored.versions, record.versions
    is_compiled_otherwise = "numba" in ours and "numba" in theirs and ours["numba"] != theirs["numba"]
    return ours.get("stack") != theirs.get("stack") or is_compiled_otherwise


def _record_of(key: object, status: object, created: object, test: object, line: object) -> Record | RecordError:
    """The record in a row; an error if it is unreadable, or if the columns of the table are not its own."""
    try:
        if not isinstance(line, str):
            raise RecordError("it is no text")
        record = read_record(line)
    except RecordError as error:
        return error
    if (record.key, record.status, record.created, _test_accuracy(record)) != (key, status, created, test):
        return RecordError("it is stored under the columns of another run or outcome")
    return record


def _test_accuracy(record: Record) -> float | None:
    """The accuracy on the test nodes; None where there is none."""
    return (record.accuracy or {}).get("test")


def _agrees(created: str, key: str, status: str, test: float | None, line: object) -> bool:
    """Whether a record is as it was written, and the columns that lists show agree with its text, which is not parsed.

    The columns that are not compared here are also in the indexes, with which SQLite compares them.
    """
    if not isinstance(line, str) or matches_checksum(line) is False:
        return False
    accuracy = f'{{"accuracy":{{"test":{test!r}' if status == "done" else '{"accuracy":null,'
    created_and_status = (f'"created":{json.dumps(created)},"device":', f',"status":"{status}","versions":')
    return line.startswith(accuracy) and all(part in line for part in created_and_status) and f'"key":"{key}",' in line


def _summarise(setting: str, device: str, group: list[tuple[Any, ...]]) -> Summary:
    """Count the records of a setting on a device, each given as (created, key, status, accuracy, is readable)."""
    try:
        content = json.loads(setting)
    except (ValueError, RecursionError):
        content = setting
    readable = [] if wrong_setting_fields(content) else [row for row in group if row[-1]]
    tests = [test for _, _, status, test, _ in readable if status == "done" and is_share(test)]
    failed = sum(status == "failed" for _, _, status, _, _ in readable)
    last, key = max(row[:2] for row in readable or group)
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
