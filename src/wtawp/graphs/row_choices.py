"""Choices of rows by the caller, as indices or as masks of True and False."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from wtawp.base import DataError


def checked_rows(
    rows: object, size: int, what: str = "nodes", *, samples: str = "nodes", distinct: bool = False
) -> Tensor:  # -> [k] int64
    """Turn indices or a mask into indices that exist.

    Args:
        rows: Indices, as a tensor, an array or a list, or a boolean mask of all rows.
        size: Number of rows there are.
        what: The name of the choice, for messages.
        samples: What the rows are, for messages.
        distinct: Whether no index may occur twice.

    Returns:
        The indices, one or more, in their order; those of a tensor on its device.

    Raises:
        DataError: If they are something else, none, or out of range; if they are numbers that must be meant as a mask;
            or if one that must not occurs twice.

    Example:
        >>> checked_rows([True, False, True], 3)
        tensor([0, 2])
    """
    chosen = _as_tensor(rows)
    if chosen is None or chosen.layout != torch.strided:
        raise DataError(f"{what} must be indices [k], or a boolean mask [{size}], of the {samples}, got {_kind(rows)}")
    if chosen.dtype == torch.bool and chosen.shape == (size,):
        chosen = chosen.nonzero()[:, 0]
    if chosen.numel() == 0:
        raise DataError(f"{what} must hold one or more of the {samples}, got none")
    is_whole = not (chosen.is_floating_point() or chosen.is_complex() or chosen.dtype == torch.bool)
    if chosen.dim() != 1 or not is_whole:
        got = f"{chosen.dtype} of shape {list(chosen.shape)}"
        raise DataError(f"{what} must be indices [k], or a boolean mask [{size}], of the {samples}, got {got}")
    chosen = chosen.long()
    least, most = int(chosen.min()), int(chosen.max())
    if len(chosen) == size > 2 and 0 <= least <= most <= 1:  # one for each of three rows or more: not meant as indices
        raise DataError(
            f"{what} holds {size} numbers, all of them 0 or 1: a mask must be of type bool, and as indices these would"
            " name rows 0 and 1 again and again; pass torch.as_tensor(mask).bool()"
        )
    if least < 0 or most >= size:
        raise DataError(f"{what} must lie in 0 to {size - 1}, the {samples} there are, got {least} to {most}")
    twice = len(chosen) - len(torch.unique(chosen)) if distinct else 0
    if twice:
        raise DataError(f"{what} must be distinct, but {twice} of {len(chosen)} occur again")
    return chosen


def _as_tensor(rows: object) -> Tensor | None:
    """A list of numbers as a tensor; None for everything else."""
    if isinstance(rows, Tensor):
        return rows
    is_array = hasattr(rows, "__array__")  # numpy's, or a column of pandas
    if isinstance(rows, str | bytes | bytearray | np.ma.MaskedArray):  # numpy would drop the mask of the last one
        return None
    try:
        if isinstance(rows, Sequence) and not is_array:
            is_mixed = len({isinstance(row, bool | np.bool_) for row in rows}) > 1  # torch would make 0 and 1 of flags
            return None if is_mixed else torch.tensor(rows)
        if not is_array:
            return None
        array = np.asarray(rows)
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))  # a copy: it may be read-only
    except (TypeError, ValueError, RuntimeError, OverflowError):  # strings, lists of different lengths, huge numbers
        return None


def _kind(rows: object) -> str:
    """What was passed in place of a choice of rows."""
    name = type(rows).__name__
    if isinstance(rows, Tensor):
        return f"a {name} of layout {rows.layout}"
    if isinstance(rows, list | tuple):
        return f"a {name} of other things"
    return name if (dtype := getattr(rows, "dtype", None)) is None else f"{name} of type {dtype}"
