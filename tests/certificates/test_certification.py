import numpy as np
import pytest

import wtawp
from wtawp.base import rng
from wtawp.certificates import Noise, certificate_of, certify, vote
from wtawp.graphs import citation
from wtawp.models import GCN

DATA = citation(seed=0, num_nodes=60, num_words=30)
VICTIM = GCN(30, 7, hidden=(8,), generator=rng("voter"))
NOISE = Noise(p_add=0.02, p_del=0.5)


def test_one_call_is_votes_and_their_certificate() -> None:
    found = certify(DATA, VICTIM, features=NOISE, samples=300, seed=1, alpha=0.05)
    votes = vote(DATA, VICTIM, features=NOISE, samples=300, seed=1)
    same = certificate_of(votes.counts, votes.noise, alpha=0.05)
    assert np.array_equal(found.radii, same.radii)
    assert np.array_equal(found.prediction, votes.prediction.numpy())
    assert found.samples == 300
    assert not found.abstained.all()
    strict = certify(DATA, VICTIM, features=NOISE, samples=300, seed=1, alpha=0.05, kind="binary", over_nodes=True)
    assert bool((strict.p_lower < found.p_lower).all())


def test_more_votes_of_the_same_share_never_certify_less() -> None:
    votes = vote(DATA, VICTIM, features=NOISE, samples=200, seed=1)
    few, many = (certificate_of(votes.counts * times, votes.noise) for times in (1, 100))
    assert bool((few.radii <= many.radii).all())
    assert bool((few.radii < many.radii).any())


def test_features_and_edges_together() -> None:
    edges = Noise(p_add=0.005, p_del=0.3)
    joint = certify(DATA, VICTIM, features=NOISE, edges=edges, samples=200, seed=1)
    assert list(joint.noise) == ["features", "edges"]
    assert joint.certified(features=(0, 1), edges=(0, 1)).sum() <= joint.certified(edges=(0, 1)).sum()


def test_it_stands_in_the_front_door() -> None:
    assert wtawp.certify is certify
    with pytest.raises(ValueError, match="alpha"):
        wtawp.certify(DATA, VICTIM, features=NOISE, samples=10, seed=0, alpha=1.5)
