"""Exchange of records between machines: files with one record a line, as JSON, compressed or not."""

import gzip
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from wtawp.base import DataError, atomic_file
from wtawp.experiments.spec import Record, RecordError
from wtawp.experiments.spec.record import checked
from wtawp.experiments.store.errors import StoreError
from wtawp.graphs.read_limits import allowed_bytes, limited_lines

RECORDS_MB = 128  # of records that are always read: equal settings compress well


def load_all(paths: Iterable[Path]) -> list[Record]:
    """Read the records of several files, or of all files in folders.

    Args:
        paths: Files that `Store.export` wrote, and folders, of which every *.jsonl and *.jsonl.gz is read in the order
            of the names.

    Returns:
        The records in the order of the files and of their lines.

    Raises:
        StoreError: If a folder holds no file of records, or a file cannot be read.
        RecordError: If a line holds no valid record.
    """
    return [record for file in record_files(paths) for record in load_lines(file)]


def record_files(paths: Iterable[Path]) -> list[Path]:
    """Find the files of records in folders.

    Args:
        paths: Files, and folders of files that `Store.export` wrote.

    Returns:
        The files, and every *.jsonl and *.jsonl.gz of the folders in the order of the names.

    Raises:
        StoreError: If a folder holds no file of records.
    """
    files: list[Path] = []
    for path in paths:
        inside = sorted([*path.glob("*.jsonl"), *path.glob("*.jsonl.gz")]) if path.is_dir() else [path]
        if not inside:
            raise StoreError(f"the folder {path} holds no file of records (*.jsonl or *.jsonl.gz)")
        files += inside
    return files


def load_lines(file: Path | str) -> Iterator[Record]:
    """Read the records of one file, a line at a time.

    Args:
        file: A file that `Store.export` wrote; it is decompressed if its name ends in .gz.

    Yields:
        The records in the order of the lines, each checked against its key.

    Raises:
        RecordError: If a line holds no valid record; the message names the file and the line.
        StoreError: If the file cannot be read.
    """
    for number, line in enumerate(read_lines(file), start=1):
        try:
            record = read_record(line.decode())
        except (RecordError, ValueError) as error:  # the latter: bytes that are no text
            raise RecordError(f"{file}, line {number}: {error}") from error
        yield record


def read_lines(file: Path | str) -> Iterator[bytes]:
    """Read the lines of one file, which need not hold records.

    Args:
        file: The file; it is decompressed if its name ends in .gz.

    Yields:
        The lines, with their ends.

    Raises:
        StoreError: If the file cannot be read; the message says after which line.
    """
    number = 0
    try:
        allowed = allowed_bytes(os.stat(file).st_size, default_mb=RECORDS_MB)
        with gzip.open(file) if Path(file).suffix == ".gz" else open(file, "rb") as stream:
            lines = limited_lines(stream, allowed, where=str(file))
            for number, line in enumerate(lines, start=1):  # noqa: B007
                yield line
    except DataError as error:  # too much for the size of the file
        raise StoreError(str(error)) from error
    except (OSError, EOFError, zlib.error) as error:
        raise StoreError(f"cannot read {file} after line {number}: {error}") from error


def read_record(line: str) -> Record:
    """Read a record that may be damaged or made up, and check all its values.

    Args:
        line: The record as JSON, from a file or from a store.

    Returns:
        The record.

    Raises:
        RecordError: If the line holds no valid record.
    """
    try:
        return checked(Record.from_json(line))
    except (ValueError, RecursionError) as error:  # numbers or depths that no JSON holds
        raise RecordError(f"the line holds no record: {error}") from error


def write_lines(lines: Iterable[str], file: Path, *, store: Path) -> int:
    """Write lines to a file atomically: a file that is there is replaced when the new one is complete, or kept.

    Args:
        lines: The lines, without their ends.
        file: The file; it is compressed if its name ends in .gz. Equal lines give equal bytes.
        store: The file of the store that the lines come from, which must not be overwritten.

    Returns:
        The number of lines.

    Raises:
        StoreError: If the file cannot be written, or is the store itself.
    """
    count = 0
    try:
        if file.exists() and file.samefile(store):
            raise StoreError(f"{file} is the store itself; export to another file")
        with atomic_file(file) as raw:
            out = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if file.suffix == ".gz" else raw
            for line in lines:
                out.write(line.encode() + b"\n")
                count += 1
            if out is not raw:
                out.close()
    except OSError as error:
        raise StoreError(f"cannot write {file}: {error}; the store is as it was") from error
    return count
