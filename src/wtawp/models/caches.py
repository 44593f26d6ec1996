"""Caches of what models build from a graph. They hold one value: a training repeats the same graph many times."""

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import ref

import torch
from torch import Tensor

from wtawp.graphs.operator import Operator
from wtawp.models.capabilities import Features

Value = TypeVar("Value")


class LastCallCache(Generic[Value]):
    """Calls a function and keeps its last value, for as long as the same, unchanged tensors and operators come in.

    Tensors are compared by identity and version, other arguments by value. Calls with tensors that require gradients
    are never cached (the value belongs to one graph of computation), nor are calls with inference tensors, which do
    not count their changes. A copied or unpickled cache starts empty.

    Args:
        build: The function; it must return something other than None.
    """

    def __init__(self, build: Callable[..., Value]) -> None:
        self.build = build
        self._key: tuple[object, ...] | None = None
        self._held: tuple[ref[object], ...] = ()
        self._value: Value | None = None

    def __call__(self, *arguments: object) -> Value:
        held = [a for a in arguments if isinstance(a, Tensor | Operator)]
        tensors = [a.values if isinstance(a, Operator) else a for a in held]
        if any(t.is_inference() or t.requires_grad for t in tensors):
            return self.build(*arguments)
        # The other arguments, and at which positions the tensors are.
        others = tuple(Tensor if isinstance(a, Tensor | Operator) else a for a in arguments)
        key = (others, *((t._version, t.device) for t in tensors))
        same = len(self._held) == len(held) and all(r() is a for r, a in zip(self._held, held, strict=True))
        if self._value is None or not same or key != self._key:
            self._value = self.build(*arguments)
            self._key, self._held = key, tuple(ref(a) for a in held)
        return self._value

    def __reduce__(self) -> tuple[type["LastCallCache[Value]"], tuple[Callable[..., Value]]]:
        return LastCallCache, (self.build,)


class OperatorCache:
    """Builds a model's operator from edges, and keeps the last one as `LastCallCache` does.

    Args:
        build: Function of edges, edge weights, number of nodes and dtype, such as `gcn_operator`.
    """

    def __init__(self, build: Callable[[Tensor, Tensor | None, int, torch.dtype], Operator]) -> None:
        self._cache = LastCallCache(build)

    def __call__(self, edges: Tensor | Operator, edge_weight: Tensor | None, x: Features) -> Operator:
        """Return the operator of a graph; one that is an operator already is returned as it is.

        Args:
            edges: Edges [2, e], or the operator itself.
            edge_weight: Weights of the edges, [e]; None if all are 1.
            x: Features of the nodes; only their number and dtype count.

        Returns:
            The operator, [n, n].
        """
        if isinstance(edges, Operator):
            return edges
        dtype = x.values.dtype if isinstance(x, Operator) else x.dtype
        return self._cache(edges, edge_weight, x.shape[0], dtype)
