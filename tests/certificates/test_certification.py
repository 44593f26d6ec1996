from itertools import product

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import wtawp
from wtawp.base import rng
from wtawp.certificates import Noise, Votes, certificate_of, certify, vote
from wtawp.graphs import citation
from wtawp.models import GCN

DATA = citation(seed=0, num_nodes=60, num_words=30)
VICTIM = GCN(30, 7, hidden=(8,), generator=rng("voter"))
NOISE = Noise(p_add=0.02, p_del=0.5)


def test_one_call_is_votes_and_their_certificate() -> None:
    found = certify(DATA, VICTIM, features=NOISE, samples=300, seed=1, alpha=0.05)
    votes = vote(DATA, VICTIM, features=NOISE, samples=300, seed=1)
    same = certificate_of(votes, alpha=0.05)
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


def every_input() -> NDArray[np.int64]:  # [64, 6]
    """All features of three nodes with two features."""
    return np.array(list(product((0, 1), repeat=6)))


def outcomes_of(model: GCN, min_confidence: float) -> NDArray[np.float64]:  # [64, 3, 3]
    """Whether each node of a path of three nodes gets each class, for all features; 0 where its vote is filtered."""
    path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    with torch.no_grad():
        inputs = torch.from_numpy(every_input()).double().view(64, 3, 2)
        probabilities = torch.stack([model(x, path).softmax(1) for x in inputs]).numpy()
    return np.eye(3)[probabilities.argmax(2)] * (probabilities.max(2, keepdims=True) >= min_confidence)


def test_on_a_small_graph_no_input_within_the_radius_has_another_filtered_majority() -> None:
    noise, inputs, scale = {"features": Noise(p_add=0.25, p_del=0.5)}, every_input(), 4**6 * 10_000
    chance = np.array([[0.75, 0.25], [0.5, 0.5]])
    transition = chance[inputs[:, None], inputs[None]].prod(2)  # of each noisy copy of each input, exact
    added, deleted = (((inputs[:, None] == a) & (inputs[None] == 1 - a)).sum(2) for a in (0, 1))
    certified_inputs, broken_by_shares = 0, 0
    for seed in range(14):
        model = GCN(2, 3, hidden=(4,), generator=rng("tiny", seed)).double().eval()
        with torch.no_grad():
            for weight in model.parameters():
                weight *= 3
        masses = np.einsum("xz,znc->xnc", transition, outcomes_of(model, 0.6))
        for x in range(0, 64, 9):
            counts = np.rint(masses[x] * scale).astype(np.int64)
            certificate = certificate_of(counts, noise, samples=scale)
            shares = np.rint(masses[x] / np.maximum(masses[x].sum(1, keepdims=True), 1e-9) * scale).astype(np.int64)
            unsound = certificate_of(shares, noise, samples=scale + 3)
            for a, d in ((0, 1), (1, 0), (1, 1), (0, 2), (2, 0)):
                near = masses[(added[x] <= a) & (deleted[x] <= d)]  # [k, 3, 3]
                mine = near[:, np.arange(3), certificate.prediction]
                others = np.where(np.eye(3, dtype=bool)[certificate.prediction], -1.0, near).max(2)
                keeps = (mine > others).all(0)
                certified = certificate.certified(features=(a, d))
                assert bool(keeps[certified].all())
                certified_inputs += int(certified.sum())
                broken_by_shares += int((unsound.certified(features=(a, d)) & ~keeps).sum())
    assert certified_inputs > 100
    assert broken_by_shares > 0, "shares of the counted votes alone certify too much"


def test_a_filter_is_passed_on_and_votes_without_their_number_are_refused() -> None:
    how = {"features": NOISE, "samples": 300, "seed": 1, "min_confidence": 0.2}
    votes = vote(DATA, VICTIM, **how)  # type: ignore[arg-type]
    found = certify(DATA, VICTIM, **how)  # type: ignore[arg-type]
    for same in (certificate_of(votes), certificate_of(votes.counts, votes.noise, samples=300)):
        assert np.array_equal(found.radii, same.radii)
    assert found.samples == 300
    assert bool((found.p_lower <= votes.counts.amax(1).numpy() / 300).all()), "of all votes, not of those that count"
    with pytest.raises(ValueError, match=r"pass what vote\(\) returned"):
        certificate_of(votes.counts, votes.noise)
    for samples in (200, 0, True, 300.0):
        with pytest.raises(ValueError, match="samples must be a whole number >= 1, and at least the counted votes"):
            certificate_of(votes.counts + 100, votes.noise, samples=samples)  # type: ignore[arg-type]
    nothing = certificate_of(np.zeros((2, 3), dtype=np.int64), votes.noise, samples=300)
    assert nothing.abstained.all(), "where no vote counts, nothing is certified"


def test_votes_of_one_node_are_certified_by_all_of_them_and_not_by_those_that_count() -> None:
    votes = Votes(torch.tensor([[60, 0]]), 100, {"features": NOISE}, seed=0, min_confidence=0.5)
    certificate = certificate_of(votes)
    assert (certificate.samples, certificate.noise) == (100, {"features": NOISE})
    assert float(certificate.p_lower[0]) < 0.6
    assert float(certificate_of(votes.counts, votes.noise).p_lower[0]) > 0.9, "counts alone do not say what is missing"
    assert certificate_of(votes, votes.noise, samples=100).p_lower == certificate.p_lower
    for wrong in ({"samples": 60}, {"noise": {"edges": NOISE}}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} of these votes is .*; leave it out"):
            certificate_of(votes, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="counts do not hold the noise"):
        certificate_of(votes.counts)


def test_it_stands_in_the_front_door() -> None:
    assert wtawp.certify is certify
    with pytest.raises(ValueError, match="alpha"):
        wtawp.certify(DATA, VICTIM, features=NOISE, samples=10, seed=0, alpha=1.5)
