import errno
import os
import stat
import sys
from pathlib import Path

import pytest

from wtawp.base import OutputError, WtawpError, home, write_atomic


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
