import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from wtawp.base import DataError
from wtawp.graphs.archives import Archive, plain_array
from wtawp.graphs.read_limits import VARIABLE


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, allow_pickle=True)
    return out.getvalue()


def zipped(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize(
    "array",
    [np.arange(6).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.array(3), np.empty((0, 4), "f2"),
     np.array(["a", "bc"]), np.arange(3, dtype=">i4"), np.array([True, False])],
)  # fmt: skip
def test_arrays_come_back_as_numpy_reads_them(array: np.ndarray, tmp_path: Path) -> None:
    with Archive(zipped(tmp_path / "a.npz", {"x.npy": npy(array)})) as archive:
        read = archive.array("x")
    assert read.dtype == array.dtype
    assert read.shape == array.shape
    assert np.array_equal(read, array)
    assert read.flags.writeable


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([1 + 2j]), "x is not a plain array: it must hold real numbers or names, got complex128"),
        (np.array([None]), "got object"),
        (np.array([b"a"]), r"got \|S1"),
        (np.array(["2020-01-01"], dtype="M8[D]"), "got datetime64"),
        (np.zeros(2, dtype=[("a", "i4")]), "is not a plain array"),
        (np.array([0xD800], dtype=np.uint32).view("U1"), "letters that do not exist"),
    ],
)
def test_what_is_no_real_number_or_name_is_refused(array: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        plain_array(npy(array), "x")


def test_a_header_must_declare_what_the_file_holds() -> None:
    whole = npy(np.arange(4))
    for shape in (b"(9,)", b"(-4,)", b"(True, 4)", b"(10**9,)", b"(99999999999999,)", b"((((", b"(4,)" + b" " * 99):
        header = whole[10:128].replace(b"(4,)", shape)
        changed = whole[:8] + struct.pack("<H", len(header)) + header + whole[128:]
        if shape.strip() == b"(4,)":
            assert plain_array(changed, "x").tolist() == [0, 1, 2, 3]
        else:
            with pytest.raises(DataError, match=r"x (declares|is not an array)"):
                plain_array(changed, "x")


def test_a_member_that_nobody_asks_for_is_not_inflated(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.npz", {"zeros.npy": bytes(100 * 2**20), "x.npy": npy(np.arange(3))})
    with Archive(path) as archive:
        assert archive.array("x").tolist() == [0, 1, 2]
        with pytest.raises(DataError, match=rf"a.npz, zeros.npy: the content needs 101 MB .*{VARIABLE}"):
            archive.read("zeros.npy")


def test_a_header_is_read_without_the_array(tmp_path: Path) -> None:
    path = zipped(tmp_path / "g.npz", {"x.npy": npy(np.zeros((2**20, 100))), "y.npy": b"no array"})
    with Archive(path) as archive:
        assert archive.header("x") == ((2**20, 100), np.dtype(np.float64))
        with pytest.raises(DataError, match="y is not an array of NumPy"):
            archive.header("y")


def test_the_variable_raises_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    path = zipped(tmp_path / "a.npz", {"x.npy": npy(np.zeros(2**20, dtype=np.int8))})
    with Archive(path) as archive, pytest.raises(DataError, match=VARIABLE):
        archive.array("x")
    monkeypatch.setenv(VARIABLE, "16")
    with Archive(path) as archive:
        assert archive.array("x").shape == (2**20,)


def test_numbers_count_as_readers_hold_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    content = npy(np.zeros(2**18, dtype=np.int8))  # a quarter of the limit, but two megabytes as int64
    with Archive(zipped(tmp_path / "a.npz", {"x.npy": content})) as archive:
        assert len(archive.read("x.npy")) == len(content)
        with pytest.raises(DataError, match=VARIABLE):
            archive.array("x")


def test_a_member_that_inflates_to_more_than_it_declares_is_refused(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {"x": bytes(10**6)})
    content = bytearray(path.read_bytes())
    for start in (content.index(b"PK\x03\x04") + 22, content.index(b"PK\x01\x02") + 24):
        struct.pack_into("<I", content, start, 10)
    path.write_bytes(content)
    with Archive(path) as archive, pytest.raises(DataError, match=r"not a readable archive .*CRC"):
        archive.read("x")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_that_inflate_without_a_limit_are_refused(method: int, tmp_path: Path) -> None:
    with (
        Archive(zipped(tmp_path / "a.zip", {"x": b"text"}, method)) as archive,
        pytest.raises(DataError, match="only deflate is read"),
    ):
        archive.read("x")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_occurs_twice_or_points_outside_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("x", b"1")
        archive.writestr("x", b"2")
    with pytest.raises(DataError, match="has 2 members called x"):
        Archive(tmp_path / "a.zip")
    with pytest.raises(DataError, match="points outside"):
        Archive(zipped(tmp_path / "b.zip", {"../x": b""}))
    with pytest.raises(DataError, match="there is no file"):
        Archive(tmp_path / "c.zip")


def test_a_member_that_declares_more_bytes_than_the_file_has_is_refused(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {"x": b"text"}, zipfile.ZIP_STORED)
    content = bytearray(path.read_bytes())
    struct.pack_into("<I", content, content.index(b"PK\x01\x02") + 20, 2**31)
    path.write_bytes(content)
    with Archive(path) as archive, pytest.raises(DataError, match="x declares 2,147,483,648 bytes in a file of"):
        archive.read("x")
