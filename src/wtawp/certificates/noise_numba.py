"""The samples of `noise`, compiled: the same flips, as the rows of a CSR matrix, by one thread.

Random numbers are drawn in blocks by loops that vectorise (which is why the logarithm is written out here), and other
loops use them up.
"""

import numba
import numpy as np

Array = np.ndarray
u = np.uint64
GOLDEN = u(0x9E3779B97F4A7C15)
LN2 = 0.6931471805599453
EXPONENT_OF_ROOT_HALF, MANTISSA = u(0x3FE6A09E667F3BCD), u((1 << 52) - 1)


@numba.njit(nogil=True, inline="always")
def drawn(state: u) -> u:
    """53 random bits from the sum of a key and a counter."""
    z = u(u(state ^ (state >> u(30))) * u(0xBF58476D1CE4E5B9))
    z = u(u(z ^ (z >> u(27))) * u(0x94D049BB133111EB))
    return u(z ^ (z >> u(31))) >> u(11)


@numba.njit(nogil=True, cache=True)
def survivors(key: u, cut: u, out: Array) -> None:
    """Whether each of the ones is kept."""
    for k in range(len(out)):
        out[k] = drawn(u(key + u(k + 1) * GOLDEN)) >= cut


@numba.njit(nogil=True, cache=True, fastmath={"contract"}, error_model="numpy")  # no check of the division
def gaps(key: u, start: int, rate: float, size: int, numbers: Array, out: Array) -> None:
    """Steps from one addition to the next: draws start, start + 1, ... of the stream. `numbers` is a float64 buffer."""
    bits, most = numbers.view(np.uint64), float(size)
    first = u(key + u(start + 1) * GOLDEN)
    for k in range(len(out)):
        numbers[k] = float(np.int64(drawn(u(first + u(k) * GOLDEN))) + 1)
    for k in range(len(out)):
        # ln x = e ln 2 + ln m with m in [sqrt 1/2, sqrt 2), and ln m = 2 artanh t as a series; good to 1e-16.
        shifted = u(bits[k] - EXPONENT_OF_ROOT_HALF)
        exponent = np.int64(shifted) >> 52
        out[k] = exponent
        bits[k] = u(bits[k] - u(u(exponent) << u(52)))
    for k in range(len(out)):
        t = (numbers[k] - 1.0) / (numbers[k] + 1.0)
        s = t * t
        series = s * (1 / 13 + s * (1 / 15 + s * (1 / 17 + s * (1 / 19 + s * (1 / 21)))))
        series = s * (1 / 3 + s * (1 / 5 + s * (1 / 7 + s * (1 / 9 + s * (1 / 11 + series)))))
        logarithm = float(out[k] - 53) * LN2 + (2 * t + 2 * t * series)
        out[k] = np.int64(min(logarithm * rate, most)) + 1


@numba.njit(nogil=True, cache=True)
def features(
    adding: u, deleting: u, rate: float, cut: u, indptr: Array, columns: Array, taken: Array, width: int,
    kept: Array, numbers: Array, steps: Array, new_indptr: Array, new_columns: Array,
) -> bool:  # fmt: skip
    """Draw one sample, the columns of a row in any order; return False if `new_columns` is too short.

    A rate of 0 adds nothing. `taken` has a bit for each cell, set where there is a 1: [n, words].
    `kept`, `numbers` and `steps` are buffers.
    """
    rows, size = len(indptr) - 1, (len(indptr) - 1) * width
    survivors(deleting, cut, kept)
    filled, start, used = np.int64(0), 0, len(steps)
    place = np.int64(-1) if rate != 0 else np.int64(size)  # of the last addition
    for i in range(rows):
        new_indptr[i] = filled
        if filled + width > len(new_columns):
            return False
        for e in range(indptr[i], indptr[i + 1]):
            new_columns[filled] = columns[e]
            filled += np.int64(kept[e])
        base, end = i * width, (i + 1) * width
        while place < end:
            if place >= base:
                column = place - base
                new_columns[filled] = column
                filled += 1 - np.int64((taken[i, column >> 6] >> u(column & 63)) & u(1))
            if used == len(steps):
                gaps(adding, start, rate, size, numbers, steps)
                start, used = start + len(steps), 0
            place += steps[used]
            used += 1
    new_indptr[rows] = filled
    return True


