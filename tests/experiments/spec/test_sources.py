from pathlib import Path

import pytest

from wtawp.experiments.spec import Setting
from wtawp.experiments.spec.sources import source_digest, user_sources

MODEL = """
import torch
import wtawp.base
from pk_row1.helper import width
from . import later
from .deep.inner import *
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of a user whose model imports other modules of it in several ways; nothing of it can be imported."""
    folder = tmp_path / "pk_row1"
    (folder / "deep").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise AssertionError('hashing must not import the package')")
    (folder / "m.py").write_text(MODEL)
    (folder / "helper.py").write_text("import importlib\nsides = importlib.import_module('pk_row1.sides')\nwidth = 8\n")
    (folder / "sides.py").write_text("from pk_row1 import m\n")  # a circle
    (folder / "later.py").write_text("def f():\n    from top_row1 import g\n")
    (folder / "deep" / "inner.py").write_text("")  # in a package without __init__
    (folder / "unrelated.py").write_text("")
    (tmp_path / "top_row1.py").write_text("this is not Python")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return folder


def test_row_1_the_key_of_a_user_s_model_covers_every_module_that_it_imports(package: Path) -> None:
    names = {"pk_row1", "pk_row1.m", "pk_row1.helper", "pk_row1.sides", "pk_row1.later", "pk_row1.deep.inner"}
    assert user_sources("pk_row1.m").keys() == names | {"top_row1"}
    before = Setting(dataset="wine", model="pk_row1.m:M").content_json
    (package / "unrelated.py").write_text("x = 1")
    assert Setting(dataset="wine", model="pk_row1.m:M").content_json == before
    for name in ("helper.py", "sides.py", "__init__.py", "deep/inner.py", "../top_row1.py"):
        file = package / name
        text = file.read_text()
        file.write_text(f"{text}# edited\n")
        assert Setting(dataset="wine", model="pk_row1.m:M").content_json != before, name
        file.write_text(text)
        assert Setting(dataset="wine", model="pk_row1.m:M").content_json == before


def test_a_module_that_imports_nothing_of_the_user_has_the_digest_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alone_row1.py").write_text("import torch\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert source_digest("alone_row1:M") == "b91a3bc5e2064d02"  # sha256 of the file, as in older records
    assert user_sources("torch.nn").keys() == {"torch.nn"}  # what is installed is named, and not followed


def test_a_module_that_is_not_there_has_no_source() -> None:
    for module in ("no_such_module_row1", "no_such.inner", "math.inner", "sys"):
        assert user_sources(module) == {}
        assert source_digest(f"{module}:M") is None
