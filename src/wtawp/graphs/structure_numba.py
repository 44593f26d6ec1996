"""The loops of `structure`, compiled. They trust their arguments: positions out of range would corrupt memory."""

import numba
import numpy as np

Array = np.ndarray
SHORT = 48  # entries of a row up to which insertion is the fastest way to sort them


@numba.njit(nogil=True, cache=True)
def count_rows(rows: Array, cols: Array, indptr: Array) -> bool:
    """Write the row pointers to `indptr`, which is 0; tell whether entries are sorted by row and by column."""
    is_sorted = True
    for e in range(len(rows)):
        indptr[rows[e] + 1] += 1
        if e > 0:
            is_sorted &= rows[e - 1] < rows[e] or (rows[e - 1] == rows[e] and cols[e - 1] <= cols[e])
    for i in range(1, len(indptr)):
        indptr[i] += indptr[i - 1]
    return is_sorted


@numba.njit(nogil=True, cache=True)
def distribute(rows: Array, cols: Array, values: Array, free: Array, indices: Array, moved: Array) -> None:
    """Write each entry to the first free position of its row; `free` are the starts of the rows, and is changed."""
    for e in range(len(rows)):
        position = free[rows[e]]
        free[rows[e]] += 1
        indices[position], moved[position] = cols[e], values[e]


@numba.njit(nogil=True, cache=True)
def sort_row(indices: Array, values: Array, start: int, end: int) -> None:
    """Sort the entries from `start` to `end` by column, in place; entries of equal columns stay in their order."""
    first = start + 1
    while first < end and indices[first - 1] <= indices[first]:
        first += 1
    if first >= end:
        return
    if end - start > SHORT:
        order = np.argsort(indices[start:end], kind="mergesort")
        indices[start:end] = indices[start:end][order]
        values[start:end] = values[start:end][order]
        return
    for e in range(first, end):
        column, value, position = indices[e], values[e], e
        while position > start and indices[position - 1] > column:
            indices[position], values[position] = indices[position - 1], values[position - 1]
            position -= 1
        indices[position], values[position] = column, value


@numba.njit(nogil=True, cache=True)
def sort_rows(indptr: Array, indices: Array, values: Array) -> None:
    """Sort the entries of every row by column, in place."""
    for i in range(len(indptr) - 1):
        sort_row(indices, values, indptr[i], indptr[i + 1])


@numba.njit(nogil=True, cache=True)
def transpose(indptr: Array, indices: Array, t_indptr: Array, t_indices: Array, order: Array) -> None:
    """Write the transpose by counting the entries of each column; `t_indptr` is 0."""
    for e in range(len(indices)):
        t_indptr[indices[e] + 1] += 1
    for j in range(1, len(t_indptr)):
        t_indptr[j] += t_indptr[j - 1]
    free = t_indptr[:-1].copy()
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            position = free[indices[e]]
            free[indices[e]] += 1
            t_indices[position], order[position] = i, e


@numba.njit(nogil=True, cache=True)
def select_and_sort(
    indptr: Array, indices: Array, values: Array, rows: Array, new_column: Array,
    new_indptr: Array, new_indices: Array, moved: Array,
) -> int:  # fmt: skip
    """Write the entries of `rows` whose columns have a new number (not -1), sorted, and return how many there are."""
    kept = 0
    for i in range(len(rows)):
        start = kept
        for e in range(indptr[rows[i]], indptr[rows[i] + 1]):
            column = new_column[indices[e]]
            if column >= 0:
                new_indices[kept], moved[kept] = column, values[e]
                kept += 1
        sort_row(new_indices, moved, start, kept)
        new_indptr[i + 1] = kept
    return kept


@numba.njit(nogil=True, cache=True)
def select_by_runs(
    runs: Array, indptr: Array, indices: Array, values: Array, rows: Array, new_column: Array,
    new_indptr: Array, new_indices: Array, moved: Array,
) -> int:  # fmt: skip
    """As `select_and_sort`, for new numbers that rise with the old ones inside each of the ranges between `runs`.

    Taking a row's entries range by range then sorts them. There is no branch on their columns: an entry of another
    range is overwritten by the next one, and the output needs room for one more.
    """
    kept = 0
    for i in range(len(rows)):
        for run in range(len(runs) - 1):
            low, high = runs[run], runs[run + 1]
            for e in range(indptr[rows[i]], indptr[rows[i] + 1]):
                column = new_column[indices[e]]
                new_indices[kept], moved[kept] = column, values[e]
                kept += (low <= column) & (column < high)
        new_indptr[i + 1] = kept
    return kept


@numba.njit(nogil=True, cache=True)
def mark_columns(indptr: Array, indices: Array, rows: Array, reached: Array) -> None:
    """Set `reached` at the columns of the entries of `rows`."""
    for i in range(len(rows)):
        for e in range(indptr[rows[i]], indptr[rows[i] + 1]):
            reached[indices[e]] = True
