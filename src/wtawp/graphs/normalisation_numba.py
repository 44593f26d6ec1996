"""The loops of `normalisation`, compiled; they round as the torch operations do, so that the numbers are the same."""

import numba
import numpy as np

Array = np.ndarray


@numba.njit(nogil=True, cache=True)
def row_sums(indptr: Array, values: Array, sums: Array) -> None:
    """Write the sum of each row's values, added in their order and in their type."""
    for i in range(len(sums)):
        total = values.dtype.type(0)
        for e in range(indptr[i], indptr[i + 1]):
            total += values[e]
        sums[i] = total


@numba.njit(nogil=True, cache=True)
def scale_values(indptr: Array, indices: Array, values: Array, scale: Array) -> None:
    """Replace each value by (scale[row] * value) * scale[column]."""
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            values[e] = (scale[i] * values[e]) * scale[indices[e]]
