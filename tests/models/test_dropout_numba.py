import numpy as np
import pytest

dropout_numba = pytest.importorskip("wtawp.models.dropout_numba", reason="the extra `fast` is not installed")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_thresholds_at_both_ends_keep_all_or_nearly_none(dtype: type) -> None:
    x, keys, positions = np.ones((1, 50, 20), dtype), np.array([99]), np.arange(50)
    out = np.full((1, 50, 20), np.nan, dtype)
    dropout_numba.apply(x, keys, positions, 0, np.ones(1, dtype), out)
    assert (out == 1).all()
    dropout_numba.apply(x, keys, positions, 2**32 - 1, np.ones(1, dtype), out)
    assert (out == 0).all()


def test_entries_of_a_sparse_matrix_are_masked_by_their_places() -> None:
    """One column is a loop of its own; it must draw what a wide row draws at the same places."""
    keys, scale = np.array([99, 7]), np.full(1, 2.0)
    wide, narrow = np.empty((2, 10, 20)), np.empty((2, 200, 1))
    dropout_numba.apply(np.ones((1, 10, 20)), keys, np.arange(10), 2**31, scale, wide)
    dropout_numba.apply(np.ones((1, 200, 1)), keys, np.arange(200), 2**31, scale, narrow)
    assert (wide.reshape(2, 200) == narrow[..., 0]).all()
    assert (wide[0] != wide[1]).any()
