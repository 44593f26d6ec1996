"""Dropout whose mask is a function of (run's seed, epoch, pass, layer, position), and of nothing else.

A run therefore drops the same units alone or in a stack of two hundred, on the whole graph or on a block of it, on the
CPU or on a GPU. The training loop sets the key of the masks with `masks(key)`; outside of it, torch's global generator
draws the key. Masks are not stored for the backward pass but computed again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from wtawp.graphs.autograd_calls import call_function
from wtawp.graphs.splitmix64 import splitmix64
from wtawp.models import dropout_kernels


@dataclass
class _Stream:
    """The key of the masks in use, and how many masks were derived from it."""

    key: Tensor  # [] int64, of this run, this epoch and this pass; [b] for a stack of runs
    layer: int = field(default=0)


_STREAM: ContextVar[_Stream | None] = ContextVar("dropout stream", default=None)


@contextmanager
def masks(key: Tensor) -> Iterator[None]:
    """Derive the masks of all calls of `dropout` in a `with` block from a key; the calls are numbered as layers.

    Args:
        key: An int64 scalar, or [b] for a stack of models, one key for each.
    """
    token = _STREAM.set(_Stream(key))
    try:
        yield
    finally:
        _STREAM.reset(token)


def dropout(
    x: Tensor, p: float, training: bool, *, positions: Tensor | None = None
) -> Tensor:  # [..., n, h] -> [..., n, h]
    """Apply inverted dropout: set units to zero with probability p and divide the others by 1 - p.

    Args:
        x: Units, [..., n, h].
        p: Probability of dropping a unit, in [0, 1).
        training: Whether to drop anything; False returns x.
        positions: Positions of the rows in the whole graph, [n], from which the mask is derived; None if x is the
            whole graph.

    Returns:
        The units, [..., n, h]; with a stack of models, [b, n, h].
    """
    if not training or p == 0:
        return x
    if positions is None:
        positions = torch.arange(x.shape[-2], device=x.device)
    out: Tensor = call_function(_Dropout, x, next_key(x.device), positions, p)
    return out


def normal(x: Tensor, *, positions: Tensor | None = None) -> Tensor:  # [..., n, h] -> [..., n, h]
    """Draw standard normal numbers by the method of Box and Muller; like a mask, a function of key and position only.

    Args:
        x: Units whose shape and dtype the draws have, [..., n, h].
        positions: Positions of the rows in the whole graph, as in `dropout`.

    Returns:
        The draws, [..., n, h].
    """
    if positions is None:
        positions = torch.arange(x.shape[-2], device=x.device)
    place = positions[:, None] * x.shape[-1] + torch.arange(x.shape[-1], device=x.device)
    first, second = (dropout_kernels.hashed(place, next_key(x.device)[..., None, None]) for _ in range(2))
    length = (-2 * ((first + 1).double() / 2**32).log()).sqrt()
    return (length * (2 * torch.pi * second.double() / 2**32).cos()).to(x.dtype)


def next_key(device: torch.device) -> Tensor:  # -> [], or [b] inside a stack
    """Return the key of the next mask: derived inside `masks`, else drawn from torch's global generator."""
    stream = _STREAM.get()
    if stream is None:
        return torch.randint(-(1 << 63), (1 << 63) - 1, (), device=device)
    stream.layer += 1
    return splitmix64(stream.key + stream.layer * 0x9E3779B9)


class _Dropout(torch.autograd.Function):
    """x [n, h] or [b, n, h], key [] or [b] -> x * mask / (1 - p). The derivative is the same function."""

    @staticmethod
    def forward(x: Tensor, key: Tensor, positions: Tensor, p: float) -> Tensor:
        stack, keys = (x, key) if x.dim() == 3 else (x[None], key.reshape(-1))
        out = dropout_kernels.apply(stack, keys, positions, p)
        return out if x.dim() == 3 or key.dim() == 1 else out[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, float], output: Tensor) -> None:  # noqa: ARG004
        x, key, positions, ctx.p = inputs
        ctx.shared = x.dim() == 2 and key.dim() == 1
        ctx.save_for_backward(key, positions)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        key, positions = ctx.saved_tensors
        back = call_function(_Dropout, grad, key, positions, ctx.p)
        return (back.sum(0) if ctx.shared else back), None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], x: Tensor, key: Tensor, positions: Tensor, p: float
    ) -> tuple[Tensor, int]:
        x = x if in_dims[0] is None else x.movedim(in_dims[0], 0)
        key = key.expand(info.batch_size) if in_dims[1] is None else key
        return call_function(_Dropout, x, key, positions, p), 0
