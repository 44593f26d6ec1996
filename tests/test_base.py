import errno
import gc
import importlib
import inspect
import math
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from wtawp.base import (
    DataError,
    DownloadError,
    NotPerturbableError,
    OutputError,
    WtawpError,
    checked_seed,
    did_you_mean,
    fast_imports,
    find_stack_level,
    home,
    isolated_rng,
    lazy_exports,
    matching_name,
    part_of_progress,
    progress_receiver,
    report_progress,
    resolve,
    rng,
    seed_of,
    write_atomic,
)


def test_equal_names_give_equal_numbers_and_others_do_not() -> None:
    draw = [torch.rand(4, generator=rng(*names)) for names in (("a", 1), ("a", 1), ("a", 2), ("a1",))]
    assert torch.equal(draw[0], draw[1])
    assert not torch.equal(draw[0], draw[2])
    assert not torch.equal(draw[0], draw[3])


@pytest.mark.parametrize("seed", [3, np.int64(3), np.uint8(3), torch.tensor(3), torch.tensor([3], dtype=torch.int32)])
def test_whole_numbers_of_any_library_are_one_seed(seed: int) -> None:
    assert (checked_seed(seed), type(checked_seed(seed))) == (3, int)
    assert seed_of("split", "cora", seed) == 15076007366361354


@pytest.mark.parametrize(
    "seed", [3.0, 1.5, True, np.bool_(True), torch.tensor(True), torch.tensor(3.0), None, torch.arange(2), [3], b"3"]
)
def test_other_seeds_are_refused(seed: object) -> None:
    with pytest.raises(ValueError, match=r"^seeds\[0\] must be a whole number, such as 0, got "):
        checked_seed(seed, "seeds[0]")
    with pytest.raises(ValueError, match="each name that is not a word must be a whole number"):
        rng("init", seed)  # type: ignore[arg-type]


def _functions_with_a_seed() -> dict[str, Callable[..., object]]:
    """All public functions and classes that take a seed, by their names."""
    packages = [importlib.import_module(f"wtawp.{name}") for name in SEEDED_PACKAGES]
    named = {f"{p.__name__}.{name}": getattr(p, name) for p in packages for name in p.__all__}
    found = {name: f for name, f in named.items() if callable(f) and "seed" in inspect.signature(f).parameters}
    return {name: f for name, f in found.items() if not is_dataclass(f)}  # these hold what was measured


SEEDED_PACKAGES = ("graphs", "training", "attacks", "certificates", "analysis")


@pytest.mark.parametrize("seed", [1.0, None, True])
def test_every_public_function_refuses_what_is_no_seed(seed: object) -> None:
    functions = _functions_with_a_seed()
    assert len(functions) > 30
    for name, function in functions.items():
        parameters = inspect.signature(function).parameters.values()
        others = {
            p.name: None for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        }
        with pytest.raises(ValueError, match=r"^seed must be a whole number, such as 0, got "):
            function(**others | {"seed": seed})
            pytest.fail(f"{name} accepts the seed {seed!r}")


def test_a_word_is_no_seed() -> None:
    with pytest.raises(ValueError, match=r"^seed must be a whole number, such as 0, got '3'"):
        checked_seed("3")


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


def test_a_file_and_its_name_are_on_the_disk_before_the_call_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("FSYNC NOT CHECKED: there is no /proc here")
    write_atomic(tmp_path / "a.bin", b"one")
    assert synced == [str(tmp_path / f".a.bin.{os.getpid()}.part"), str(tmp_path)]


def test_a_full_disk_leaves_what_was_there_and_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "a.bin"
    monkeypatch.setattr("os.fsync", full)
    for content in (None, b"old"):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(OutputError, match=r"cannot write .*a\.bin: No space left on device; make room"):
            write_atomic(path, b"new")
        assert [p.read_bytes() for p in tmp_path.iterdir()] == ([] if content is None else [content])
    assert issubclass(OutputError, WtawpError)


@pytest.mark.skipif(os.name != "posix", reason="LINKS AND DEVICES NOT CHECKED: they work otherwise here")
def test_links_permissions_and_devices_stay_what_they_are(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    target.chmod(0o600)
    link.symlink_to(target)
    write_atomic(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    write_atomic(Path("/dev/null"), b"new")
    assert Path("/dev/null").is_char_device()
    if Path("/dev/full").is_char_device():
        with pytest.raises(OutputError, match="cannot write /dev/full: No space left"):
            write_atomic(Path("/dev/full"), b"new")
        assert Path("/dev/full").is_char_device()


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


def test_progress_of_parts_is_received_as_progress_of_the_whole() -> None:
    shares: list[float] = []
    with progress_receiver(shares.append, interval=0.0):
        report_progress(0.1)
        with part_of_progress(0.2, 0.6):
            report_progress(0.5)
            with part_of_progress(0.5, 1.0):
                report_progress(0.5)
        with pytest.raises(ZeroDivisionError), part_of_progress(0.6, 1.0):
            raise ZeroDivisionError
        report_progress(0.9)
    report_progress(1.0)  # to nobody
    assert shares == pytest.approx([0.1, 0.4, 0.5, 0.6, 0.6, 0.9])


def test_frequent_reports_of_progress_cost_next_to_nothing() -> None:
    shares: list[float] = []
    start = time.process_time()
    with progress_receiver(shares.append):
        for i in range(20_000):
            report_progress(i / 20_000)
    assert time.process_time() - start < 0.2, "10 us a report are 1 % of an epoch of a small graph"
    assert shares[0] == 0.0
    assert len(shares) < 10


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


def test_the_stack_level_names_the_caller_outside_of_the_package() -> None:
    assert find_stack_level() == 1
    inside = {"__name__": "wtawp.somewhere", "find_stack_level": find_stack_level}
    exec("def outer(): return inner()\ndef inner(): return find_stack_level()", inside)
    assert inside["outer"]() == 3  # type: ignore[operator]


def test_a_name_is_found_in_any_case_and_only_whole() -> None:
    known = ["GCN", "imdb-binary"]
    assert [matching_name(name, known) for name in ("GCN", "gcn", "gCn", "IMDB-Binary")] == [
        *3 * ["GCN"],
        "imdb-binary",
    ]
    assert [matching_name(name, known) for name in ("GC", "GCNN", "", "imdb_binary")] == 4 * [None]


@pytest.mark.parametrize(
    ("written", "meant"), [("gnc", "GCN"), ("gin ", "GIN"), ("GTA", "GAT"), ("pooledgnc", "PooledGCN")]
)
def test_the_nearest_name_is_suggested_and_letters_that_changed_places_come_first(written: str, meant: str) -> None:
    assert did_you_mean(written, ["GIN", "GAT", "GCN", "PooledGCN"]) == f"; did you mean {meant}?"
    assert did_you_mean("xyzzy", ["GIN", "GCN"]) == ""
