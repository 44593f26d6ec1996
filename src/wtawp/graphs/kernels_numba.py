"""The loops of `kernels`, compiled for one thread: chunks of runs are spread over workers, not loops over cores."""

import numba
import numpy as np

from wtawp.graphs.simd_numba import LANES, sum_rows

Array = np.ndarray
FULL = 4 * LANES
COLLECTED = 4096  # entries, and rows, that `multiply_by_runs` collects at a time


@numba.njit(fastmath={"contract", "nsz"}, nogil=True, inline="always")
def multiply_row(indices: Array, values: Array, start: int, end: int, dense: Array, out: Array) -> None:
    """Write the sum of values[e] * dense[indices[e]], e from start to end, to `out`: full registers, then the rest."""
    width, k = len(out), np.intp(0)
    while k + FULL <= width:
        sum_rows(out, dense, indices, values, start, end, k, 4)
        k += FULL
    while k + LANES <= width:
        sum_rows(out, dense, indices, values, start, end, k, 1)
        k += LANES
    if k < width:
        o, e = out[k:], start
        o[:] = 0
        while e + 4 <= end:  # four entries a round: a quarter of the traffic on the output row
            x0, x1 = dense[indices[e], k:], dense[indices[e + 1], k:]
            x2, x3 = dense[indices[e + 2], k:], dense[indices[e + 3], k:]
            w0, w1, w2, w3 = values[e], values[e + 1], values[e + 2], values[e + 3]
            for j in range(len(o)):
                o[j] += w0 * x0[j] + w1 * x1[j] + w2 * x2[j] + w3 * x3[j]
            e += 4
        while e < end:
            x0, w0 = dense[indices[e], k:], values[e]
            for j in range(len(o)):
                o[j] += w0 * x0[j]
            e += 1


@numba.njit(fastmath={"contract", "nsz"}, nogil=True, cache=True)
def multiply(indptr: Array, indices: Array, values: Array, dense: Array, out: Array) -> None:
    """CSR times dense, member by member, so that one member's dense matrix stays in cache."""
    for b in range(len(out)):
        v = values[b if values.shape[0] > 1 else 0]
        x = dense[b if dense.shape[0] > 1 else 0]
        for i in range(out.shape[1]):
            multiply_row(indices, v, indptr[i], indptr[i + 1], x, out[b, i])


@numba.njit(fastmath={"contract", "nsz"}, nogil=True, cache=True)
def multiply_by_runs(
    run_of: Array, runs: int, indptr: Array, indices: Array, values: Array, rows: Array, dense: Array, out: Array
) -> None:
    """Multiply some rows of a CSR matrix, taking the entries of a row in the order of the runs of their columns.

    A column of a run from `runs` on is left out. Some rows are collected at a time, so that the next ones can be
    prefetched.
    """
    longest = 0
    for i in range(len(rows)):
        longest = max(longest, indptr[rows[i] + 1] - indptr[rows[i]])
    columns, numbers = np.zeros(COLLECTED + longest + 1, indices.dtype), np.zeros(COLLECTED + longest + 1, values.dtype)
    ends = np.zeros(COLLECTED, np.int64)
    first = 0
    while first < len(rows):
        filled, count = 0, 0
        while filled < COLLECTED and count < COLLECTED and first + count < len(rows):
            row = rows[first + count]
            for run in range(runs):
                for e in range(indptr[row], indptr[row + 1]):
                    columns[filled], numbers[filled] = indices[e], values[e]
                    filled += run_of[indices[e]] == run
            ends[count] = filled
            count += 1
        for i in range(count):
            multiply_row(columns, numbers, ends[i - 1] if i else 0, ends[i], dense, out[first + i])
        first += count
