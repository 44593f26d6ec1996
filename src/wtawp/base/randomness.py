"""Seeds and random generators derived from names, so that adding a run never changes another."""

import hashlib
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from wtawp.base.names import shortened

if TYPE_CHECKING:
    import torch


def checked_seed(seed: object, name: str = "seed") -> int:
    """Refuse what is not a whole number as a seed, and turn whole numbers of NumPy and torch into Python's.

    Numbers are derived from the text of a seed, so that 1.0 and True would silently give others than 1.

    Args:
        seed: What a user has passed.
        name: The name of the argument, for the message.

    Returns:
        The seed as an `int`.

    Raises:
        ValueError: If it is something else, such as a float, a boolean or None.

    Example:
        >>> import numpy as np
        >>> checked_seed(np.int64(3))
        3
    """
    is_boolean = isinstance(seed, bool) or str(getattr(seed, "dtype", "")) in ("bool", "torch.bool")
    try:
        if not is_boolean:
            return operator.index(seed)  # type: ignore[arg-type]
    except TypeError:
        pass
    raise ValueError(f"{name} must be a whole number, such as 0, got {shortened(repr(seed), 60)}")


def seed_of(*names: str | int) -> int:
    """Derive a seed from names.

    Args:
        *names: Words and numbers that together identify the use of the random numbers.

    Returns:
        A number of 56 bits, which depends on the names and their order alone.

    Raises:
        ValueError: If a name is neither a word nor a whole number.

    Example:
        >>> seed_of("split", "cora", 3)
        15076007366361354
    """
    digest = hashlib.sha256("/".join(map(_word, names)).encode()).digest()
    return int.from_bytes(digest[:7], "big")


def _word(name: str | int) -> str:
    """One of the names that random numbers are derived from, as text."""
    return name if isinstance(name, str) else str(checked_seed(name, "each name that is not a word"))


def rng(*names: str | int, device: "str | torch.device" = "cpu") -> "torch.Generator":
    """Make a random generator with a seed derived from names, so that adding a run never changes another.

    Args:
        *names: Words and numbers that together identify the use of the random numbers.
        device: The device of the tensors that will be drawn.

    Returns:
        A new generator.

    Raises:
        ValueError: If a name is neither a word nor a whole number.

    Example:
        >>> import torch
        >>> bool(torch.rand(1, generator=rng("split", "cora", 3)) == torch.rand(1, generator=rng("split", "cora", 3)))
        True
    """
    import torch

    return torch.Generator(device).manual_seed(seed_of(*names))


@contextmanager
def isolated_rng(*names: str | int) -> Iterator[None]:
    """Seed torch's global random state from names, and restore it at the end as if nothing had been drawn.

    This is for modules that draw from the global state and accept no generator, such as `F.dropout`.

    Args:
        *names: Words and numbers that together identify the use of the random numbers.

    Returns:
        A context manager, for the CPU and all CUDA devices.
    """
    import torch

    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed_of(*names))
        yield
