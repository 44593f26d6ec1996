import pytest
import torch

from wtawp.base import DataError
from wtawp.graphs.masks import is_mask_of_numbers, refuse_mask_of_numbers


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
@pytest.mark.parametrize("numbers", [[0, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]])
def test_a_number_for_each_row_that_is_0_or_1_is_no_index(numbers: list[int], dtype: torch.dtype) -> None:
    with pytest.raises(DataError, match=r"rows holds 4 numbers, all of them 0 or 1: .* pass rows\.bool\(\)"):
        refuse_mask_of_numbers(torch.tensor(numbers, dtype=dtype), 4, "rows")


@pytest.mark.parametrize(("numbers", "size"), [([0, 1], 2), ([1, 0], 4), ([0, 1, 2], 3), ([0, 1, 1], 4), ([], 0)])
def test_everything_else_may_be_indices(numbers: list[int], size: int) -> None:
    assert not is_mask_of_numbers(torch.tensor(numbers, dtype=torch.int64), size)


def test_a_mask_of_true_and_false_is_one() -> None:
    assert not is_mask_of_numbers(torch.tensor([True, False, True]), 3)
