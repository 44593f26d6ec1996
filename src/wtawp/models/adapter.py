"""The one place where edges become operators: outside `models` everybody calls `model(x, edge_index, edge_weight)`.

Our modules take more than edges: an `Operator` in their place, sparse features in the place of x, and blocks that
compute some rows only. `prepare` asks a module for such arguments; any other module gets the graph as it is.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable
from weakref import ref

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.base import DataError, WtawpError
from wtawp.graphs.blocks import Blocks
from wtawp.graphs.collection import is_collection, select_graphs
from wtawp.graphs.operator import Operator, sparse_features
from wtawp.graphs.products import Multiplies

Build = Callable[[Tensor, Tensor | None, int, torch.dtype], Operator]
Features = Tensor | Operator
Built = TypeVar("Built")
SPARSE_BELOW = 0.2  # share of non-zeros under which features are cheaper as an operator


@runtime_checkable
class StackAware(Protocol):
    """A module that can arrange its own inputs for computing some rows of the logits.

    Its `forward` takes a stack of models as well: parameters with one more dimension in front give logits with one
    more in front. And it draws masks from `dropout` alone.
    """

    def prepare(self, x: Tensor, edge_index: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """Arguments for `forward` that give the logits of `rows`, in their order; None asks for all."""
        ...


@runtime_checkable
class StackAwareOnGraphs(Protocol):
    """A module that classifies whole graphs, called as `model(x, edge_index, batch)`; otherwise as `StackAware`."""

    def prepare_graphs(self, x: Tensor, edge_index: Tensor, batch: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """Arguments for `forward` that give the logits of the graphs `rows`, in their order; None asks for all."""
        ...


@runtime_checkable
class HasExtraLoss(Protocol):
    """A module with a term of its own beside the cross-entropy.

    Its `forward` takes `with_extra_loss=True` and then returns the logits and the term, of one pass and its masks: a
    scalar, or [b] for a stack. Training adds the term to the loss of the natural weights alone, not of perturbed ones.
    """

    def extra_loss(self, *arguments: object) -> Tensor:
        """The term alone, for the arguments of `forward`."""
        ...


@dataclass(frozen=True)
class Normalised:
    """A view of the graph: D^power (A + I) D^power, what `gcn_operator` builds."""

    power: float = -0.5


@dataclass(frozen=True)
class Truncated:
    """A view of the graph: the adjacency matrix cut down to `rank` and normalised, as `low_rank_operator` does."""

    rank: int


View = Normalised | Truncated


@runtime_checkable
class SupportsFactoredGradient(Protocol):
    """A module that reaches the graph only through products `view @ factor`, with views that it names.

    The gradient with respect to any entry (i, j) of a view is then the sum over its products of row i of the gradient
    at the product, times row j of the factor: thin factors, from which attacks see all pairs of nodes. Such a module
    takes a stack of models as `StackAware` says.
    """

    def views(self) -> tuple[View, ...]:
        """What it sees of the graph. None at all: it has a setting that cannot be shown so."""
        ...

    def through(self, x: Features, views: tuple[Multiplies, ...]) -> tuple[object, ...]:
        """Arguments for `forward`, with these in the place of what `views` names."""
        ...


PairFilter = Callable[[int, int], Tensor]  # the first row and the one after the last -> [rows, n] bool


@runtime_checkable
class Filters(Protocol):
    """A module with a factored gradient whose views omit some edges: pairs of nodes that it never joins."""

    def pair_filter(self, x: Features) -> PairFilter:
        """Which pairs pass, some rows of the n x n of them at a time."""
        ...


@runtime_checkable
class StacksConvolutions(Protocol):
    """A module that in evaluation mode is graph convolutions A_hat (X W) + b with ReLU between them, and nothing else.

    A_hat is that of `gcn_operator`. Votes under noise then share what noise leaves alone, and go around the module.
    """

    def convolutions(self) -> list[tuple[Tensor, Tensor]]:
        """The weight [d_in, d_out] and the bias [d_out] of each."""
        ...


@contextmanager
def evaluating(victim: object) -> Iterator[None]:
    """Inside, a module is in evaluation mode; afterwards each of its modules is in the mode it was in."""
    modes = [(module, module.training) for module in victim.modules()] if isinstance(victim, nn.Module) else []
    for module, _ in modes:
        module.training = False
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def refuse_cached(victim: object) -> None:
    """A layer that keeps the first graph it saw (PyG's `cached=True`) would not notice that the graph was changed."""
    for name, module in victim.named_modules() if isinstance(victim, nn.Module) else ():
        cached = getattr(module, "cached", False)
        if isinstance(cached, int) and cached:  # a module may well have a method of that name
            layer = f"{type(victim).__name__}.{name}" if name else "the model"
            raise WtawpError(
                f"{layer}, a {type(module).__name__}, keeps the graph it saw first (cached=True) and would ignore every"
                " change of it; build it with cached=False (its weights can be loaded into that)"
            )


def prepare(model: nn.Module, data: Data, rows: Tensor | None) -> tuple[tuple[object, ...], Tensor | None]:
    """Arguments for `model`, and the rows still to be taken from what it returns (None: it returns just those)."""
    check_kind(model, data)
    if isinstance(model, StackAwareOnGraphs):
        return model.prepare_graphs(data.x, data.edge_index, data.batch, rows), None
    if isinstance(model, StackAware):
        return model.prepare(data.x, data.edge_index, rows), None
    if is_collection(data) and rows is not None:  # a batch norm must not see the graphs that validate and test
        return arguments_of(select_graphs(data, rows)), None
    return arguments_of(data), rows


def arguments_of(data: Data) -> tuple[object, ...]:
    """What any module is called with: nodes and edges, and of a collection the graph of each node."""
    return (data.x, data.edge_index, data.batch) if is_collection(data) else (data.x, data.edge_index)


def check_kind(model: nn.Module, data: Data) -> None:
    """Refuse a module of ours that classifies nodes where graphs are to be classified, and the other way round."""
    name = type(model).__name__
    if isinstance(model, StackAware) and is_collection(data):
        raise DataError(f"{name} classifies nodes and these are graphs to classify; take PooledGCN, PooledGIN, ...")
    if isinstance(model, StackAwareOnGraphs) and not is_collection(data):
        raise DataError(f"{name} classifies whole graphs and this is one graph; pass a list of graphs, or take GCN")


def features(x: Tensor, rows: Tensor | None = None, *, dropped: bool = False) -> Features:
    """Features, of `rows` alone if given, in the form that multiplies fastest: of bags of words the non-zeros alone.

    On a GPU a dense product over all models wins, unless each model drops entries of its own (`dropped`). What comes
    as a sparse tensor stays sparse everywhere.
    """
    if x.layout != torch.strided:
        x = x if rows is None else x.to_sparse().index_select(0, rows)
        return sparse_features(x)
    x = x if rows is None else x[rows]
    if (x.device.type == "cpu" or dropped) and float((x != 0).float().mean()) < SPARSE_BELOW:
        return sparse_features(x)
    return x


def operators_by_layer(
    edges: Tensor | Operator | Multiplies | Blocks,
    edge_weight: Tensor | None,
    x: Features,
    cache: "OperatorCache",
    depth: int,
) -> list[tuple[Operator | Multiplies, Tensor | None]]:
    """Each layer's operator, and the places of its output in the whole graph (None: it is the whole graph)."""
    if isinstance(edges, Tensor | Operator):
        return [(cache(edges, edge_weight, x), None)] * depth
    if not isinstance(edges, Blocks):
        return [(edges, None)] * depth
    if len(edges.operators) != depth:
        raise ValueError(
            f"{depth} layers need blocks of {depth} hops, got {len(edges.operators)};"
            f" use receptive_field(operator, rows, {depth})"
        )
    return list(zip(edges.operators, edges.nodes[1:], strict=True))


class OperatorCache:
    """Builds a model's operator from edges and keeps the last one, for as long as the same edges come in.

    Edge weights that need gradients are never cached: their operator belongs to one graph of computation.
    """

    def __init__(self, build: Build) -> None:
        self.build = build
        self._key: tuple[object, ...] = ()
        self._seen: tuple[ref[Tensor], ...] = ()
        self._operator: Operator | None = None

    def __call__(self, edges: Tensor | Operator, edge_weight: Tensor | None, x: Features) -> Operator:
        if isinstance(edges, Operator):
            return edges
        size, dtype = x.shape[0], x.values.dtype if isinstance(x, Operator) else x.dtype
        if edges.is_inference() or (edge_weight is not None and edge_weight.requires_grad):
            return self.build(edges, edge_weight, size, dtype)
        given = [edges] if edge_weight is None else [edges, edge_weight]
        key = (size, dtype, *((t._version, t.device) for t in given))
        same = len(self._seen) == len(given) and all(r() is t for r, t in zip(self._seen, given, strict=True))
        if self._operator is None or not same or key != self._key:
            self._operator = self.build(edges, edge_weight, size, dtype)
            self._key, self._seen = key, tuple(ref(t) for t in given)
        return self._operator

    def __reduce__(self) -> tuple[type["OperatorCache"], tuple[Build]]:
        return OperatorCache, (self.build,)  # a copied or saved model builds its own operator, where it then lives


class LastCallCache(Generic[Built]):
    """Keeps what was last built, for as long as the same tensors and operators come in, unchanged.

    Tensors that need gradients are never cached, as in `OperatorCache`.
    """

    def __init__(self, build: Callable[..., Built]) -> None:
        self.build = build
        self._key: tuple[object, ...] | None = None
        self._seen: tuple[ref[object], ...] = ()
        self._built: Built | None = None

    def __call__(self, *given: object) -> Built:
        held = [g for g in given if isinstance(g, Tensor | Operator)]
        tensors = [g.values if isinstance(g, Operator) else g for g in held]
        if any(t.is_inference() or t.requires_grad for t in tensors):
            return self.build(*given)
        others = tuple(Tensor if isinstance(g, Tensor | Operator) else g for g in given)  # and where tensors stand
        key = (others, *((t._version, t.device) for t in tensors))
        same = len(self._seen) == len(held) and all(r() is g for r, g in zip(self._seen, held, strict=True))
        if self._built is None or not same or key != self._key:
            self._built = self.build(*given)
            self._key, self._seen = key, tuple(ref(g) for g in held)
        return self._built

    def __reduce__(self) -> tuple[type["LastCallCache[Built]"], tuple[Callable[..., Built]]]:
        return LastCallCache, (self.build,)
