"""The tree is the architecture: imports point down, the core stays small and loads torch alone."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "wtawp"
LEVEL = {"base": -1, "core": 0, "graphs": 0, "models": 1, "training": 2, "attacks": 2, "certificates": 2,
         "analysis": 2, "experiments": 3, "integrations": 3, "cli": 4}  # fmt: skip
MODULES = sorted(p for p in SOURCE.rglob("*.py") if p != SOURCE / "__init__.py")


def arrows_pointing_up(here: str, source: str) -> list[str]:
    named = (n.module for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ImportFrom) and n.module)
    targets = [m.split(".")[1] for m in named if m.startswith("wtawp.")]
    return [t for t in targets if t != here and LEVEL[t] >= LEVEL[here]]


def level_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_down(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert arrows_pointing_up(level_of(path), source) == []
    plain = [a.name for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Import) for a in n.names]
    assert not [name for name in plain if name.startswith("wtawp")], "write: from wtawp.x.y import z"


def test_the_check_would_notice_an_arrow_pointing_up() -> None:
    assert arrows_pointing_up("graphs", "from wtawp.models import GCN") == ["models"]
    assert arrows_pointing_up("core", "from wtawp.graphs.splits import Split") == ["graphs"]
    assert arrows_pointing_up("training", "from wtawp.core import WTAWP") == []


def modules_loaded_by(statement: str) -> set[str]:
    code = f"{statement}; import sys; print(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("statement", ["from wtawp.core import WTAWP", "from wtawp import WTAWP, SAM"])
def test_the_core_loads_torch_and_nothing_of_the_graph_world(statement: str) -> None:
    loaded = modules_loaded_by(statement)
    assert "torch" in loaded
    assert not loaded & {"torch_geometric", "sklearn", "scipy", "pandas", "matplotlib", "typer", "joblib"}


def test_the_front_door_alone_loads_nothing() -> None:
    assert "torch" not in modules_loaded_by("import wtawp")


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
