import numpy as np
import pytest

fused_numba = pytest.importorskip("wtawp.models.fused_numba", reason="the extra `fast` is not installed")


def test_scores_are_leaky_and_at_most_zero_in_each_row() -> None:
    indptr, indices = np.array([0, 2, 3], np.int32), np.array([0, 1, 1], np.int32)
    source, target = np.array([[[1.0], [-4.0]]]), np.array([[[1.0], [2.0]]])
    out = np.full((1, 3, 1), np.nan)
    fused_numba.scores(indptr, indices, source, target, out)
    np.testing.assert_allclose(out[0, :, 0], [0.0, -3 * 0.2 - 2.0, 0.0])


def test_dropped_attention_still_counts_in_the_denominator() -> None:
    indptr, indices = np.array([0, 4], np.int32), np.arange(4, dtype=np.int32)
    ones, out = np.ones((1, 4, 1, 1)), np.empty((1, 1, 1, 1))
    attention = np.ones((1, 4, 1))
    fused_numba.attend(2**31, 2.0, indptr, indices, attention, ones, np.array([5]), np.arange(4), out)
    assert (attention == 0.25).all()
    assert out[0, 0, 0, 0] in {0.0, 0.5, 1.0, 1.5, 2.0}
