"""Dropout whose mask is a function of (run's seed, epoch, pass, layer, position), and of nothing else.

So a run drops the same units alone or in a stack of two hundred, on the whole graph or on a block of it, on the CPU or
on a GPU. The training loop says which masks are due with `masks(...)`; without it, torch's global generator draws the
key. No mask is kept for the backward pass: it is computed again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from wtawp.models import dropout_kernels


@dataclass
class _Stream:
    key: Tensor  # [] int64, of this run, this epoch and this pass; [b] for a stack of runs
    layer: int = field(default=0)


_STREAM: ContextVar[_Stream | None] = ContextVar("dropout stream", default=None)


@contextmanager
def masks(key: Tensor) -> Iterator[None]:
    """Inside, each call of `dropout` takes the next layer's mask under `key`, an int64 scalar, or one a member."""
    token = _STREAM.set(_Stream(key))
    try:
        yield
    finally:
        _STREAM.reset(token)


def dropout(
    x: Tensor, p: float, training: bool, *, positions: Tensor | None = None
) -> Tensor:  # [..., n, h] -> [..., n, h]
    """Inverted dropout. `positions` are the rows' places in the whole graph, [n]; None if x is the whole graph."""
    if not training or p == 0:
        return x
    if positions is None:
        positions = torch.arange(x.shape[-2], device=x.device)
    out: Tensor = _Dropout.apply(x, next_key(x.device), positions, p)  # type: ignore[no-untyped-call]
    return out


def normal(x: Tensor, *, positions: Tensor | None = None) -> Tensor:  # [..., n, h] -> [..., n, h]
    """Standard normal draws in the shape of x, by Box and Muller; like a mask a function of key and position alone."""
    if positions is None:
        positions = torch.arange(x.shape[-2], device=x.device)
    place = positions[:, None] * x.shape[-1] + torch.arange(x.shape[-1], device=x.device)
    first, second = (dropout_kernels.hashed(place, next_key(x.device)[..., None, None]) for _ in range(2))
    length = (-2 * ((first + 1).double() / 2**32).log()).sqrt()
    return (length * (2 * torch.pi * second.double() / 2**32).cos()).to(x.dtype)


def next_key(device: torch.device) -> Tensor:  # -> [], or [b] inside a stack
    """The key of the next mask: the next layer's of the stream, or a draw of torch's global generator."""
    stream = _STREAM.get()
    if stream is None:
        return torch.randint(-(1 << 63), (1 << 63) - 1, (), device=device)
    stream.layer += 1
    return mixed(stream.key + stream.layer * 0x9E3779B9)


def mixed(key: Tensor) -> Tensor:
    """A bijection of 64-bit integers that leaves no pattern of its argument behind (the finaliser of splitmix64)."""
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        key = (key ^ _shifted(key, shift)) * factor
    return key ^ _shifted(key, 31)


def _shifted(key: Tensor, shift: int) -> Tensor:
    return (key >> shift) & ((1 << (64 - shift)) - 1)  # a logical shift: torch's is arithmetic


class _Dropout(torch.autograd.Function):
    """x [n, h] or [b, n, h], key [] or [b] -> x * mask / (1 - p). Its own derivative."""

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
        back = _Dropout.apply(grad, key, positions, ctx.p)  # type: ignore[no-untyped-call]
        return (back.sum(0) if ctx.shared else back), None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], x: Tensor, key: Tensor, positions: Tensor, p: float
    ) -> tuple[Tensor, int]:
        x = x if in_dims[0] is None else x.movedim(in_dims[0], 0)
        key = key.expand(info.batch_size) if in_dims[1] is None else key
        return _Dropout.apply(x, key, positions, p), 0  # type: ignore[no-untyped-call]
