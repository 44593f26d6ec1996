import numpy as np
import pytest

votes_numba = pytest.importorskip("wtawp.certificates.votes_numba")


def test_a_vote_goes_to_the_first_of_the_highest_classes() -> None:
    counts = np.zeros((3, 2), np.int64)
    logits = np.array([[1.0, 2.0, 9.0], [2.0, 1.0, 9.0], [1.0, 1.0, 9.0]])  # the last column is padding
    votes_numba.tally(logits, np.zeros(2), counts)
    assert counts.tolist() == [[0, 1], [1, 0], [1, 0]]
    votes_numba.tally(logits, np.array([0.0, 5.0]), counts)
    assert counts.tolist() == [[0, 2], [1, 1], [1, 1]]
