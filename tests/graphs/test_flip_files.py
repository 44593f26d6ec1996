from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from wtawp.base import DataError
from wtawp.graphs.flip_files import array_names, check_provenance, pack_codes, read_flips, unpack_codes, write_flips


@given(st.sets(st.integers(0, 2**62), max_size=20))
def test_increasing_codes_come_back_from_text(codes: set[int]) -> None:
    expected = torch.tensor(sorted(codes), dtype=torch.int64)
    text = pack_codes(expected)
    assert text.isascii()
    assert torch.equal(unpack_codes(text), expected)


@pytest.mark.parametrize("text", ["", "?", "AAAA", pack_codes(torch.arange(9))[:-8]])
def test_text_that_is_not_packed_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="not packed flips, or they are cut short"):
        unpack_codes(text)
    with pytest.raises(DataError, match="packed flips are a text, got 3"):
        unpack_codes(3)  # type: ignore[arg-type]


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    path, origin = tmp_path / "f.npz", (("attack", "dice"), ("seed", "3"))
    write_flips(path, {"a": torch.arange(3), "b": torch.zeros(2, 0, dtype=torch.int64)}, {"n": 7}, origin)
    assert array_names(path) == {"a", "b", "n", "provenance"}
    (b, a), (n,), back = read_flips(path, ["b", "a"], ["n"])
    assert (a.tolist(), list(b.shape), n, back) == ([0, 1, 2], [2, 0], 7, origin)
    with pytest.raises(DataError, match="lacks c"):
        read_flips(path, ["c"], ["n"])
    with pytest.raises(DataError, match="one int64 a"):
        read_flips(path, ["b"], ["a"])


def test_arrays_of_other_types_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    np.savez(path, a=np.zeros(2), n=np.int64(1), provenance=np.array([["x", "y"]]))
    with pytest.raises(DataError, match="must hold int64 a"):
        read_flips(path, ["a"], ["n"])


def test_a_provenance_is_pairs_of_strings() -> None:
    check_provenance((("a", "b"),))
    for wrong in ((("a", 1),), (("a",),)):
        with pytest.raises(DataError, match="pairs"):
            check_provenance(wrong)  # type: ignore[arg-type]
