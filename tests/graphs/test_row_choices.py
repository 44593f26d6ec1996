import numpy as np
import pytest
import torch

from wtawp.base import DataError
from wtawp.graphs.row_choices import checked_rows


@pytest.mark.parametrize(
    "rows",
    [
        [2, 0],
        (2, 0),
        range(2, -1, -2),
        torch.tensor([2, 0]),
        torch.tensor([2, 0], dtype=torch.int32),
        np.array([2, 0], dtype=">i4"),
        np.array([2, 0], dtype=np.uint16),
    ],
)
def test_indices_of_every_kind_keep_their_order(rows: object) -> None:
    chosen = checked_rows(rows, 4)
    assert chosen.dtype == torch.int64
    assert chosen.tolist() == [2, 0]


@pytest.mark.parametrize("make", [list, np.array, torch.tensor])
def test_a_mask_names_the_rows_where_it_is_true(make: type) -> None:
    assert checked_rows(make([True, False, True]), 3).tolist() == [0, 2]


def test_an_array_that_must_not_be_written_gives_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    rows = np.array([1, 0])
    rows.flags.writeable = False
    assert checked_rows(rows, 3).tolist() == [1, 0]
    assert not recwarn.list


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
@pytest.mark.parametrize("numbers", [[0, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]])
def test_a_number_for_each_row_that_is_0_or_1_is_no_index(numbers: list[int], dtype: torch.dtype) -> None:
    with pytest.raises(
        DataError, match=r"rows holds 4 numbers, all of them 0 or 1: .* pass torch.as_tensor\(mask\)\.bool\(\)"
    ):
        checked_rows(torch.tensor(numbers, dtype=dtype), 4, "rows")


@pytest.mark.parametrize(("numbers", "size"), [([0, 1], 2), ([1, 0], 4), ([0, 1, 2], 3), ([0, 1, 1], 4)])
def test_other_numbers_may_be_indices(numbers: list[int], size: int) -> None:
    assert checked_rows(numbers, size).tolist() == numbers


@pytest.mark.parametrize("rows", [[], torch.zeros(0, dtype=torch.int64), torch.zeros(3, dtype=torch.bool)])
def test_a_choice_of_nothing_is_refused(rows: object) -> None:
    with pytest.raises(DataError, match="train must hold one or more of the nodes, got none"):
        checked_rows(rows, 3, "train")


@pytest.mark.parametrize(
    ("rows", "got"),
    [
        (None, "NoneType"),
        ("train", "str"),
        (b"01", "bytes"),
        (bytearray(2), "bytearray"),
        (torch.tensor([0, 1]).to_sparse(), "a Tensor of layout torch.sparse_coo"),
        ({0, 1}, "set"),
        (["a"], "a list of other things"),
        ([[0], [1, 2]], "a list of other things"),
        ([2**70], "a list of other things"),
        ([True, False, 2], "a list of other things"),
        (np.ma.array([0, 1, 2], mask=[0, 1, 0]), "MaskedArray of type int64"),
        (np.array([True, None, False]), "ndarray of type object"),
        (np.array(["a"]), "ndarray of type <U1"),
        (torch.zeros(3), r"torch.float32 of shape \[3\]"),
        (torch.ones(2, dtype=torch.bool), r"torch.bool of shape \[2\]"),
        (torch.tensor(1), r"torch.int64 of shape \[\]"),
        (np.array([1j]), r"torch.complex128 of shape \[1\]"),
    ],
)
def test_what_is_no_choice_of_rows_is_refused(rows: object, got: str) -> None:
    with pytest.raises(
        DataError, match=rf"rows must be indices \[k\], or a boolean mask \[3\], of the graphs, got {got}"
    ):
        checked_rows(rows, 3, "rows", samples="graphs")


@pytest.mark.parametrize(("rows", "extent"), [([3], "3 to 3"), ([-1, 2], "-1 to 2")])
def test_rows_that_do_not_exist_are_refused(rows: list[int], extent: str) -> None:
    with pytest.raises(DataError, match=f"nodes must lie in 0 to 2, the nodes there are, got {extent}"):
        checked_rows(rows, 3)


def test_rows_occur_once_where_they_must() -> None:
    assert checked_rows([1, 1, 2], 4).tolist() == [1, 1, 2]
    with pytest.raises(DataError, match="calibration must be distinct, but 1 of 3 occur again"):
        checked_rows([1, 1, 2], 4, "calibration", distinct=True)
