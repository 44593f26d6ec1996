import numpy as np
import pytest

dropout_numba = pytest.importorskip("wtawp.models.dropout_numba", reason="the extra `fast` is not installed")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_thresholds_at_both_ends_keep_all_or_nearly_none(dtype: type) -> None:
    x, keys, positions = np.ones((1, 50, 20), dtype), np.array([99]), np.arange(50)
    out = np.full((1, 50, 20), np.nan, dtype)
    dropout_numba.apply(x, keys, positions, 0, 1.0, out)
    assert (out == 1).all()
    dropout_numba.apply(x, keys, positions, 2**32 - 1, 1.0, out)
    assert (out == 0).all()
