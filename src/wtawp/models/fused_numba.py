"""The loops of `fused` on the CPU, compiled: one thread, one model after another, so that a model stays in cache."""

import numba
import numpy as np

from wtawp.graphs.kernels_numba import multiply, multiply_row
from wtawp.models.dropout_numba import halves, hashed, u

Array = np.ndarray
SLOPE = 0.2  # of GAT's leaky ReLU


@numba.njit(fastmath={"contract", "nsz"}, nogil=True, cache=True)
def propagate(
    threshold: int, scale: Array, indptr: Array, indices: Array, values: Array, dense: Array, bias: Array, keys: Array,
    positions: Array, out: Array,
) -> None:  # fmt: skip
    """Compute dropout(relu(A H + b)); threshold 0 drops nothing. `scale` is an array of one with the dtype of `out`."""
    batch, rows, width = out.shape
    factor, zero, least = scale[0], scale[0] * scale.dtype.type(0), u(threshold)
    for b in range(batch):
        low, high = halves(keys[b])
        x, shift = dense[b], bias[b]
        for i in range(rows):
            o = out[b, i]
            multiply_row(indices, values, indptr[i], indptr[i + 1], x, o)
            start = u(positions[i] * width)
            if threshold == 0:
                for k in range(width):
                    o[k] = max(o[k] + shift[k], zero)
            else:
                for k in range(width):
                    kept = hashed(u(start + u(k)), low, high) >= least
                    o[k] = max(o[k] + shift[k], zero) * (factor if kept else zero)


@numba.njit(fastmath={"contract", "nsz"}, nogil=True, cache=True)
def convolve(
    threshold: int, scale: Array, x_indptr: Array, x_indices: Array, x_values: Array, weight: Array, indptr: Array,
    indices: Array, values: Array, bias: Array, keys: Array, positions: Array, product: Array, out: Array,
) -> None:  # fmt: skip
    """Compute dropout(relu(A X W + b)) one model after another; X W of one model, [1, m, h], stays in cache."""
    for b in range(len(out)):
        multiply(x_indptr, x_indices, x_values, weight[b : b + 1], product)
        propagate(
            threshold, scale, indptr, indices, values, product, bias[b : b + 1], keys[b : b + 1], positions,
            out[b : b + 1],
        )  # fmt: skip


@numba.njit(nogil=True, cache=True)
def multiply_twice(
    first_indptr: Array, first_indices: Array, first_values: Array, second_indptr: Array, second_indices: Array,
    second_values: Array, dense: Array, product: Array, out: Array,
) -> None:  # fmt: skip
    """Multiply two sparse matrices, the first one first, with a dense one; the product in between stays in cache."""
    for b in range(len(out)):
        multiply(first_indptr, first_indices, first_values, dense[b : b + 1], product)
        multiply(second_indptr, second_indices, second_values, product, out[b : b + 1])


@numba.njit(nogil=True, cache=True)
def scores(indptr: Array, indices: Array, source: Array, target: Array, out: Array) -> None:
    """Compute leaky(source_j + target_i) minus its maximum over the row, for every entry and head: [b, e, heads]."""
    heads = out.shape[2]
    highest, slope = np.empty(heads, out.dtype), out.dtype.type(SLOPE)
    for b in range(len(out)):
        for i in range(target.shape[1]):
            highest[:] = -np.inf
            for e in range(indptr[i], indptr[i + 1]):
                for h in range(heads):
                    s = source[b, indices[e], h] + target[b, i, h]
                    s = max(s, s * slope)
                    highest[h] = max(highest[h], s)
                    out[b, e, h] = s
            for e in range(indptr[i], indptr[i + 1]):
                for h in range(heads):
                    out[b, e, h] -= highest[h]


@numba.njit(fastmath={"contract", "nsz"}, nogil=True, cache=True)
def attend(
    threshold: int, scale: float, indptr: Array, indices: Array, attention: Array, projected: Array, keys: Array,
    positions: Array, out: Array,
) -> None:  # fmt: skip
    """Normalise the exponentials in `attention` in place, and sum the projected rows with them after dropout."""
    batch, rows, heads, width = out.shape
    total, weight = np.empty(heads, out.dtype), np.empty(heads, out.dtype)
    for b in range(batch):
        low, high = halves(keys[b])
        for i in range(rows):
            start, end = indptr[i], indptr[i + 1]
            total[:] = 0
            for e in range(start, end):
                for h in range(heads):
                    total[h] += attention[b, e, h]
            out[b, i] = 0
            for e in range(start, end):
                place = u(positions[e] * heads)
                for h in range(heads):
                    a = attention[b, e, h] / total[h]
                    attention[b, e, h] = a
                    weight[h] = a * scale if hashed(u(place + u(h)), low, high) >= u(threshold) else 0
                x = projected[b, indices[e]]
                for h in range(heads):
                    w = weight[h]
                    if w != 0:
                        for k in range(width):
                            out[b, i, h, k] += w * x[h, k]


@numba.njit(fastmath={"contract", "nsz", "reassoc"}, nogil=True, cache=True)
def attend_back(
    threshold: int, scale: float, indptr: Array, indices: Array, attention: Array, projected: Array, source: Array,
    target: Array, keys: Array, positions: Array, out: Array, grad: Array, to_projected: Array, to_source: Array,
    to_target: Array,
) -> None:  # fmt: skip
    """Add the gradients of `attend` to the last three arguments.

    With da = <grad_i, x_j> and D_i = <grad_i, out_i> the softmax gives ds = a (da - D_i), as in flash attention.
    """
    batch, rows, heads, width = grad.shape
    mean = np.empty(heads, grad.dtype)
    for b in range(batch):
        low, high = halves(keys[b])
        for i in range(rows):
            g = grad[b, i]
            for h in range(heads):
                d = grad[b, i, h, 0] * out[b, i, h, 0]
                for k in range(1, width):
                    d += g[h, k] * out[b, i, h, k]
                mean[h] = d
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                x, to_x = projected[b, j], to_projected[b, j]
                place = u(positions[e] * heads)
                for h in range(heads):
                    a = attention[b, e, h]
                    d = -mean[h]
                    if hashed(u(place + u(h)), low, high) >= u(threshold):
                        w, dot = a * scale, mean[h] * 0
                        for k in range(width):
                            dot += g[h, k] * x[h, k]
                            to_x[h, k] += w * g[h, k]
                        d += dot * scale
                    d *= a
                    if source[b, j, h] + target[b, i, h] <= 0:
                        d *= SLOPE
                    to_source[b, j, h] += d
                    to_target[b, i, h] += d
