import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from wtawp.base import (
    DataError,
    DownloadError,
    NotPerturbableError,
    WtawpError,
    find_stack_level,
    home,
    isolated_rng,
    lazy_exports,
    resolve,
    rng,
    write_atomic,
)


def test_equal_names_give_equal_numbers_and_others_do_not() -> None:
    draw = [torch.rand(4, generator=rng(*names)) for names in (("a", 1), ("a", 1), ("a", 2), ("a1",))]
    assert torch.equal(draw[0], draw[1])
    assert not torch.equal(draw[0], draw[2])
    assert not torch.equal(draw[0], draw[3])


def test_an_isolated_rng_fixes_what_is_drawn_inside_and_hides_it_outside() -> None:
    before = torch.get_rng_state()
    inside = []
    for _ in range(2):
        with isolated_rng("dropout", 3):
            inside.append(torch.rand(3))
    with pytest.raises(KeyError), isolated_rng("dropout", 4):
        torch.rand(3)
        raise KeyError
    assert torch.equal(*inside)
    assert torch.equal(before, torch.get_rng_state())


def test_errors_can_be_caught_as_ours_or_as_value_errors() -> None:
    for kind in (NotPerturbableError, DataError):
        assert issubclass(kind, WtawpError)
        assert issubclass(kind, ValueError)
    assert issubclass(DownloadError, WtawpError)


def test_our_folder_is_the_chosen_one_or_the_platforms(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WTAWP_HOME", str(tmp_path))
    assert home() == tmp_path
    monkeypatch.delenv("WTAWP_HOME")
    for variable in ("XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(variable, str(tmp_path / "data"))
    for platform in ("linux", "win32"):
        monkeypatch.setattr(sys, "platform", platform)
        assert home() == tmp_path / "data" / "wtawp"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert home() == Path.home() / "Library" / "Application Support" / "wtawp"


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.bin"
    write_atomic(path, b"one")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_atomic(path, b"two")
    assert path.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [path]


def test_the_base_is_imported_without_torch() -> None:
    code = "import sys, wtawp.base; print('torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "False"


def test_references_are_resolved_or_refused() -> None:
    assert resolve("math:pi") == math.pi
    with pytest.raises(ImportError, match="module math has no attribute 'tau2'"):
        resolve("math:tau2")
    with pytest.raises(ImportError, match="no_such_module"):
        resolve("no_such_module:name")


def test_lazy_exports_import_a_name_at_its_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("package")
    monkeypatch.setitem(sys.modules, "package", package)
    home_of = ModuleType("package.home")
    home_of.answer = 42  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "package.home", home_of)
    get = lazy_exports("package", {"answer": "home"})
    assert "answer" not in vars(package)
    assert get("answer") == 42
    assert vars(package)["answer"] == 42
    with pytest.raises(AttributeError, match="module 'package' has no attribute 'question'; it has answer"):
        get("question")


def test_the_stack_level_names_the_caller_outside_of_the_package() -> None:
    assert find_stack_level() == 1
    inside = {"__name__": "wtawp.somewhere", "find_stack_level": find_stack_level}
    exec("def outer(): return inner()\ndef inner(): return find_stack_level()", inside)
    assert inside["outer"]() == 3  # type: ignore[operator]
