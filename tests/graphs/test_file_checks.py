import itertools

import numpy as np
import pytest
import torch

from wtawp.base import DataError
from wtawp.graphs.file_checks import (
    REPEATED_LIMIT,
    brief,
    check_ascending,
    check_layout,
    checked_indices,
    checked_pointers,
    checked_shape,
    checked_values,
    checked_whole,
)


@pytest.mark.parametrize(
    "pointers",
    [
        np.array([0, -128, 127, 2], dtype=np.int8),  # 127 - (-128) is -1 in int8, -128 - 0 is -128
        np.array([0, 100, -100, 2], dtype=np.int8),  # -100 - 100 is 56
        np.array([0, 2**31 - 1, -(2**31), 2], dtype=np.int32),  # the difference is 1
        np.array([0, 2**63 - 1, -(2**63), 2], dtype=np.int64),
        np.array([0, 5, 1, 2], dtype=np.uint64),  # a difference of unsigned numbers is never negative
        np.array([0, 2**64 - 1, 1, 2], dtype=np.uint64),
        np.array([0, 200, 100, 2], dtype=np.uint8),
        np.array([1, 1, 1, 2]),
        np.array([0, 1, 1, 3]),
        np.array([0, 1, 2]),
        np.array([], dtype=np.int64),
        np.array([0.0, 1.0, 1.0, 2.0]),
        np.array([[0, 1, 1, 2]]),
    ],
    ids=str,
)
def test_pointers_that_wrap_around_in_their_own_type_are_refused(pointers: np.ndarray) -> None:
    with pytest.raises(DataError, match="here: indptr must"):
        checked_pointers(pointers, 3, 2, where="here")


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", ">i4", "<i4", "u8", ">u8"])
def test_right_pointers_and_indices_come_back_in_int64(dtype: str) -> None:
    pointers = checked_pointers(np.array([0, 1, 1, 2]).astype(dtype), 3, 2, where="here")
    indices = checked_indices(np.array([4, 0]).astype(dtype), 5, where="here")
    assert pointers.dtype == indices.dtype == np.int64
    assert (pointers.tolist(), indices.tolist()) == ([0, 1, 1, 2], [4, 0])


def test_indices_outside_are_refused() -> None:
    for bad in (np.array([0, 5]), np.array([-1, 0], dtype=np.int8), np.array([0, 2**64 - 1], dtype=np.uint64)):
        with pytest.raises(DataError, match="here: indices must"):
            checked_indices(bad, 5, where="here")
    with pytest.raises(DataError, match="here: sizes must be a list of numbers, got bool"):
        checked_whole(np.array([True]), "sizes", where="here")


def test_values_come_in_a_type_that_scipy_computes_with() -> None:
    for dtype, expected in (("f2", "f4"), (">f2", "f4"), (">f8", "f8"), ("?", "?"), ("u1", "u1")):
        assert checked_values(np.array([1, 0]).astype(dtype), 2, where="here").dtype == np.dtype(expected)
    for bad, message in ((np.ones(3), "3 values for 2 indices"), (np.ones((2, 1)), "list"), (1j * np.ones(2), "list")):
        with pytest.raises(DataError, match=message):
            checked_values(bad, 2, where="here")


def test_shapes_have_two_sizes_whose_product_fits_into_int64() -> None:
    assert checked_shape([2, 0], where="here") == (2, 0)
    assert checked_shape([2**32, 2**30], where="here") == (2**32, 2**30)
    for bad in ([2], [2, -1], [2.0, 1], [2**32, 2**31], [0, 2**63], [[2, 2]]):
        with pytest.raises(DataError, match="here: a matrix"):
            checked_shape(bad, where="here")


def test_entries_ascend_as_a_naive_loop_says() -> None:
    for cells in itertools.product(itertools.product(range(2), range(2)), repeat=3):
        rows, columns = np.array(cells).T
        if all(first < second for first, second in itertools.pairwise(cells)):
            check_ascending(rows, columns, where="here")
        else:
            with pytest.raises(DataError, match="here is marked as coalesced"):
                check_ascending(rows, columns, where="here")


def test_a_layout_is_accepted_where_torch_itself_accepts_it() -> None:
    storage = torch.arange(5)
    accepted = 0
    for size, stride, offset in itertools.product(
        itertools.product(range(3), repeat=2), itertools.product(range(4), repeat=2), range(6)
    ):
        try:
            storage.as_strided(size, stride, offset)
        except RuntimeError:
            with pytest.raises(DataError, match="more than the 5 numbers"):
                check_layout(size, stride, offset, 5, where="here")
        else:
            check_layout(size, stride, offset, 5, where="here")
            accepted += 1
    assert accepted > 100


def test_a_layout_that_repeats_its_numbers_is_limited() -> None:
    check_layout([REPEATED_LIMIT], [0], 0, 1, where="here")
    check_layout([REPEATED_LIMIT + 1], [1], 0, REPEATED_LIMIT + 1, where="here")
    with pytest.raises(DataError, match=r"save tensor\.contiguous"):
        check_layout([REPEATED_LIMIT + 1], [0], 0, 1, where="here")
    for size, stride, offset in (([2], [-1], 1), ([-2], [1], 0), ([2], [1], -1), ([2, 2], [1], 0)):
        with pytest.raises(DataError, match="fit no tensor"):
            check_layout(size, stride, offset, 9, where="here")


def test_anything_can_be_shown_in_a_message() -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    assert brief(10**5000) == "a int that is too long to show"
    assert brief(nested) == "[[[[...]]]]"
    assert len(brief("a" * 1000)) == 200
