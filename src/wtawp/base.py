"""What every level may use: the errors a caller may want to catch, and random numbers derived from names."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class WtawpError(Exception):
    """The root of this package's own errors."""


class NotPerturbableError(WtawpError, ValueError):
    """The model has weights that cannot be perturbed, such as distributions."""


class DataError(WtawpError, ValueError):
    """A graph, a split or a data set's name is not what it must be."""


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
