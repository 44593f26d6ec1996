"""What every level may use: errors and warnings a caller may want to catch, random numbers from names, our folder."""

import hashlib
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor


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


class VanishingGradientWarning(UserWarning):
    """The gradient at the perturbed weights vanishes while the natural one does not: the perturbation is too large."""


class VanishingWatch:
    """Warns once, if the perturbed gradient has vanished at three looks in a row while the natural one has not.

    It looks at the first step and at every tenth, because a look waits for a GPU. Vanished means: shorter than 1e-4 of
    the natural one; or shorter than it, and as a share of it under 1/20 of what it was at the first step. (A gradient
    at higher ground is the longer one, unless the perturbed model learns nothing.)
    """

    EVERY, LOOKS = 10, 3
    NOTHING, FALLEN = 1e-4, 0.05  # shares of the natural length, and of the first such share
    GONE = 1e-3  # of the natural gradient's first length: where it is shorter, it has vanished too

    def __init__(self) -> None:
        self.steps = self.in_a_row = 0
        self.first: tuple[float, float] | None = None  # natural length, and the perturbed one as a share of it

    def __call__(self, natural: Iterable[Tensor], perturbed: Iterable[Tensor], what: object) -> None:
        """Told the gradients of each step; `what` is to be named in the warning."""
        self.steps += 1
        looks = self.steps == 1 or self.steps % self.EVERY == 0
        is_captured = torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()  # type: ignore[no-untyped-call]
        if not looks or self.in_a_row >= self.LOOKS or is_captured:
            return
        each = [[torch.linalg.vector_norm(t.detach()) for t in side] for side in (natural, perturbed)]
        if not all(each):
            return
        where = each[0][0].device
        long, short = torch.stack([torch.stack([t.float().to(where) for t in side]).norm() for side in each]).tolist()
        if not 0 < long < float("inf"):
            return
        self.first = self.first or (long, short / long)
        fallen = short < long and short / long < self.FALLEN * self.first[1]
        is_vanished = (short < self.NOTHING * long or fallen) and long >= self.GONE * self.first[0]
        self.in_a_row = self.in_a_row + 1 if is_vanished else 0
        if self.in_a_row == self.LOOKS:
            warnings.warn(
                f"the gradient at the perturbed weights vanishes: it is {short / long:.2g} times as long as the natural"
                f" one, and was {self.first[1]:.2g} at first, so the model may learn nothing from it. {what} is too"
                " much here: try a smaller rho, lam < 1, fewer layers, or balance=1",
                VanishingGradientWarning,
                stacklevel=3,
            )


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
