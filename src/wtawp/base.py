"""What every level may use: errors and warnings a caller may want to catch, random numbers from names, our folder."""

import hashlib
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
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


class VanishingGradientMonitor:
    """Warns once, if the perturbed gradient has vanished at three looks in a row while there is much left to learn.

    It looks at the first step and at every tenth, because a look waits for a GPU. Vanished means: shorter than 1e-4 of
    the natural one; or under 1/20 of its own first length and, so measured, under half of the natural one's. Much is
    left as long as the loss is above 0.8 of the first one.
    """

    EVERY, LOOKS = 10, 3
    NOTHING, FALLEN, MORE, LEFT = 1e-4, 0.05, 0.5, 0.8

    def __init__(self) -> None:
        self.steps = self.in_a_row = 0
        self.first: tuple[float, float, float] | None = None  # natural and perturbed length, and the loss

    def __call__(self, natural: Iterable[Tensor], perturbed: Iterable[Tensor], loss: Tensor, what: object) -> None:
        """Told the gradients and the natural loss of each step; `what` is to be named in the warning."""
        self.steps += 1
        looks = self.steps == 1 or self.steps % self.EVERY == 0
        is_captured = torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()  # type: ignore[no-untyped-call]
        if not looks or self.in_a_row >= self.LOOKS or is_captured:
            return
        each = [[torch.linalg.vector_norm(t.detach()) for t in side] for side in (natural, perturbed)]
        if not all(each):
            return
        where = each[0][0].device
        lengths = [torch.stack([t.float().to(where) for t in side]).norm() for side in each]
        seen = torch.stack([*lengths, loss.detach().float().reshape(()).to(where)]).tolist()
        if self.look(*seen):
            assert self.first is not None
            warnings.warn(
                f"the gradient at the perturbed weights vanishes: its length was {self.first[1]:.2g} and is"
                f" {seen[1]:.2g} after {self.steps} steps, the natural one's {self.first[0]:.2g} and {seen[0]:.2g}, and"
                f" the loss {self.first[2]:.3g} and {seen[2]:.3g}, so the model may learn nothing. {what} is too much"
                " here: try a smaller rho, lam < 1, fewer layers, or balance=1",
                VanishingGradientWarning,
                stacklevel=3,
            )

    def look(self, natural: float, perturbed: float, loss: float) -> bool:
        """Told the lengths of both gradients, and the loss: whether it is the third time in a row that one vanished."""
        if not 0 < natural < float("inf"):
            return False
        self.first = self.first or (natural, perturbed, loss)
        long, short, high = self.first
        fallen = perturbed < self.FALLEN * short and perturbed * long < self.MORE * natural * short
        is_learnt = high > 0 and loss < self.LEFT * high  # of a loss below 0 nobody knows how much is left
        is_vanished = (perturbed < self.NOTHING * natural or fallen) and not is_learnt
        self.in_a_row = self.in_a_row + 1 if is_vanished else 0
        return self.in_a_row == self.LOOKS


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


def write_atomic(path: Path, content: bytes) -> None:
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
def isolated_rng(*what: str | int) -> Iterator[None]:
    """Inside, torch's global random state follows from `what`; outside, it is as if nothing had been drawn.

    For modules that draw from the global state and take no generator, such as `F.dropout`.
    """
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed_of(*what))
        yield


def resolve(reference: str) -> object:
    """Import what a reference of the form "package.module:name" names.

    Registries hold such references, so that reading a registry imports nothing that computes.

    Args:
        reference: Module and attribute, separated by a colon.

    Returns:
        The attribute of the module.

    Raises:
        ImportError: If the module does not exist, or has no such attribute.

    Example:
        >>> resolve("math:sqrt")(4.0)
        2.0
    """
    module, _, name = reference.partition(":")
    try:
        return getattr(import_module(module), name)
    except AttributeError as error:
        raise ImportError(f"module {module} has no attribute {name!r}") from error


def lazy_exports(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """A module-level `__getattr__` that imports each public name of a package when it is first used.

    Args:
        package: The package's `__name__`.
        homes: Each public name and the module of the package that defines it, as in {"GCN": "gcn"}.

    Returns:
        A function to assign to `__getattr__` in the package's `__init__`.

    Example:
        >>> __getattr__ = lazy_exports("wtawp.core", {"AwpConfig": "config"})
    """

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(homes)}")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)  # the next use finds it without coming here
        return value

    return get
