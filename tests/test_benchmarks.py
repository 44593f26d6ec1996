"""Every benchmark says what it measures and which options it has, without measuring anything."""

import ast
import os
import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
PROGRAMS = sorted(path for path in FOLDER.glob("*.py") if 'if __name__ == "__main__":' in path.read_text("utf-8"))


def test_there_are_benchmarks_and_the_rest_is_imported_by_them() -> None:
    imported = "\n".join(path.read_text("utf-8") for path in PROGRAMS)
    rest = [path.stem for path in FOLDER.glob("*.py") if path not in PROGRAMS]
    assert len(PROGRAMS) > 20
    assert all(f"from {name} import" in imported for name in rest), rest


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_benchmark_explains_itself(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setattr(sys, "argv", [path.name, "--help"])
    environment = dict(os.environ)
    try:
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(path), run_name="__main__")
    finally:
        for name in os.environ.keys() - environment.keys():  # what a benchmark sets for processes of its own
            del os.environ[name]
        os.environ.update(environment)
    assert end.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith(f"usage: {path.name}")
    described = ast.get_docstring(ast.parse(path.read_text("utf-8")))
    assert described is not None
    assert " ".join(described.split("\n")[0].split()) in shown
