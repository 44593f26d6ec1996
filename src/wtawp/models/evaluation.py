"""Evaluate any module: switch to evaluation mode, and refuse layers that cached another graph."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import nn

from wtawp.base import WtawpError


@contextmanager
def evaluating(victim: object) -> Iterator[None]:
    """Put a module into evaluation mode inside a `with` block; afterwards each submodule has the mode it had before.

    Args:
        victim: A module. Any other callable has no mode and is left as it is.
    """
    modes = [(module, module.training) for module in victim.modules()] if isinstance(victim, nn.Module) else []
    for module, _ in modes:
        module.training = False
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def refuse_cached(victim: object) -> None:
    """Refuse a module with a layer that caches the first graph (PyG's `cached=True`): it would ignore every change.

    Args:
        victim: A module. Any other callable is accepted.

    Raises:
        WtawpError: If a layer caches its graph; the message names the layer.
    """
    for name, module in victim.named_modules() if isinstance(victim, nn.Module) else ():
        if _is_caching(module):
            layer = f"{type(victim).__name__}.{name}" if name else "the model"
            raise WtawpError(
                f"{layer}, a {type(module).__name__}, keeps the graph it saw first (cached=True) and would ignore every"
                " change of it; build it with cached=False (its weights can be loaded into that)"
            )


@contextmanager
def without_cached_graphs(models: Sequence[nn.Module], *, is_one_graph: bool = False) -> Iterator[None]:
    """Empty the caches of layers that keep their first graph (PyG's `cached=True`), before a `with` block and after it.

    Args:
        models: Modules, ours or of users.
        is_one_graph: Whether all calls inside the block are on one graph, so that layers may cache that one. Otherwise
            they cache nothing inside the block.

    Raises:
        WtawpError: If a layer says that it caches its graph, and has none of the attributes in which PyG's layers do.
    """
    caching = [module for model in models for module in model.modules() if _is_caching(module)]
    for module in caching:
        if not any(name.startswith("_cached_") for name in vars(module)):
            refuse_cached(module)
    flags = [(module, module.cached) for module in caching]
    try:
        for module in caching:
            _empty_caches(module)
            module.__dict__["cached"] = is_one_graph
        yield
    finally:
        for module, flag in flags:
            _empty_caches(module)
            module.__dict__["cached"] = flag


def _is_caching(module: nn.Module) -> bool:
    """Whether a layer keeps the first graph it sees; a module may well have a method called `cached`."""
    flag = getattr(module, "cached", False)
    return isinstance(flag, int) and bool(flag)


def _empty_caches(module: nn.Module) -> None:
    """Forget what a layer of PyG has cached: its normalised edges, or its features after propagation."""
    vars(module).update({name: None for name in vars(module) if name.startswith("_cached_")})
