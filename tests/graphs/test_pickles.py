import collections
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from wtawp.base import DataError
from wtawp.graphs.pickles import as_matrix, as_pairs, as_table, unpickle


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
        (as_table, "f must hold a pickled table of numbers, got list"),
        (as_pairs, "f must hold a pickled dict of adjacency lists, got list"),
    ):
        with pytest.raises(DataError, match=message):
            convert([1], "f")
    with pytest.raises(DataError, match="f must list whole numbers of nodes"):
        as_pairs({0: ["x"]}, "f")
