"""Published files by their place and sha256: an offline root first, then the user's cache, then the mirrors.

A file is used only if its bytes have the pinned sha256, wherever it came from, so a mirror need not be trusted.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from wtawp.base import DataError, DownloadError, home

Place = Literal["root", "cache", "not here"]
TRIES = 2  # transfers from one mirror, each from the start, before the next mirror is asked
TIMEOUT = 10.0  # seconds without an answer


@dataclass(frozen=True)
class RemoteFile:
    """One published file; `path` is relative to the offline root and to the cache alike."""

    path: str
    sha256: str
    mirrors: tuple[str, ...]  # full addresses, in the order they are asked


def root() -> Path | None:
    """The offline root, `$WTAWP_DATA`; None when the variable is not set."""
    chosen = os.environ.get("WTAWP_DATA")
    if not chosen:
        return None
    folder = Path(chosen).expanduser()
    if not folder.is_dir():
        raise DataError(f"$WTAWP_DATA must be a folder with data files, got {chosen}; make it or unset the variable")
    return folder


def cache() -> Path:
    """Where downloads are kept: `$WTAWP_HOME/data`."""
    return home() / "data"


def locate(file: RemoteFile) -> tuple[Place, Path]:
    """Where `file` is, its bytes not looked at; for one that is not here, the path in the cache it would have."""
    offline = root()
    if offline is not None and (offline / file.path).is_file():
        return "root", offline / file.path
    cached = cache() / file.path
    return ("cache" if cached.is_file() else "not here"), cached


def is_intact(file: RemoteFile, path: Path) -> bool:
    """Whether the bytes at `path` are the published ones."""
    return _hash(path) == file.sha256


def fetch(file: RemoteFile, *, mirrors: Sequence[str] | None = None) -> Path:
    """A path with exactly the published bytes of `file`, downloaded only if they are not here.

    A damaged file in the offline root is an error, for that folder is not ours to write; in the cache it is replaced.
    `mirrors` stands in for the file's own addresses.
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
        failure = _download(url, file, path)
        if failure is None:
            return path
        failures.append(f"\n  {url}: {failure}")
    raise DownloadError(
        f"could not fetch {file.path} (sha256 {file.sha256}); without a network, put the file at {path}, or "
        f"under its own path in a folder that $WTAWP_DATA names. Tried:{''.join(failures) or ' no mirror'}"
    )


def _download(url: str, file: RemoteFile, target: Path) -> str | None:
    """Fetch `url` to `target` and return None, or say why not; pooch writes beside it, checks, then renames."""
    import pooch  # only when something is fetched: the import costs more than reading a small graph
    from requests.exceptions import ConnectionError as Unreachable
    from requests.exceptions import HTTPError, RequestException

    pooch.get_logger().setLevel("WARNING")  # what it would say is said by the error, or not worth saying
    failure = ""
    for _ in range(TRIES):
        try:
            pooch.retrieve(
                url,
                known_hash=f"sha256:{file.sha256}",
                fname=target.name,
                path=target.parent,
                downloader=pooch.HTTPDownloader(timeout=TIMEOUT),
            )
            return None
        except (Unreachable, HTTPError) as error:  # trying again at once would not help
            return _one_line(error)
        except (RequestException, ValueError) as error:  # broken off, or other bytes than the published ones
            failure = _one_line(error)
        except OSError as error:
            raise DownloadError(f"cannot write {target}: {error}; choose another folder with $WTAWP_HOME") from error
    return failure


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
