"""The loops of `kernels`, compiled. One thread: chunks of runs are spread over workers, not loops over cores."""

import numba
import numpy as np

Array = np.ndarray


@numba.njit(fastmath={"contract", "nsz"}, nogil=True, cache=True)
def multiply(indptr: Array, indices: Array, values: Array, dense: Array, out: Array) -> None:
    """CSR times dense, member by member, so that one member's dense matrix stays in cache."""
    batch, rows, width = out.shape
    for b in range(batch):
        v = values[b if values.shape[0] > 1 else 0]
        x = dense[b if dense.shape[0] > 1 else 0]
        for i in range(rows):
            o = out[b, i]
            o[:] = 0
            e, end = indptr[i], indptr[i + 1]
            while e + 4 <= end:  # four entries a round: a quarter of the traffic on the output row
                x0, x1, x2, x3 = x[indices[e]], x[indices[e + 1]], x[indices[e + 2]], x[indices[e + 3]]
                w0, w1, w2, w3 = v[e], v[e + 1], v[e + 2], v[e + 3]
                for k in range(width):
                    o[k] += w0 * x0[k] + w1 * x1[k] + w2 * x2[k] + w3 * x3[k]
                e += 4
            while e < end:
                x0, w0 = x[indices[e]], v[e]
                for k in range(width):
                    o[k] += w0 * x0[k]
                e += 1
