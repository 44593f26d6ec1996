"""Hashes of code that users wrote, so that a run of other code is another run.

The hash of a model covers its module and all modules that this one imports, directly or through others, as far as they
belong to the user: outside of the standard library, of `site-packages` and of this package.
"""

import ast
import hashlib
import sys
from collections.abc import Iterator
from importlib import invalidate_caches
from importlib.machinery import PathFinder
from importlib.util import find_spec, resolve_name
from pathlib import Path

MEASURE_REFERENCES: dict[str, str] = {}  # of the functions of measures that users registered, by name of the measure
_INSTALLED = {"site-packages", "dist-packages"}  # folders of packages that nobody edits


def add_cwd_to_sys_path() -> None:
    """Make modules of the working folder importable, as `python -m` does and an installed command does not."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    invalidate_caches()  # files may have appeared since


def source_digest(reference: str) -> str | None:
    """The hash of the source of a user's model, attack or data, with all of the user's modules that it imports.

    Imports are read from the source, and nothing is run. A module that is imported under a name that is computed, and
    files that the code reads, are not covered.

    Args:
        reference: "package.module:name"; the module may be the program itself.

    Returns:
        16 hexadecimal digits; None where there is no source, or no such module (which is refused later).
    """
    files = user_sources(reference.partition(":")[0])
    if not files:
        return None
    digests = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    if len(digests) == 1:
        return next(iter(digests.values()))[:16]
    return hashlib.sha256("".join(f"{name} {digests[name]}\n" for name in sorted(digests)).encode()).hexdigest()[:16]


def user_sources(module: str) -> dict[str, Path]:
    """Find the files of a module, of its packages, and of all modules of the user that they import.

    Args:
        module: The name of a module, which may be the program itself, "__main__".

    Returns:
        The files by the names of their modules; empty where the module has no source.
    """
    add_cwd_to_sys_path()
    files: dict[str, Path] = {}
    waiting, seen = [module], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        path = _file_of(name)
        if path is not None:
            files[name] = path
            others = [name.rpartition(".")[0], *_imports(path, name)]
            waiting += [other for other in others if other and _is_of_user(other)]
        elif name == module:
            return {}
    return files


def _is_of_user(name: str) -> bool:
    """Whether a module can be the user's: not of the standard library, not installed, and not of this package."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or top == __name__.partition(".")[0]:
        return False
    try:
        spec = find_spec(top)  # imports nothing, because the name has no dot
    except (ImportError, ValueError):
        return False
    if spec is None:
        return False
    places = [spec.origin] if spec.has_location else list(spec.submodule_search_locations or ())
    return bool(places) and not any(_INSTALLED.intersection(Path(place or "").parts) for place in places)


def _file_of(name: str) -> Path | None:
    """The file of a module, found without importing its packages; None if it has none, or there is no such module."""
    loaded = getattr(sys.modules.get(name), "__file__", None)  # also of the program itself, __main__
    if loaded is None:
        top, *others = name.split(".")
        try:
            spec = find_spec(top)
        except (ImportError, ValueError):
            return None
        for other in others:
            if spec is None or spec.submodule_search_locations is None:
                return None
            # By its last name, because a full one makes the finder import packages that have no __init__.py.
            spec = PathFinder.find_spec(other, list(spec.submodule_search_locations))
        loaded = None if spec is None or not spec.has_location else spec.origin
    return Path(loaded) if loaded is not None and Path(loaded).is_file() else None


def _imports(path: Path, name: str) -> Iterator[str]:
    """The names of the modules that a file may import; some of them may be functions or classes of a module."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # it is refused when it is imported
        return
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                try:
                    base = resolve_name("." * node.level + base, package)
                except ImportError:  # it leaves the package, and is refused when it is imported
                    continue
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")
        elif isinstance(node, ast.Call) and node.args and isinstance(first := node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
            if called in ("import_module", "__import__") and isinstance(first.value, str):
                yield first.value
