"""The tree is the architecture: imports point down, and packages load no more than they need."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "wtawp"
MODULES = sorted(p for p in SOURCE.rglob("*.py") if p != SOURCE / "__init__.py")

# A package imports packages of lower levels only; packages of one level do not know each other.
LEVEL = {"base": -1, "core": 0, "graphs": 0, "models": 1, "training": 2, "attacks": 2, "certificates": 2,
         "analysis": 2, "experiments": 3, "integrations": 3, "cli": 4, "__main__": 5}  # fmt: skip

# The rooms of `experiments`, and the rooms that each may import:
#
#     audit                          may know inspection, and all below
#     ----------------------
#     inspection   demo   tuning     may know all below, not each other
#     ----------------------
#     execution      report          one trains and measures, the other reads what was stored
#     ----------------------
#     plans                          knows the names and options of measures
#     ----------------------
#     store   measures   results
#     ----------------------
#     spec
ROOMS = {
    "spec": (),
    "plans": ("spec", "measures"),
    "store": ("spec",),
    "measures": ("spec",),
    "results": ("spec",),
    "execution": ("spec", "store", "measures"),
    "report": ("spec", "plans", "results"),
    "inspection": ("spec", "plans", "store", "measures", "results", "execution", "report"),
    "demo": ("spec", "plans", "store", "measures", "results", "execution", "report"),
    "tuning": ("spec", "plans", "store", "measures", "results", "execution", "report"),
    "audit": ("spec", "plans", "store", "measures", "results", "execution", "report", "inspection"),
}  # fmt: skip


def name_of(path: Path) -> str:
    """The dotted name of a module; an `__init__.py` has that of its package."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PACKAGES = {name_of(p) for p in SOURCE.rglob("__init__.py")}
NAMES = PACKAGES | {name_of(p) for p in MODULES}


def imports_of(module: str, source: str) -> Iterator[tuple[str, str | None]]:
    """Each import of a module's source: what it imports from, and the imported name (None for `import x.y`).

    Imports inside functions and under TYPE_CHECKING count, and relative ones are made absolute.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".")
            parent = parts[: len(parts) - node.level + (module in PACKAGES)] if node.level else []
            origin = ".".join([*parent, *filter(None, [node.module])])
            yield from ((origin, alias.name) for alias in node.names)


@cache
def exports_of(package: str) -> dict[str, str]:
    """Each name that a package's `__init__` imports from our modules, also under TYPE_CHECKING, and where from."""
    path = SOURCE.parent.joinpath(*package.split("."), "__init__.py")
    imports = imports_of(package, path.read_text(encoding="utf-8"))
    return {name: origin for origin, name in imports if name is not None and is_ours(origin)}


def is_ours(module: str) -> bool:
    return module.split(".")[0] == "wtawp"


def targets_of(origin: str, name: str | None) -> Iterator[str]:
    """The modules of ours that an import reaches: a package's public name counts as the module that defines it."""
    if not is_ours(origin):
        return
    if name == "*":
        for each in exports_of(origin) if origin in PACKAGES else ():
            yield from targets_of(origin, each)
    elif name is not None and origin in PACKAGES and exports_of(origin).get(name, origin) != origin:
        yield from targets_of(exports_of(origin)[name], name)
        return
    yield f"{origin}.{name}" if f"{origin}.{name}" in NAMES else origin


def is_allowed(here: str, there: str) -> bool:
    """Whether one module may import another."""
    if there == "wtawp":  # its version; what it exports counts as the module that defines it
        return True
    (package, *inside), (target, *target_inside) = here.split(".")[1:], there.split(".")[1:]
    if package != target:
        return LEVEL[target] < LEVEL[package]
    if package != "experiments" or not inside:  # `experiments` itself exports from every room
        return True
    room = target_inside[0] if target_inside else None  # None is `experiments` itself, which reaches every room
    return room == inside[0] or room in ROOMS[inside[0]]


