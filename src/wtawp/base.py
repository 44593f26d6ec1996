"""What every level may use: errors a caller may want to catch, random numbers derived from names, our folder."""

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch


class WtawpError(Exception):
    """The root of this package's own errors."""


class NotPerturbableError(WtawpError, ValueError):
    """The model has weights that cannot be perturbed, such as distributions."""


class DataError(WtawpError, ValueError):
    """A graph, a split or a data set's name is not what it must be."""


class AttackError(WtawpError):
    """A victim cannot be attacked as asked: it ignores the graph, or what it returns is not a number."""


class CertificateError(WtawpError):
    """A victim cannot be certified: what it returns is not a class for every node, or votes are of something else."""


class AnalysisError(WtawpError):
    """A model cannot be looked at as asked: its loss is not a number, or it cannot be differentiated by the graph."""


class DownloadError(WtawpError):
    """A data file is not here and could not be fetched."""


def home() -> Path:
    """Where results and downloads live: `$WTAWP_HOME`, or else the platform's user data folder."""
    if chosen := os.environ.get("WTAWP_HOME"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        parent = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        parent = Path.home() / "Library" / "Application Support"
    else:
        parent = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return parent / "wtawp"


def write_whole(path: Path, content: bytes) -> None:
    """Into a file that is there whole or not at all, also if we are killed on the way."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def seed_of(*what: str | int) -> int:
    """A 56-bit seed from names."""
    digest = hashlib.sha256("/".join(map(str, what)).encode()).digest()
    return int.from_bytes(digest[:7], "big")


def rng(*what: str | int, device: str | torch.device = "cpu") -> torch.Generator:
    """A generator whose seed is derived from names, so that adding a run never shifts another.

    >>> bool(torch.rand(1, generator=rng("split", "cora", 3)) == torch.rand(1, generator=rng("split", "cora", 3)))
    True
    """
    return torch.Generator(device).manual_seed(seed_of(*what))


@contextmanager
def fenced_rng(*what: str | int) -> Iterator[None]:
    """Inside, torch's global random state follows from `what`; outside, it is as if nothing had been drawn.

    For modules that draw from the global state and take no generator, such as `F.dropout`.
    """
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed_of(*what))
        yield
