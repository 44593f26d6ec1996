"""Choices of rows: indices, or masks of True and False. A mask of the numbers 0 and 1 would be read as indices."""

import torch
from torch import Tensor

from wtawp.base import DataError


def is_mask_of_numbers(rows: Tensor, size: int) -> bool:
    """Whether whole numbers must be meant as a mask: one for each of three rows or more, all of them 0 or 1.

    Args:
        rows: The choice of rows, as indices or as a mask.
        size: Number of rows there are.

    Returns:
        False for indices, and for a mask of True and False.

    Example:
        >>> is_mask_of_numbers(torch.tensor([0, 1, 1]), 3), is_mask_of_numbers(torch.tensor([0, 1, 2]), 3)
        (True, False)
    """
    is_like_a_mask = rows.dim() == 1 and len(rows) == size > 2 and not rows.is_floating_point()
    return is_like_a_mask and rows.dtype != torch.bool and int(rows.min()) >= 0 and int(rows.max()) <= 1


def refuse_mask_of_numbers(rows: Tensor, size: int, what: str) -> None:
    """Refuse a mask of numbers, as `is_mask_of_numbers` knows it.

    Args:
        rows: The choice of rows, as indices or as a mask.
        size: Number of rows there are.
        what: The name of the choice, for the message.

    Raises:
        DataError: If it is a mask of numbers.

    Example:
        >>> refuse_mask_of_numbers(torch.tensor([0, 1, 2]), 3, "rows")
    """
    if is_mask_of_numbers(rows, size):
        raise DataError(
            f"{what} holds {size} numbers, all of them 0 or 1: a mask must be of type bool, and as indices these would"
            f" name rows 0 and 1 again and again; pass {what}.bool()"
        )
