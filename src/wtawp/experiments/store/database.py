"""Where records are kept: one SQLite file that survives being killed, and JSON lines to move records between machines.

A record's identity is its run's key, the kind of device and the version of torch. What was measured is never changed:
a repetition must give the same outcome, and only a failed run gives way to a later one.
"""

import gzip
import json
import os
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from wtawp.base import WtawpError, home
from wtawp.experiments.spec import Record, RecordError
from wtawp.experiments.spec.record import checked, first_difference

SCHEMA = 1  # in `PRAGMA user_version`
APPLICATION = 0x77746177  # in `PRAGMA application_id`: tells our files from other programs' databases
PATIENCE = 60.0  # seconds that a writer waits for another
Status = Literal["done", "failed"]
_TABLE = """CREATE TABLE records (
    key TEXT NOT NULL, device TEXT NOT NULL, torch TEXT NOT NULL, status TEXT NOT NULL, split INTEGER NOT NULL,
    init INTEGER NOT NULL, setting TEXT NOT NULL, created TEXT NOT NULL, test REAL, content TEXT NOT NULL,
    PRIMARY KEY (key, device, torch))"""  # `content` is the record; `test` is its accuracy, so that lists parse no JSON
_ORDER = "setting, split, init, device, torch, key"
_AMONG = "IN (SELECT value FROM json_each(?))"  # any number of values in one parameter
_MEANING = {
    sqlite3.SQLITE_READONLY: "it may only be read here; get the right to write it or choose another store",
    sqlite3.SQLITE_FULL: "the disk is full; make room, then repeat the command",
    sqlite3.SQLITE_IOERR: "the disk does not read or write; see that it is there and has room, then repeat the command",
    sqlite3.SQLITE_BUSY: f"another process has kept it for {PATIENCE:.0f} s; repeat the command when that has ended",
    sqlite3.SQLITE_NOTADB: "it is not a store of results; choose another file",
    sqlite3.SQLITE_CORRUPT: "it is damaged; put a copy in its place, or move it away and import your last export",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; see that it is a file, that you may read it, and that its folder"
    " may be written where it is new or was left by a process that was killed",
}


def default_path() -> Path:
    """Where results are kept unless somebody says otherwise."""
    return home() / "results.sqlite"


class StoreError(WtawpError):
    """A store, or a file of exported records, that cannot be opened, read or written."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The records of one setting on one kind of device."""

    setting: dict[str, Any]
    device: str
    done: int
    failed: int
    accuracy: float | None  # mean over done runs, on the test nodes
    last: str  # when the newest record was created
    key: str  # of that record


