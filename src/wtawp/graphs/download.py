"""Find or fetch published files: in an offline root first, then in the user's cache, then from the mirrors.

A file is used only if its bytes have the pinned sha256, wherever it came from, so a mirror need not be trusted.
"""

import hashlib
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from wtawp.base import DataError, DownloadError, home

Place = Literal["root", "cache", "not here"]
TRIES = 2  # transfers from one mirror, each from the start, before the next mirror is tried
TIMEOUT = 10.0  # seconds to wait for an answer
SECONDS = 600.0  # that one transfer may take, however often the server sends a byte
MAX_BYTES = 2**28  # of a file, unless it says otherwise


@dataclass(frozen=True)
class RemoteFile:
    """One published file.

    Attributes:
        path: Where it lies in the offline root, and in the cache, relative to either.
        sha256: Hash of its bytes, in hexadecimal digits.
        mirrors: Full addresses from which it can be fetched, in the order in which they are tried.
        max_bytes: A transfer of more bytes is given up. Larger than any published file; raise it for a larger one.
    """

    path: str
    sha256: str
    mirrors: tuple[str, ...]
    max_bytes: int = MAX_BYTES


def root() -> Path | None:
    """The offline root, `$WTAWP_DATA`; None if the variable is not set. It must be a folder."""
    chosen = os.environ.get("WTAWP_DATA")
    if not chosen:
        return None
    folder = Path(chosen).expanduser()
    if not folder.is_dir():
        raise DataError(f"$WTAWP_DATA must be a folder with data files, got {chosen}; make it or unset the variable")
    return folder


def cache() -> Path:
    """The folder of downloads: `$WTAWP_HOME/data`."""
    return home() / "data"


def locate(file: RemoteFile) -> tuple[Place, Path]:
    """Find a file on this machine without reading it.

    Args:
        file: The published file.

    Returns:
        Where it is ("root", "cache" or "not here") and its path; if it is not here, the path that it will have in the
        cache.

    Raises:
        DataError: If $WTAWP_DATA names something that is not a folder.
    """
    offline = root()
    if offline is not None and (offline / file.path).is_file():
        return "root", offline / file.path
    cached = cache() / file.path
    return ("cache" if cached.is_file() else "not here"), cached


def is_intact(file: RemoteFile, path: Path) -> bool:
    """Whether a file on this machine has the published bytes.

    Args:
        file: The published file.
        path: Where it is on this machine.

    Returns:
        True if the sha256 is the pinned one.
    """
    return _hash(path) == file.sha256


def fetch(file: RemoteFile, *, mirrors: Sequence[str] | None = None, seconds: float = SECONDS) -> Path:
    """Return a path with exactly the published bytes of a file, downloading it only if it is not here.

    A damaged file in the cache is replaced; in the offline root, to which nothing is ever written, it is an error.

    Args:
        file: The published file.
        mirrors: Addresses to use in place of the file's own; None: its own.
        seconds: The time that one transfer may take before it is given up.

    Returns:
        The path of the verified file.

    Raises:
        DataError: If the file in the offline root is damaged.
        DownloadError: If no mirror has the file, or the cache cannot be written.
    """
    place, path = locate(file)
    if place != "not here" and is_intact(file, path):
        return path
    if place == "root":
        raise DataError(
            f"{path} has sha256 {_hash(path)}, expected {file.sha256}: it is damaged or another version; "
            "replace it, or delete it to have it downloaded"
        )
    failures = []
    for url in file.mirrors if mirrors is None else mirrors:
        failure = _download(url, file, path, seconds)
        if failure is None:
            return path
        failures.append(f"\n  {url}: {failure}")
    raise DownloadError(
        f"could not fetch {file.path} (sha256 {file.sha256}); without a network, put the file at {path}, or "
        f"under its own path in a folder that $WTAWP_DATA names. Tried:{''.join(failures) or ' no mirror'}"
    )


class _TooLargeError(Exception):
    """A transfer that exceeds the limit of its file."""


class _Transfer:
    """A downloader of pooch that gives up at a number of bytes, or at a deadline, at whatever moment it comes."""

    def __init__(self, max_bytes: int, seconds: float) -> None:
        self.max_bytes, self.seconds = max_bytes, seconds
        self._is_late = threading.Event()
        self._failure: BaseException | None = None

    def __call__(self, url: str, output_file: str, _pooch: object) -> None:
        """Write what the address sends to a file. A server that sends a byte now and then blocks a thread, not us."""
        worker = threading.Thread(target=self._run, args=(url, output_file), daemon=True)
        worker.start()
        worker.join(self.seconds)
        if worker.is_alive():
            self._is_late.set()
            raise TimeoutError(f"not complete after {self.seconds:g} seconds; fetch takes seconds= for more")
        if self._failure is not None:
            raise self._failure

    def _run(self, url: str, output_file: str) -> None:
        """The transfer itself; an exception is kept for the thread that waits."""
        import requests

        try:
            with requests.get(url, stream=True, timeout=TIMEOUT) as response, open(output_file, "wb") as out:
                response.raise_for_status()
                received = 0
                for chunk in response.iter_content(2**16):
                    received += len(chunk)
                    if self._is_late.is_set():
                        return
                    if received > self.max_bytes:
                        raise _TooLargeError(f"more than {self.max_bytes:,} bytes, the file's max_bytes")
                    out.write(chunk)
        except BaseException as error:
            self._failure = error


def _download(url: str, file: RemoteFile, target: Path, seconds: float) -> str | None:
    """Fetch `url` to `target`: None, or the reason of the failure. pooch checks a temporary file, then renames it."""
    import pooch  # only when something is fetched: the import costs more than reading a small graph
    from requests.exceptions import ConnectionError as Unreachable
    from requests.exceptions import HTTPError, RequestException

    pooch.get_logger().setLevel("WARNING")  # our error messages say what matters
    failure = ""
    for _ in range(TRIES):
        try:
            pooch.retrieve(
                url,
                known_hash=f"sha256:{file.sha256}",
                fname=target.name,
                path=target.parent,
                downloader=_Transfer(file.max_bytes, seconds),
            )
            return None
        except (_TooLargeError, TimeoutError) as error:
            return _one_line(error)
        except (Unreachable, HTTPError) as error:  # trying again at once would not help
            return _one_line(error)
        except (RequestException, ValueError) as error:  # interrupted, or other bytes than the published ones
            failure = _one_line(error)
        except OSError as error:
            raise DownloadError(f"cannot write {target}: {error}; choose another folder with $WTAWP_HOME") from error
    return failure


def _one_line(error: Exception) -> str:
    """The type and the message of an error, without line breaks."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _hash(path: Path) -> str:
    """The sha256 of a file, in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
