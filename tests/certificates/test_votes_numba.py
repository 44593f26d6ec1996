import numpy as np
import pytest

from wtawp.base import CertificateError, rng
from wtawp.certificates import Noise, vote
from wtawp.graphs import citation, structure
from wtawp.models import GCN

votes_numba = pytest.importorskip("wtawp.certificates.votes_numba")


def test_a_vote_goes_to_the_first_of_the_highest_classes() -> None:
    counts = np.zeros((3, 2), np.int64)
    logits = np.array([[1.0, 2.0, 9.0], [2.0, 1.0, 9.0], [1.0, 1.0, 9.0]])  # the last column is padding
    votes_numba.tally(logits, np.zeros(2), counts, 0.0)
    assert counts.tolist() == [[0, 1], [1, 0], [1, 0]]
    votes_numba.tally(logits, np.array([0.0, 5.0]), counts, 0.0)
    assert counts.tolist() == [[0, 2], [1, 1], [1, 1]]


def test_a_vote_of_less_confidence_than_the_least_does_not_count() -> None:
    logits = np.log([[0.6, 0.4, 9.0], [0.2, 0.8, 9.0], [0.5, 0.5, 9.0]])
    for least, expected in ((0.55, [[1, 0], [0, 1], [0, 0]]), (0.7, [[0, 0], [0, 1], [0, 0]]), (0.9, [[0, 0]] * 3)):
        counts = np.zeros((3, 2), np.int64)
        votes_numba.tally(logits, np.zeros(2), counts, least)
        assert counts.tolist() == expected


@pytest.mark.parametrize("part", ["features", "edges"])
def test_samples_that_int32_pointers_cannot_count_are_refused(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = citation(seed=0, num_nodes=60)
    noise = {part: Noise(p_add=0.01, p_del=0.1)}
    model = GCN(data.num_features, 7, hidden=(4,), generator=rng("init")).eval()
    monkeypatch.setattr(structure, "INT32_ENTRIES", 1000)
    with pytest.raises(CertificateError, match="a noisy sample can have up to 1000 entries, got room for"):
        vote(data, model, **noise, samples=2, seed=0)