class Store:
    """Records in the file `path`, by default in our folder; a context manager. Several processes may write at once.

    A file that may not be written is opened for reading. `create=False` refuses to make a new one.
    """

    def __init__(self, path: Path | str | None = None, *, create: bool = True) -> None:
        self.path = (default_path() if path is None else Path(path)).absolute()
        try:
            if not create and not self.path.exists():
                raise StoreError(f"there is no store of results at {self.path}; importing records makes one")
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot reach the folder of {self.path}: {error}; choose another store") from error
        with self._plain_words("open"), ExitStack() as on_error:
            self._db = on_error.enter_context(closing(self._connect()))
            self._prepare()
            on_error.pop_all()

    def _connect(self) -> sqlite3.Connection:
        """For writing, or else for reading what nobody can be writing."""
        uri = self.path.as_uri()  # quotes what would be an option, and ":memory:" becomes a file
        try:
            return _connect(f"{uri}?mode=rwc")
        except sqlite3.OperationalError as error:
            log = self.path.with_name(self.path.name + "-wal")
            settled = self.path.is_file() and not (log.exists() and log.stat().st_size)
            if not settled or error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                raise
        # WAL mode keeps files beside the store even to read it; in a folder that is read-only it needs leave not to.
        # Not while there is a log: its records would be missing without a word.
        return _connect(f"{uri}?immutable=1")

    def _prepare(self) -> None:
        """Refuse what is not ours before anything is written, then make the table if there is none."""
        self._db.execute("PRAGMA synchronous = FULL")  # a chunk is minutes of work, a wait for the disk is nothing
        if not self._is_ours():
            self._to_wal()
            with self._writing():
                if not self._is_ours():  # another process may have been faster
                    self._db.execute(_TABLE)
                    self._db.execute(f"CREATE INDEX in_order ON records ({_ORDER})")
                    self._db.execute(f"PRAGMA application_id = {APPLICATION}")
                    self._db.execute(f"PRAGMA user_version = {SCHEMA}")

    def _is_ours(self) -> bool:
        """False if it is empty."""
        queries = ("SELECT count(*) FROM sqlite_master", "PRAGMA application_id", "PRAGMA user_version")
        tables, application, version = (self._db.execute(query).fetchone()[0] for query in queries)
        if not tables:  # asked first: where another process has just made the table, the numbers are there as well
            return False
        if application != APPLICATION:
            raise StoreError(f"{self.path} is a database of another program; choose another file")
        if version > SCHEMA:
            raise StoreError(
                f"{self.path} was written by a newer wtawp (its schema is {version}, this one knows {SCHEMA});"
                " upgrade wtawp or choose another store"
            )
        return True

    def _to_wal(self) -> None:
        """Readers and a writer at once; SQLite itself does not wait where two processes do this at the same time."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def close(self) -> None:
        """Let go of the file; closing twice does nothing."""
        self._db.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def add(self, records: Iterable[Record]) -> tuple[int, int]:
        """Keep all of `records` or, after an error, none; returns how many are new and how many were known.

        A done record that contradicts one we have is an error; a failed one gives way to a done or a later one.
        """
        with self._writing():
            new = [self._put(record) for record in records]
        return sum(new), len(new) - sum(new)

    def _put(self, record: Record) -> bool:
        if not isinstance(torch := record.versions.get("torch"), str):
            raise RecordError(f"run {record.key} on {record.device} does not say its version of torch")
        where, text = (record.key, record.device, torch), record.to_json()
        query = "SELECT content FROM records WHERE key = ? AND device = ? AND torch = ?"
        if found := self._db.execute(query, where).fetchone():
            if found[0] == text:
                return False
            kept = Record.from_json(found[0])
            difference = first_difference(kept, record)
            if difference is None or (kept.status, record.status) == ("done", "failed"):
                return False
            if kept.status == record.status == "failed" and record.created < kept.created:
                return False  # so the order of imports does not matter
            if kept.status == "done" and kept.versions.get("stack") != record.versions.get("stack"):
                return False  # trained in stacks of other sizes, which round otherwise: both are true, the first stays
            if kept.status == "done":
                raise RecordError(
                    f"run {record.key} on {record.device} with torch {torch} contradicts its record in {self.path}:"
                    f" {difference}; nothing of this batch was written"
                )
        values = (*where, record.status, record.split, record.init, _text(record.setting), record.created,
                  (record.accuracy or {}).get("test"), text)  # fmt: skip
        self._db.execute(f"INSERT OR REPLACE INTO records VALUES ({', '.join('?' * len(values))})", values)
        return True

    def done(self, keys: Iterable[str], device: str, torch: str) -> set[str]:
        """Those of `keys` that need no training on this kind of device with this version of torch."""
        query = f"SELECT key FROM records WHERE key {_AMONG} AND device = ? AND torch = ? AND status = 'done'"
        return {key for (key,) in self._read(query, (_text(list(keys)), device, torch))}

    def records(
        self, keys: Iterable[str] | None = None, status: Status | None = None, device: str | None = None
    ) -> list[Record]:
        """Those that fit all that is given, in the order of setting, split, initialisation, device and torch."""
        among = None if keys is None else _text(list(keys))
        lines = self._lines({f"key {_AMONG}": among, "status = ?": status, "device = ?": device})
        return [Record.from_json(line) for line in lines]

    def find(self, prefix: str) -> list[Record]:
        """The records of the one run whose key starts with `prefix`."""
        found = self._lines({"substr(key, 1, length(?1)) = ?1": prefix})
        runs: dict[str, list[Record]] = {}
        for record in map(Record.from_json, found):
            runs.setdefault(record.key, []).append(record)
        if len(runs) != 1:
            several = f"{len(runs)} runs: {', '.join(sorted(runs)[:5])}{', ...' * (len(runs) > 5)}"
            raise RecordError(f"{prefix!r} starts the key of {several if runs else 'no run'} in {self.path}")
        return next(iter(runs.values()))

    def summary(self) -> list[Summary]:
        """One row for each setting and kind of device."""
        groups: dict[tuple[str, str], list[tuple[str, str, str, float | None]]] = {}
        for setting, device, *row in self._read("SELECT setting, device, created, key, status, test FROM records"):
            groups.setdefault((setting, device), []).append(tuple(row))
        rows = []
        for (setting, device), group in sorted(groups.items()):
            tests = [test for _, _, status, test in group if status == "done" and test is not None]
            done, (last, key) = sum(status == "done" for _, _, status, _ in group), max(row[:2] for row in group)
            rows.append(Summary(setting=json.loads(setting), device=device, done=done, failed=len(group) - done,
                                accuracy=fmean(tests) if tests else None, last=last, key=key))  # fmt: skip
        return rows

    def prune(self, *, failed: bool = False, device: str | None = None, keep: Iterable[str] | None = None) -> int:
        """Delete what fits all that is given: failed, of one device, with a key not in `keep`. Returns how many."""
        if not failed and device is None and keep is None:
            raise ValueError("prune needs failed=True, device= or keep=: without any, it would delete everything")
        among = None if keep is None else _text(list(keep))
        where, values = _where(
            {"status = ?": "failed" if failed else None, "device = ?": device, f"key NOT {_AMONG}": among}
        )
        with self._writing():
            return self._db.execute(f"DELETE FROM records{where}", values).rowcount

    def export(self, file: Path | str, *, device: str | None = None) -> int:
        """Write JSON lines, compressed if the name ends in .gz: equal records give equal bytes. Returns how many."""
        file = Path(file)
        part = file.with_name(f"{file.name}.{os.getpid()}.part")  # half a file never has the name of a whole one
        count = 0
        try:
            if file.exists() and file.samefile(self.path):
                raise StoreError(f"{file} is the store itself; export to another file")
            with part.open("wb") as raw:
                out = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if file.suffix == ".gz" else raw
                for line in self._lines({"device = ?": device}):
                    out.write(line.encode() + b"\n")
                    count += 1
                if out is not raw:
                    out.close()
                raw.flush()
                os.fsync(raw.fileno())
            os.replace(part, file)
        except OSError as error:
            raise StoreError(f"cannot write {file}: {error}; the store is as it was") from error
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)
        return count

    def import_(self, file: Path | str) -> tuple[int, int]:
        """Add what `export` wrote, all or none; returns how many are new and how many were known."""
        new = number = 0
        with self._writing():
            for number, record in enumerate(load_lines(file), start=1):
                try:
                    new += self._put(record)
                except (RecordError, ValueError, OverflowError) as error:  # the latter two: what SQLite cannot hold
                    raise RecordError(f"{file}, line {number}: {error}") from error
        return new, number - new

    def _lines(self, conditions: dict[str, str | None]) -> Iterator[str]:
        where, values = _where(conditions)
        return (line for (line,) in self._read(f"SELECT content FROM records{where} ORDER BY {_ORDER}", values))

    def _read(self, query: str, values: tuple[str, ...] = ()) -> Iterator[tuple[Any, ...]]:
        with self._plain_words("read"):
            yield from self._db.execute(query, values)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction: all that is done inside, or nothing."""
        with self._plain_words("write"):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # after a full disk SQLite has gone back by itself
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _plain_words(self, verb: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if (code := getattr(error, "sqlite_errorcode", None)) is None:
                raise  # not the file's fault, but the caller's, such as a store that is closed
            why = _MEANING.get(code & 0xFF, "see what SQLite says")
            is_whole = verb == "write" and code & 0xFF != sqlite3.SQLITE_CORRUPT
            kept = " Nothing of it was written; what was there before still is." if is_whole else ""
            raise StoreError(f"cannot {verb} {self.path}: {why} (SQLite says: {error}).{kept}") from error


def _connect(uri: str) -> sqlite3.Connection:
    """Open and look inside, for SQLite opens nothing before it is asked; transactions are ours to begin."""
    db = sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None)
    try:
        db.execute("SELECT count(*) FROM sqlite_master")
    except BaseException:
        db.close()
        raise
    return db


