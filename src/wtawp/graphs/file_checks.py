"""Checks that every file reader makes before it hands declared sizes or indices to numpy, scipy or torch.

A sparse matrix whose pointers or indices leave its arrays makes scipy and torch read and write outside of them, and
neither library checks. All comparisons here are made in int64 or with Python's integers: the type that a file chose for
its numbers may wrap around. Every function takes `where`, the name of the file or array for its error messages.
"""

import math
import reprlib
from collections.abc import Sequence

import numpy as np

from wtawp.base import DataError

LARGEST = 2**63 - 1  # of int64
_SHORT_REPR = reprlib.Repr()  # a tuple of one tuple twice, and so on, has a text of exponential length
_SHORT_REPR.maxlevel, _SHORT_REPR.maxstring, _SHORT_REPR.maxother = 3, 200, 200
REPEATED_LIMIT = 2**24  # numbers: a tensor with more of them than its file holds may have up to this many


def brief(content: object) -> str:
    """What a file holds, for a message: at most 200 characters, whatever it is.

    >>> brief((2, 3))
    '(2, 3)'
    """
    shown = content[:200] if isinstance(content, str | bytes) else content
    try:
        text = _SHORT_REPR.repr(shown)
    except ValueError:  # Python writes no number of more than 4,300 digits
        text = f"a {type(content).__name__} that is too long to show"
    return text if len(text) <= 200 else f"{text[:197]}..."


def checked_whole(numbers: np.ndarray, name: str, *, where: str) -> np.ndarray:  # [m] -> [m]
    """A list of whole numbers in int64, which must hold them all."""
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise DataError(f"{where}: {name} must be a list of numbers, got {numbers.dtype} of shape {numbers.shape}")
    if numbers.dtype.kind == "u" and len(numbers) and int(numbers.max()) > LARGEST:
        raise DataError(f"{where}: {name} must be smaller than 2^63, got {int(numbers.max())}")
    return numbers.astype(np.int64)


def checked_pointers(pointers: np.ndarray, rows: int, entries: int, *, where: str) -> np.ndarray:  # -> [rows + 1]
    """The pointers to the rows of a CSR matrix in int64: one more than rows, and rising from 0 to `entries`.

    >>> checked_pointers(np.array([0, 1, 1], dtype=np.int8), 2, 1, where="example").tolist()
    [0, 1, 1]
    """
    wide = checked_whole(pointers, "indptr", where=where)
    rises = len(wide) == rows + 1 and wide[0] == 0 and wide[-1] == entries
    if not rises or (wide[1:] < wide[:-1]).any():  # a difference could wrap around, a comparison cannot
        raise DataError(f"{where}: indptr must rise from 0 to {entries} in {rows + 1} entries; it does not")
    return wide


def checked_indices(indices: np.ndarray, size: int, *, where: str) -> np.ndarray:  # [m] -> [m]
    """The indices of rows or columns in int64, each of them in 0 to size - 1."""
    wide = checked_whole(indices, "indices", where=where)
    if len(wide) and not 0 <= wide.min() <= wide.max() < size:
        raise DataError(f"{where}: indices must lie in 0 to {size - 1}, got {wide.min()} to {wide.max()}")
    return wide


def checked_values(values: np.ndarray, entries: int, *, where: str) -> np.ndarray:  # [m] -> [m]
    """The values of a sparse matrix, one for each index, in a type that scipy computes with."""
    if values.ndim != 1 or values.dtype.kind not in "biuf":
        raise DataError(f"{where}: data must be a list of numbers, got {values.dtype} of shape {values.shape}")
    if len(values) != entries:
        raise DataError(f"{where}: {len(values)} values for {entries} indices; the file is damaged")
    is_half = values.dtype.kind == "f" and values.dtype.itemsize == 2
    return values.astype(np.float32 if is_half else values.dtype.newbyteorder("="), copy=False)


def checked_shape(shape: Sequence[object], *, where: str) -> tuple[int, int]:
    """The numbers of rows and columns of a matrix, of which every element can be numbered in int64."""
    match list(shape):
        case [int(rows), int(columns)] if rows >= 0 and columns >= 0:
            if max(rows, 1) * max(columns, 1) <= LARGEST:
                return rows, columns
            raise DataError(f"{where}: a matrix of {rows} x {columns} is too large; its elements exceed 2^63")
    raise DataError(f"{where}: a matrix's shape must be two sizes, got {brief(list(shape))}")


def check_ascending(rows: np.ndarray, columns: np.ndarray, *, where: str) -> None:  # [m], [m]
    """Refuse entries of a matrix that is marked as coalesced and lists one twice, or out of order."""
    ascends = (rows[1:] > rows[:-1]) | ((rows[1:] == rows[:-1]) & (columns[1:] > columns[:-1]))
    if not ascends.all():
        raise DataError(f"{where} is marked as coalesced, but its indices are not sorted and unique; coalesce it again")


def check_layout(size: Sequence[int], stride: Sequence[int], offset: int, stored: int, *, where: str) -> None:
    """Refuse a tensor that lies outside of its storage of `stored` numbers, or repeats them too often.

    Args:
        size: The size of each dimension.
        stride: How many numbers of the storage lie between two neighbours in each dimension; 0 repeats one.
        offset: The place of the first element.
        stored: How many numbers the file holds.
        where: The name of the tensor, for messages.

    Raises:
        DataError: If a size, a stride or the offset is negative, an element lies outside of the storage, or there are
            more elements than both `stored` and `REPEATED_LIMIT`.
    """
    if len(size) != len(stride) or min([offset, *size, *stride]) < 0:
        raise DataError(f"{where}: sizes {list(size)}, strides {list(stride)} and offset {offset} fit no tensor")
    elements = math.prod(size)
    last = offset + sum((extent - 1) * step for extent, step in zip(size, stride, strict=True)) if elements else -1
    if last >= stored or max([offset, *size, *stride]) > LARGEST:
        raise DataError(f"{where}: a tensor of shape {list(size)} needs more than the {stored} numbers in the file")
    if elements > max(stored, REPEATED_LIMIT):
        raise DataError(
            f"{where}: a tensor of shape {list(size)} repeats the {stored} numbers in the file; those may have up to "
            f"{REPEATED_LIMIT} elements: save tensor.contiguous()"
        )
