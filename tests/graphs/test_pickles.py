import collections
import contextlib
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from wtawp.base import DataError
from wtawp.graphs.file_checks import brief
from wtawp.graphs.pickles import as_matrix, as_pairs, as_table, unpickle
from wtawp.graphs.read_limits import VARIABLE


class Foreign:
    """What an attacker would send: a pickle that makes a folder while it is read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_foreign_name_is_refused_and_nothing_is_run(tmp_path: Path, protocol: int) -> None:
    trap = tmp_path / "sprung"
    with pytest.raises(DataError, match=r"file: the pickle asks for \w+\.mkdir, .* refused, nothing was run"):
        unpickle(pickle.dumps([[1], Foreign(trap)], protocol), "file")
    assert not trap.exists()


@pytest.mark.parametrize("name", ["eval", "exec", "getattr", "__import__"])
def test_builtins_are_foreign_too(name: str) -> None:
    for module in ("builtins", "__builtin__"):
        with pytest.raises(DataError, match=f"asks for {module}.{name}"):
            unpickle(f"c{module}\n{name}\n(S'1'\ntR.".encode(), "file")


def test_plain_data_comes_back() -> None:
    matrix = csr_matrix(np.array([[0.0, 2.0], [1.0, 0.0]]))
    for protocol in (3, 4):
        assert as_matrix(unpickle(pickle.dumps(matrix, protocol), "f"), "f").toarray().tolist() == [[0, 2], [1, 0]]
    table = np.array([[0, 1], [1, 0]], dtype=np.int32)
    assert as_table(unpickle(pickle.dumps(table, 3), "f"), "f").tolist() == table.tolist()
    lists = collections.defaultdict(list, {0: [1, 2], 2: [0]})
    source, target = as_pairs(unpickle(pickle.dumps(lists, 3), "f"), "f")
    assert (source.tolist(), target.tolist()) == ([0, 0, 2], [1, 2, 0])


def test_a_damaged_pickle_says_so() -> None:
    whole = pickle.dumps(np.arange(100.0), 3)
    for content in (whole[: len(whole) // 2], b"", b"no pickle"):
        with pytest.raises(DataError, match="f is not a readable pickle"):
            unpickle(content, "f")


def test_a_matrix_that_would_read_astray_is_refused() -> None:
    matrix = csr_matrix(np.eye(3))
    matrix.indices = np.array([0, 1, 7], dtype=np.int32)
    with pytest.raises(DataError, match="f: indices must lie in 0 to 2, got 0 to 7"):
        as_matrix(unpickle(pickle.dumps(matrix, 3), "f"), "f")


def test_other_things_than_expected_are_named() -> None:
    for convert, message in (
        (as_matrix, "f must hold a pickled csr_matrix, got list"),
        (as_table, "f must hold pickled arrays of numbers, got list"),
        (as_pairs, "f must hold a pickled dict of adjacency lists, got list"),
    ):
        with pytest.raises(DataError, match=message):
            convert([1], "f")
    with pytest.raises(DataError, match="f must list whole numbers of nodes"):
        as_pairs({0: ["x"]}, "f")
    with pytest.raises(DataError, match=r"f must hold a table of numbers, got shape \(3,\)"):
        as_table(unpickle(pickle.dumps(np.ones(3), 3), "f"), "f")
    with pytest.raises(DataError, match=r"f must hold plain numbers, got <U1"):
        as_table(unpickle(pickle.dumps(np.array([["a"]]), 3), "f"), "f")


def test_arrays_come_back_in_every_layout_and_byte_order() -> None:
    table = np.arange(6).reshape(2, 3)
    for dtype in ("<i4", ">i4", "<f8", ">f2", "u1", "?"):
        for array in (table.astype(dtype), np.asfortranarray(table.astype(dtype))):
            assert as_table(unpickle(pickle.dumps(array, 3), "f"), "f").tolist() == array.tolist()


def test_a_forged_shape_or_dtype_never_reaches_numpy() -> None:
    """NumPy's own `__setstate__` takes a dtype's word that its numbers are pointers, and follows them."""
    whole = pickle.dumps(np.arange(6.0).reshape(2, 3), 3)
    assert whole.count(b"K\x02K\x03") == 1
    with pytest.raises(DataError, match=r"an array of shape \(2, 9\) has 6 numbers"):
        as_table(unpickle(whole.replace(b"K\x02K\x03", b"K\x02K\x09"), "f"), "f")
    assert whole.count(b"f8") == 1
    for forged in (b"O8", b"V8", b"M8", b"f9"):
        with pytest.raises(DataError, match="f must hold plain numbers"):
            as_table(unpickle(whole.replace(b"f8", forged), "f"), "f")


def test_damaged_bytes_raise_nothing_but_data_errors() -> None:
    content = pickle.dumps(csr_matrix(np.eye(3)), 3)
    g = np.random.default_rng(0)
    refused = 500
    for _ in range(500):
        damaged = bytearray(content)
        damaged[g.integers(len(damaged))] = g.integers(256)
        with contextlib.suppress(DataError):
            as_matrix(unpickle(bytes(damaged), "f"), "f")
            refused -= 1  # some bytes do not matter, or change a number
    assert 100 < refused < 500


def test_adjacency_lists_are_whole_numbers_and_not_shared_too_often() -> None:
    for lists in ({0: [1.7]}, {0.5: [1]}, {0: "12"}, {0: {1: 2}}, {0: [True]}):
        with pytest.raises(DataError, match=r"f must (list whole numbers of nodes|hold a list of neighbours)"):
            as_pairs(lists, "f")
    shared = list(range(10_000))
    content = pickle.dumps(dict.fromkeys(range(1000), shared))
    assert len(content) < 100_000
    with pytest.raises(DataError, match=f"f: the content needs 153 MB .*{VARIABLE}"):
        as_pairs(unpickle(content, "f"), "f", len(content))


def test_numbers_of_a_matrix_count_as_they_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    matrix = csr_matrix((np.zeros(10**5, dtype=np.int8), np.zeros(10**5, dtype=np.int8), [0, 10**5]), shape=(1, 1))
    with pytest.raises(DataError, match=VARIABLE):
        as_matrix(unpickle(pickle.dumps(matrix, 3), "f"), "f")


def test_a_shape_of_shared_tuples_is_shown_in_no_time() -> None:
    nested: tuple[object, ...] = ()
    for _ in range(60):
        nested = (nested, nested)
    assert len(brief(nested)) <= 200
