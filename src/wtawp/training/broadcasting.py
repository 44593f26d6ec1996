"""Refuse a loss or a metric in which every output meets every target: [k, 1] beside [k] makes torch compute [k, k].

Such a function returns a number that looks right and is not. Torch warns of it in three of its losses alone.
"""

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from wtawp.base import DataError

T = TypeVar("T")


def could_broadcast(output: Tensor, target: Tensor) -> bool:
    """Whether an output and a target are one number for each sample, one of them as a column.

    Args:
        output: The rows of one model, [k, ...].
        target: Their targets, [k, ...].

    Returns:
        True for [k, 1] and [k] in either order, with several samples.

    Example:
        >>> import torch
        >>> could_broadcast(torch.zeros(3, 1), torch.zeros(3)), could_broadcast(torch.zeros(3, 2), torch.zeros(3))
        (True, False)
    """
    return len(output) > 1 and {output.shape, target.shape} == {(len(output), 1), (len(output),)}


def call_checked(function: Callable[[Tensor, Tensor], T], output: Tensor, target: Tensor, name: str) -> T:
    """Call a function of outputs and targets once, and refuse it if torch broadcasts both to all of their pairs.

    A function that brings both into one shape first is accepted, and so is one that compares all pairs of outputs, or
    all pairs of targets.

    Args:
        function: The loss or the metric.
        output: The rows of one model, [k, 1] or [k].
        target: Their targets, [k] or [k, 1].
        name: What the function is, for the message.

    Returns:
        What the function returns.

    Raises:
        DataError: If an operation on the output and the target gives [k, k].

    Example:
        >>> import torch
        >>> call_checked(lambda output, target: (output[:, 0] - target).abs().mean(), torch.ones(3, 1),
        ...              torch.zeros(3), "metric")
        tensor(1.)
    """
    tracking = _OriginsMode(output, target)
    with _uncompiled(), tracking, suppress(_AllPairsError):
        value = function(output, target)
    if tracking.is_broadcast:
        column, index = ("output", "[:, None]") if output.dim() == 2 else ("target", "[:, 0]")
        raise DataError(
            f"{name} is called with an output of shape {list(output.shape)} and a target of shape"
            f" {list(target.shape)}, of which torch makes [{len(output)}, {len(output)}]: every output meets every"
            f" target. Write {column}[:, 0] in the function, or data.y = data.y{index} (for links,"
            " data.edge_label)"
        )
    return value


def _uncompiled() -> AbstractContextManager[object]:
    """Let compiled functions run as they are written, in which the operations can be followed."""
    if "torch._dynamo" not in sys.modules:  # importing it takes seconds, and without it nothing is compiled
        return nullcontext()
    stance: AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return stance


class _AllPairsError(Exception):
    """Ends a function before it computes [k, k] numbers, for which there may be no memory."""


class _OriginsMode(TorchFunctionMode):
    """Follows which tensors come from the output and which from the target, until one of each is broadcast."""

    def __init__(self, output: Tensor, target: Tensor) -> None:
        super().__init__()
        self.size, self.is_broadcast = len(output), False
        # The tensors are kept, so that no other one gets the id of one that is freed.
        self.origins: dict[int, tuple[Tensor, set[str]]] = {
            id(output): (output, {"output"}),
            id(target): (target, {"target"}),
        }

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Call the function, look at what it makes of an output and a target, and note where its result comes from."""
        given = list(_tensors((args, kwargs or {})))
        if self._is_mixed(given):
            try:
                with _MatrixMode(self.size), warnings.catch_warnings():
                    warnings.filterwarnings("ignore", "Using a target size")  # torch's own words, for three losses
                    result = func(*args, **(kwargs or {}))
            except _AllPairsError:
                self.is_broadcast = True  # also if the function of the caller catches the exception
                raise
        else:
            result = func(*args, **(kwargs or {}))
        origin = set().union(*(self._origin_of(t) for t in given))
        if origin:
            self.origins.update({id(t): (t, origin) for t in _tensors(result)})
        return result

    def _origin_of(self, tensor: Tensor) -> set[str]:
        """What a tensor was computed from."""
        return self.origins[id(tensor)][1] if id(tensor) in self.origins else set()

    def _is_mixed(self, tensors: list[Tensor]) -> bool:
        """Whether a column that comes from one of both meets a vector that comes from the other."""
        columns, vectors = (
            [self._origin_of(t) for t in tensors if t.shape == shape] for shape in ((self.size, 1), (self.size,))
        )
        return any(len(a) == len(b) == 1 and a != b for a in columns for b in vectors)


class _MatrixMode(TorchDispatchMode):
    """Ends a function of torch at the operation inside of it that gives [k, k]."""

    def __init__(self, size: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.size = size

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Refuse an operation on numbers that broadcasts a column and a vector, and any other that gives [k, k]."""
        shapes = {tuple(t.shape) for t in _tensors((args, kwargs or {}))}
        if torch.Tag.pointwise in func.tags and {(self.size, 1), (self.size,)} <= shapes:
            raise _AllPairsError
        result: object = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.shape == (self.size, self.size):
            raise _AllPairsError
        return result


def _tensors(value: object) -> Iterable[Tensor]:
    """The tensors in nested lists, tuples and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