def wrong_imports(module: str, source: str) -> list[str]:
    """The modules of ours that the source imports and must not; `import wtawp` is one: it may reach anything."""
    wrong = ["wtawp"] if ("wtawp", None) in imports_of(module, source) else []
    reached = (there for imported in imports_of(module, source) for there in targets_of(*imported))
    return wrong + [there for there in dict.fromkeys(reached) if not is_allowed(module, there)]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_down(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert wrong_imports(name_of(path), source) == []
    plain = [origin for origin, name in imports_of(name_of(path), source) if name is None and is_ours(origin)]
    assert not plain, "write: from wtawp.x.y import z"


@pytest.mark.parametrize(
    "statement",
    [
        "from wtawp.models import GCN",
        "from wtawp.models.gcn import GCN",
        "from wtawp.models import *",
        "from wtawp import models",
        "import wtawp.models.gcn",
        "import math, wtawp.models as m",
        "from ..models import GCN",
        "from ..models.gcn import GCN",
        "from .. import models",
        "def f():\n    from wtawp.models import GCN",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from wtawp import models",
    ],
)
def test_the_check_notices_every_form_of_an_import_that_points_up(statement: str) -> None:
    for module in ("wtawp.graphs.splits", "wtawp.core.awp"):
        assert {there.split(".")[1] for there in wrong_imports(module, statement)} == {"models"}
    assert wrong_imports("wtawp.training.batches", statement) == []


def test_the_check_looks_through_the_front_door_and_through_packages() -> None:
    reached = wrong_imports("wtawp.graphs.splits", "from wtawp import fit, load, __version__")
    assert {there.split(".")[1] for there in reached} == {"training"}
    assert wrong_imports("wtawp.core.awp", "import wtawp") == ["wtawp"]
    reached = wrong_imports(
        "wtawp.experiments.report.tables", "from wtawp.experiments import run_demo, paired_difference"
    )
    assert [there.rpartition(".")[0] for there in reached] == ["wtawp.experiments.demo"]
    assert wrong_imports("wtawp.experiments.spec.plan", "from wtawp import experiments") == ["wtawp.experiments"]
    assert wrong_imports("wtawp.models", "from .gcn import GCN\nfrom ..graphs import load") == []
    assert wrong_imports("wtawp.models", "from ..training import fit") != []


def test_what_is_not_an_import_does_not_count() -> None:
    assert (
        wrong_imports("wtawp.graphs.splits", 'HOME = "wtawp.models.gcn:GCN"\nimport torch\nfrom scipy import io') == []
    )


@pytest.mark.parametrize("here", ROOMS)
def test_the_check_knows_the_rooms_of_experiments(here: str) -> None:
    for there in ROOMS:
        statement = f"def f():\n    from wtawp.experiments.{there}.some_module import x"
        expected = [] if there == here or there in ROOMS[here] else [f"wtawp.experiments.{there}.some_module"]
        assert wrong_imports(f"wtawp.experiments.{here}.other_module", statement) == expected


def test_the_tables_name_what_there_is_and_no_room_knows_one_that_knows_it() -> None:
    there_are = {
        path.name.removesuffix(".py") for path in SOURCE.iterdir() if path.name not in ("__init__.py", "py.typed")
    }
    assert there_are - {"__pycache__"} <= set(LEVEL)
    assert {path.parent.name for path in SOURCE.glob("experiments/*/__init__.py")} == set(ROOMS)
    assert not [(a, b) for a in ROOMS for b in ROOMS[a] if a in ROOMS[b] or a == b]


def lazy_packages() -> list[str]:
    return sorted(name_of(p) for p in SOURCE.rglob("__init__.py") if "_HOMES" in p.read_text(encoding="utf-8"))


@pytest.mark.parametrize("package", lazy_packages())
def test_a_lazy_package_resolves_its_public_names_to_what_type_checkers_see(package: str) -> None:
    module = import_module(package)
    assert set(module._HOMES) == set(module.__all__) <= set(dir(module))
    for name, home in module._HOMES.items():
        assert exports_of(package)[name] in (home, f"{package}.{home}"), name


def modules_loaded_by(statement: str) -> set[str]:
    code = f"{statement}; import sys; print(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("statement", ["from wtawp.core import WTAWP", "from wtawp import WTAWP, SAM"])
def test_the_core_loads_torch_and_nothing_of_the_graph_world(statement: str) -> None:
    loaded = modules_loaded_by(f"{statement}; from wtawp.core import WTAWP")
    assert "torch" in loaded
    assert not loaded & {"torch_geometric", "sklearn", "scipy", "pandas", "matplotlib", "typer", "joblib"}


def test_the_front_door_alone_loads_nothing() -> None:
    assert "torch" not in modules_loaded_by("import wtawp")


def test_no_file_holds_the_marks_of_an_unfinished_merge() -> None:
    texts = [p for p in ROOT.rglob("*") if p.suffix in (".py", ".md", ".toml", ".j2") and ".venv" not in p.parts]
    marks = tuple(7 * sign + " " for sign in "<>")
    marked = [p for p in texts for line in p.read_text(encoding="utf-8").splitlines() if line.strip().startswith(marks)]
    assert len(texts) > 300
    assert not marked


def test_importing_packages_loads_nothing_heavy() -> None:
    packages = [f"wtawp.{p.name}" for p in SOURCE.iterdir() if (p / "__init__.py").is_file() and p.name != "cli"]
    loaded = modules_loaded_by(f"import {', '.join(packages)}")
    assert not loaded & {"torch_geometric", "numba", "sklearn", "scipy", "pandas", "matplotlib", "joblib"}
    assert not loaded & {"lightning", "accelerate", "tensorboard"}


def test_public_names_resolve_and_others_are_refused() -> None:
    import wtawp

    assert all(callable(getattr(wtawp, name)) for name in wtawp.__all__)
    assert set(wtawp.__all__) <= set(dir(wtawp))
    with pytest.raises(AttributeError, match="no attribute 'gamma'"):
        wtawp.gamma  # noqa: B018


@pytest.mark.parametrize(
    "path", [p for p in MODULES if p.name != "__init__.py"], ids=lambda p: str(p.relative_to(SOURCE))
)
def test_every_module_has_a_test_file_of_its_name(path: Path) -> None:
    relative = path.relative_to(SOURCE)
    assert (ROOT / "tests" / relative.parent / f"test_{relative.name}").is_file()


@pytest.mark.parametrize("package", ["graphs", "models", "training", "attacks"])
def test_the_map_of_a_large_package_names_every_module(package: str) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.split(f"**`{package}`**")[1].split("\n**`")[0].split("\n## ")[0]
    names = {path.stem for path in (SOURCE / package).glob("*.py")}
    shown = {name for name in names if not name.endswith(("_numba", "_triton", "__"))}
    assert not [name for name in sorted(shown) if f"`{name}`" not in table]
