"""Evaluate a model at other weights than its own, and restore its weights afterwards."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor

from wtawp.core import copy_into


@contextmanager
def shifted_weights(theta: Mapping[str, Tensor], by: Mapping[str, Tensor]) -> Iterator[None]:
    """Shift weights in place, and restore them bit for bit at the end, also after an exception.

    Args:
        theta: The weights of a model by name.
        by: What is added to some of them.

    Returns:
        A context manager.

    Example:
        >>> import torch
        >>> weight = torch.tensor([1.0, 2.0])
        >>> with shifted_weights({"w": weight}, {"w": torch.ones(2)}):
        ...     print(weight)
        tensor([2., 3.])
    """
    before = {n: theta[n].detach().clone() for n in by}
    try:
        copy_into(theta, {n: w + by[n] for n, w in before.items()})
        yield
    finally:
        copy_into(theta, before)
