"""What must hold while a module of anybody is evaluated: evaluation mode, and no layer that caches the first graph."""

from collections.abc import Iterator
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
        cached = getattr(module, "cached", False)
        if isinstance(cached, int) and cached:  # a module may well have a method of that name
            layer = f"{type(victim).__name__}.{name}" if name else "the model"
            raise WtawpError(
                f"{layer}, a {type(module).__name__}, keeps the graph it saw first (cached=True) and would ignore every"
                " change of it; build it with cached=False (its weights can be loaded into that)"
            )
