"""Imports that are made when a name is first used, and faster imports of large libraries."""

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module


@contextmanager
def fast_imports() -> Iterator[None]:
    """Import large libraries inside of this context faster, in a process that uses them until it ends.

    An import of torch creates hundreds of thousands of objects that live as long as the process. The garbage collector
    would examine them several times while they are created, and once more when the process ends. Inside of the context
    it is off, and afterwards it leaves alone all that is there. Together that is a third of the time of such an import.

    Returns:
        A context manager, for programs of one's own: in a process of somebody else, it would keep garbage for ever.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def lazy_exports(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Make a module-level `__getattr__` that imports each public name of a package when it is first used.

    Args:
        package: The package's `__name__`.
        homes: Each public name and the module of the package that defines it, as in {"GCN": "gcn"}.

    Returns:
        A function to assign to `__getattr__` in the package's `__init__`.

    Raises:
        AttributeError: By the returned function, for a name that is not in `homes`.

    Example:
        >>> __getattr__ = lazy_exports("wtawp.core", {"AwpConfig": "config"})
    """

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(homes)}")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)  # the next use finds it without coming here
        return value

    return get
