"""Looking at a model somewhere else than where it is, and leaving it as it was."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor

from wtawp.core import copy_into


@contextmanager
def shifted_weights(theta: Mapping[str, Tensor], by: Mapping[str, Tensor]) -> Iterator[None]:
    """Inside, the tensors of `theta` are moved in place; outside, they are what they were, bit for bit."""
    kept = {n: theta[n].detach().clone() for n in by}
    try:
        copy_into(theta, {n: w + by[n] for n, w in kept.items()})
        yield
    finally:
        copy_into(theta, kept)
