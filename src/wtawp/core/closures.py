"""What the caller passes to a step: a closure that computes the loss, and a function that differentiates it."""

import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from wtawp.core.layers import unwrapped

Closure = Callable[[], Tensor]
Backward = Callable[[Tensor], object]

_LOCKS: weakref.WeakKeyDictionary[nn.Module, AbstractContextManager[Any]] = weakref.WeakKeyDictionary()


def one_step_at_a_time(model: nn.Module) -> AbstractContextManager[Any]:
    """The lock of a model: while one thread has moved its weights, steps of other threads wait.

    Args:
        model: The module that is trained.

    Returns:
        A lock, which the thread that holds it may take again.
    """
    try:
        return _LOCKS[model]
    except KeyError:  # a wrapper, such as DataParallel, moves the weights of the module inside
        lock = _LOCKS.setdefault(unwrapped(model), threading.RLock())
        return _LOCKS.setdefault(model, lock)


def call(closure: Closure, parameters: Sequence[Tensor]) -> Tensor:
    """Call a closure and check that it kept to the rules.

    Args:
        closure: Computes and returns one fresh loss.
        parameters: Parameters to whose `.grad` the closure must not add.

    Returns:
        The loss.

    Raises:
        ValueError: If the closure called `backward` itself, or did not return a loss with one element that can be
            differentiated.
    """
    if not callable(closure):
        raise ValueError(f"pass a function that computes the loss, awp.backward(lambda: ...), not {type(closure)}")
    torch.clear_autocast_cache()  # it holds low-precision copies of the weights, which have changed
    before: dict[Tensor, tuple[Tensor, int]] = {}
    for p in parameters:
        if (gradient := p.grad) is not None:
            before[p] = gradient, gradient._version
    loss = closure()
    for p in parameters:
        if (gradient := p.grad) is not None and _has_grown(gradient, before.get(p)):
            raise ValueError("the closure called backward() itself; let it only compute and return the loss")
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        got = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)
        raise ValueError(f"the closure must return the loss as a tensor with one element, got {got}")
    if not loss.requires_grad:
        raise ValueError("the closure returned a detached loss; compute it without .detach() or torch.no_grad()")
    return loss


def _has_grown(gradient: Tensor, before: tuple[Tensor, int] | None) -> bool:
    """Whether something was added to a gradient; `zero_grad` does not count."""
    if before is not None and gradient is before[0] and gradient._version == before[1]:
        return False
    return before is None or gradient.is_sparse or bool(gradient.any())
