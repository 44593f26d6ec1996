import numpy as np
import pytest

kernels_numba = pytest.importorskip("wtawp.graphs.kernels_numba", reason="the extra `fast` is not installed")


@pytest.mark.parametrize("entries", range(10))
def test_rows_of_any_length_are_summed_whole(entries: int) -> None:
    """Entries are taken four at a time; none may be lost or counted twice."""
    indptr, indices = np.array([0, entries], dtype=np.int32), np.arange(entries, dtype=np.int32)
    values, dense = np.ones((1, entries)), np.arange(10.0)[None, :, None] + 1
    out = np.full((1, 1, 1), np.nan)
    kernels_numba.multiply(indptr, indices, values, dense, out)
    assert out[0, 0, 0] == entries * (entries + 1) / 2
