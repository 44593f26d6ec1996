import gc
import subprocess
import sys
from types import ModuleType

import pytest

from wtawp.base import fast_imports, lazy_exports


def test_the_base_is_imported_without_torch() -> None:
    code = "import sys, wtawp.base; print('torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "False"


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


@pytest.mark.parametrize("is_enabled", [True, False])
def test_fast_imports_pause_the_garbage_collector_and_leave_it_as_it_was(is_enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if is_enabled else gc.disable)()
        with pytest.raises(ImportError), fast_imports():
            assert not gc.isenabled()
            import no_such_module  # noqa: F401
        assert gc.isenabled() == is_enabled
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
        (gc.enable if before else gc.disable)()
