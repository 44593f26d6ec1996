"""The one place where edges become operators: outside `models` everybody calls `model(x, edge_index, edge_weight)`."""

from collections.abc import Callable
from weakref import ref

import torch
from torch import Tensor

Build = Callable[[Tensor, Tensor | None, int, torch.dtype], Tensor]


class OperatorCache:
    """Builds a model's operator from edges and keeps the last one, for as long as the same edges come in.

    Edge weights that need gradients are never cached: their operator belongs to one graph of computation.
    """

    def __init__(self, build: Build) -> None:
        self.build = build
        self._key: tuple[object, ...] = ()
        self._seen: tuple[ref[Tensor], ...] = ()
        self._operator: Tensor | None = None

    def __call__(self, edge_index: Tensor, edge_weight: Tensor | None, x: Tensor) -> Tensor:
        if edge_index.is_sparse:
            return edge_index
        if edge_weight is not None and edge_weight.requires_grad:
            return self.build(edge_index, edge_weight, len(x), x.dtype)
        edges = [edge_index] if edge_weight is None else [edge_index, edge_weight]
        key = (len(x), x.dtype, *((t._version, t.device) for t in edges))
        same = len(self._seen) == len(edges) and all(r() is t for r, t in zip(self._seen, edges, strict=True))
        if self._operator is None or not same or key != self._key:
            self._operator = self.build(edge_index, edge_weight, len(x), x.dtype)
            self._key, self._seen = key, tuple(ref(t) for t in edges)
        return self._operator

    def __deepcopy__(self, memo: object) -> "OperatorCache":
        return OperatorCache(self.build)  # a copied model may live on another device, and builds its own