@numba.njit(nogil=True, cache=True, error_model="numpy")
def edges(
    adding: u, deleting: u, rate: float, cut: u, cells: Array, marks: Array, ends: Array, nodes: int, kept: Array,
    numbers: Array, steps: Array, places: Array, pairs: Array,
) -> int:  # fmt: skip
    """Draw one sample of pairs i < j, unordered, into `pairs` [2, room]; return their number, or -1 without room.

    `ends` [2, k] are the nodes of the edges at `cells` [k]. `marks` has a bit for the last digits of each of `cells`:
    where it is not set, there is no edge. `kept`, `numbers`, `steps` and `places` [room] are buffers.
    """
    filled, size = np.int64(0), nodes * (nodes - 1) // 2
    if len(cells) > pairs.shape[1]:
        return -1
    survivors(deleting, cut, kept)
    for e in range(len(cells)):
        pairs[0, filled], pairs[1, filled] = ends[0, e], ends[1, e]
        filled += np.int64(kept[e])
    added = np.int64(0)
    start, used, words = 0, len(steps), np.int64(len(marks) - 1)
    place = np.int64(-1) if rate != 0 else np.int64(size)
    while place < size:
        if place >= 0:
            if filled + added == pairs.shape[1]:
                return -1
            places[added] = place
            marked = (marks[(place >> 6) & words] >> u(place & 63)) & u(1)
            added += not (marked and _contains(cells, place))
        if used == len(steps):
            gaps(adding, start, rate, size, numbers, steps)
            start, used = start + len(steps), 0
        place += steps[used]
        used += 1
    half = nodes - 0.5
    for k in range(added):  # row i starts at i (2 nodes - i - 1) / 2
        row = np.int64(half - np.sqrt(half * half - 2.0 * places[k]))
        row -= row * (2 * nodes - row - 1) // 2 > places[k]  # the root may be rounded across a row's start
        row += (row + 1) * (2 * nodes - row - 2) // 2 <= places[k]
        pairs[0, filled + k] = row
        pairs[1, filled + k] = row + 1 + places[k] - row * (2 * nodes - row - 1) // 2
    return int(filled + added)


@numba.njit(nogil=True, cache=True)
def _contains(cells: Array, place: np.int64) -> bool:
    """Whether a cell is among the sorted ones."""
    position = np.searchsorted(cells, place)
    return bool(position < len(cells) and cells[position] == place)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def gcn_operator(
    pairs: Array, count: int, indptr: Array, indices: Array, values: Array, cursor: Array, scale: Array
) -> None:
    """D^-1/2 (A + I) D^-1/2 as CSR, of `count` pairs; a row's self-loop is its first entry. `indices` must have room.

    `cursor` [n] and `scale` [n], of the type of `values`, are buffers.
    """
    size = len(cursor)
    cursor[:] = 1
    for e in range(count):
        cursor[pairs[0, e]] += 1
        cursor[pairs[1, e]] += 1
    indptr[0] = 0
    for i in range(size):
        indptr[i + 1] = indptr[i] + cursor[i]
        scale[i] = 1 / np.sqrt(scale.dtype.type(cursor[i]))
        cursor[i] = indptr[i] + 1
        indices[indptr[i]], values[indptr[i]] = i, scale[i] * scale[i]
    for e in range(count):
        i, j = pairs[0, e], pairs[1, e]
        weight = scale[i] * scale[j]
        here, there = cursor[i], cursor[j]
        indices[here], values[here] = j, weight
        indices[there], values[there] = i, weight
        cursor[i], cursor[j] = here + 1, there + 1
