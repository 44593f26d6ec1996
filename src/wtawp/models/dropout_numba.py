"""The loop of `dropout_kernels`, compiled."""

import numba
import numpy as np

Array = np.ndarray
u = np.uint32


@numba.njit(nogil=True, cache=True)
def apply(x: Array, keys: Array, positions: Array, threshold: int, scale: float, out: Array) -> None:
    """See `dropout_kernels.apply`. Operands are cast to 32 bits by hand: numba widens them, and vectors stay empty."""
    batch, rows, width = out.shape
    least = u(threshold)
    factor, zero = np.empty(1, out.dtype), np.zeros(1, out.dtype)  # typed as the output, for the same reason
    factor[0] = scale
    for b in range(batch):
        low, high = u(keys[b] & 0xFFFFFFFF), u((keys[b] >> 32) & 0xFFFFFFFF)
        for i in range(rows):
            source, target = x[b if x.shape[0] > 1 else 0, i], out[b, i]
            start = u(positions[i] * width)
            for k in range(width):
                h = u(u(start + u(k)) * u(0x9E3779B1) + low)
                h = u(u(h ^ (h >> u(16))) * u(0x21F0AAAD) + high)
                h = u(u(h ^ (h >> u(15))) * u(0x735A2D97))
                h = u(h ^ (h >> u(15)))
                target[k] = source[k] * (factor[0] if h >= least else zero[0])