def _text(content: object) -> str:
    """Equal content, equal text."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def _where(conditions: dict[str, str | None]) -> tuple[str, tuple[str, ...]]:
    """A WHERE clause of the conditions that have a value, and their values."""
    given = {condition: value for condition, value in conditions.items() if value is not None}
    return " WHERE " * bool(given) + " AND ".join(given), tuple(given.values())


def load_all(paths: Iterable[Path]) -> list[Record]:
    """The records of files, and of all files of records in folders."""
    files: list[Path] = []
    for path in paths:
        inside = sorted([*path.glob("*.jsonl"), *path.glob("*.jsonl.gz")]) if path.is_dir() else [path]
        if not inside:
            raise StoreError(f"the folder {path} holds no file of records (*.jsonl or *.jsonl.gz)")
        files += inside
    return [record for file in files for record in load_lines(file)]


def load_lines(file: Path | str) -> Iterator[Record]:
    """Read what `Store.export` wrote, a line at a time; errors name the file and the line."""
    number = 0
    try:
        with gzip.open(file) if Path(file).suffix == ".gz" else open(file, "rb") as lines:
            for number, line in enumerate(lines, start=1):  # noqa: B007
                yield checked(Record.from_json(line.decode()))
    except (RecordError, ValueError, RecursionError) as error:  # the latter two: bytes or numbers no JSON holds
        raise RecordError(f"{file}, line {number}: {error}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise StoreError(f"cannot read {file} after line {number}: {error}") from error
