import numpy as np
import pytest

kernels_numba = pytest.importorskip("wtawp.graphs.kernels_numba", reason="the extra `fast` is not installed")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 7, 15, 16, 17, 63, 64, 65, 80, 131])
def test_rows_of_any_width_are_summed_in_registers_and_beside_them(width: int, dtype: type) -> None:
    g = np.random.default_rng(width)
    matrix = g.random((9, 11)) * (g.random((9, 11)) < 0.5)
    matrix[4] = 0
    values, (rows, cols) = matrix[matrix != 0].astype(dtype)[None], matrix.nonzero()
    indptr = np.concatenate([[0], np.bincount(rows, minlength=9).cumsum()]).astype(np.int32)
    dense, out = g.standard_normal((3, 11, width)).astype(dtype), np.full((3, 9, width), np.nan, dtype)
    kernels_numba.multiply(indptr, cols.astype(np.int32), values, dense, out)
    np.testing.assert_allclose(out, matrix @ dense.astype(np.float64), atol=1e-5 if dtype == np.float32 else 1e-13)


def test_a_matrix_without_entries_gives_zeros() -> None:
    none, out = np.empty(0, np.int32), np.full((1, 2, 64), np.nan, np.float32)
    kernels_numba.multiply(
        np.zeros(3, np.int32), none, np.empty((1, 0), np.float32), np.ones((1, 4, 64), np.float32), out
    )
    assert (out == 0).all()
