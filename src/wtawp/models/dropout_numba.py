"""The loop of `dropout_kernels`, compiled."""

import numba
import numpy as np

Array = np.ndarray
u = np.uint32


@numba.njit(nogil=True, inline="always")
def hashed(place: u, low: u, high: u) -> u:
    """Hash a position and the halves of a key to 32 bits.

    Operands are cast to 32 bits explicitly: numba would widen them, and the loop would not be vectorised.
    """
    h = u(place * u(0x9E3779B1) + low)
    h = u(u(h ^ (h >> u(16))) * u(0x21F0AAAD) + high)
    h = u(u(h ^ (h >> u(15))) * u(0x735A2D97))
    return u(h ^ (h >> u(15)))


@numba.njit(nogil=True, inline="always")
def halves(key: int) -> tuple[u, u]:
    """Split a key into its low and its high 32 bits."""
    return u(key & 0xFFFFFFFF), u((key >> 32) & 0xFFFFFFFF)


@numba.njit(nogil=True, cache=True)
def apply(x: Array, keys: Array, positions: Array, threshold: int, scale: Array, out: Array) -> None:
    """See `dropout_kernels.apply`; `scale` is an array of one number with the dtype of x, so that loops vectorise."""
    batch, rows, width = out.shape
    factor, zero, least = scale[0], scale[0] * scale.dtype.type(0), u(threshold)
    for b in range(batch):
        low, high = halves(keys[b])
        source, target = x[b if x.shape[0] > 1 else 0], out[b]
        if width == 1:  # entries of a sparse matrix: vectorise over the rows
            for i in range(rows):
                target[i, 0] = source[i, 0] * (factor if hashed(u(positions[i]), low, high) >= least else zero)
            continue
        for i in range(rows):
            start = u(positions[i] * width)
            for k in range(width):
                kept = hashed(u(start + u(k)), low, high) >= least
                target[i, k] = source[i, k] * (factor if kept else zero)
