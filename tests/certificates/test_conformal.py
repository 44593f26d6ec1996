from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from wtawp.certificates import Noise, Votes, conformal_sets
from wtawp.certificates.conformal import PredictionSets, curves

NOISE = Noise(p_add=0.1, p_del=0.4)
MANY = 10**9
Floats = NDArray[np.float64]


def votes_of(counts: Floats | NDArray[np.int64], noise: Noise = NOISE) -> Votes:
    whole = torch.from_numpy(np.asarray(counts, dtype=np.int64))
    return Votes(whole, int(whole[0].sum()), {"features": noise}, 0)


def random_votes(size: int, classes: int, samples: int, seed: int) -> tuple[Votes, NDArray[np.int64]]:
    g = np.random.default_rng(seed)
    chances = g.dirichlet(np.ones(classes) / 2, size)
    counts = np.stack([g.multinomial(samples, p) for p in chances])
    return votes_of(counts), np.array([g.choice(classes, p=p) for p in chances])


def test_without_flips_it_is_split_conformal_prediction() -> None:
    votes, labels = random_votes(40, 4, 100, 0)
    calibration, alpha = np.arange(0, 40, 2), 0.2
    sets = conformal_sets(votes, labels, calibration, alpha=alpha)
    scores = sorted(1 - votes.counts[i, labels[i]].item() / 100 for i in calibration)
    quantile = scores[int(np.ceil((1 - alpha) * (len(calibration) + 1))) - 1]  # of the textbook's scores, 1 - share
    expected = 1 - votes.counts.numpy() / 100 <= quantile
    assert np.array_equal(sets.members, expected)
    assert np.array_equal(sets.sizes, expected.sum(1))
    assert np.array_equal(conformal_sets(votes, labels, calibration, alpha=alpha, features=(0, 0)).members, expected)


def all_calibrations(size: int, count: int) -> list[tuple[list[int], list[int]]]:
    chosen = [list(some) for some in combinations(range(size), count)]
    return [(some, [i for i in range(size) if i not in some]) for some in chosen]


@pytest.mark.parametrize("alpha", [0.1, 0.25, 0.5])
def test_over_all_choices_of_calibration_nodes_the_true_class_is_covered(alpha: float) -> None:
    """Exchangeability made exact: the mean over every choice, with no sampling error."""
    for seed in range(4):
        votes, labels = random_votes(9, 3, 20, seed)
        shares = [
            conformal_sets(votes, labels, some, alpha=alpha).coverage(labels, rest)
            for some, rest in all_calibrations(9, 5)
        ]
        assert np.mean(shares) >= 1 - alpha - 1e-12


def test_coverage_is_not_much_larger_than_asked_for() -> None:
    votes, labels = random_votes(2000, 5, 10_000, 1)
    g = np.random.default_rng(2)
    shares = []
    for _ in range(30):
        order = g.permutation(2000)
        shares.append(conformal_sets(votes, labels, order[:500], alpha=0.1).coverage(labels, order[500:]))
    assert 0.89 < np.mean(shares) < 0.92


def test_sets_that_withstand_more_contain_those_that_withstand_less() -> None:
    votes, labels = random_votes(60, 4, 2000, 3)
    calibration = np.arange(30)
    for clean in (None, votes):
        before = conformal_sets(votes, labels, calibration, alpha=0.2)
        for radius in ((0, 1), (0, 2), (1, 2), (1, 4)):
            sets = conformal_sets(votes, labels, calibration, alpha=0.2, clean=clean, features=radius)
            assert bool((sets.members >= before.members).all())
            before = sets
        assert sets.radii == {"features": (1, 4)}
    unknown = conformal_sets(votes, labels, calibration, alpha=0.2, features=(0, 1))
    known = conformal_sets(votes, labels, calibration, alpha=0.2, clean=votes, features=(0, 1))
    assert unknown.sizes.sum() > known.sizes.sum(), "calibration nodes that may be attacked cost more"


COPIES = np.array(list(product((0, 1), repeat=4)))


def chances(x: NDArray[np.int64], noise: Noise) -> Floats:  # [m, 4] -> [m, copies]
    """The probability of each noisy copy of each input."""
    flip = np.where(x == 1, noise.p_del, noise.p_add)[:, None]
    return np.asarray(np.where(x[:, None] != COPIES, flip, 1 - flip).prod(2))


def within(x: NDArray[np.int64], radius: tuple[int, int]) -> NDArray[np.bool_]:
    """Which of all inputs an adversary can make of x."""
    return np.asarray(((x < COPIES).sum(1) <= radius[0]) & ((x > COPIES).sum(1) <= radius[1]))


def nested_classifiers(here: Floats, there: Floats) -> Floats:  # [copies], [copies] -> [classifiers, copies]
    """All sets of noisy copies that speak most for one of two inputs, among which are the worst classifiers."""
    order = np.argsort(there / here, kind="stable")
    return np.tril(np.ones((16, 16)))[:, np.argsort(order)]


@pytest.mark.parametrize("radius", [(1, 0), (0, 1), (1, 2), (2, 1)])
@pytest.mark.parametrize(("p_add", "p_del"), [(0.05, 0.5), (0.4, 0.1)])
def test_bounds_hold_for_every_clean_input_every_attack_and_the_worst_classifiers(
    radius: tuple[int, int], p_add: float, p_del: float
) -> None:
    """Calibration: every least score. Prediction: every input between a clean one and what an attack makes of it."""
    noise, num_reached = Noise(p_add=p_add, p_del=p_del), 0
    p, index = chances(COPIES, noise), {tuple(x): i for i, x in enumerate(COPIES)}
    for is_clean in (True, False):
        first, second = curves({"features": noise}, {"features": radius}, is_calibration_clean=is_clean)
        for i, x in enumerate(COPIES):
            for j in within(x, radius).nonzero()[0]:
                moved = COPIES[j]
                halfway = np.minimum(x, moved) if p_add <= p_del else np.maximum(x, moved)
                compared = index[tuple(halfway)] if is_clean else i
                for here, curve in ((i if is_clean else j, first), (j, second)):
                    classifiers = nested_classifiers(p[here], p[compared])
                    seen, true = classifiers @ p[here], classifiers @ p[compared]
                    assert bool((curve.lowest_share(seen) <= true + 1e-12).all())
                    others = 1 - classifiers
                    seen, true = others @ p[here], others @ p[compared]
                    highest = 1 - curve.lowest_share(1 - seen)
                    assert bool((true <= highest + 1e-12).all())
                    num_reached += here != compared and bool((np.abs(highest - true) < 1e-9)[:-1].any())
    assert num_reached > 0, "the bounds are no looser than they must be"


def attacked_sets(radius: tuple[int, int], noise: Noise, is_calibration_clean: bool, is_robust: bool) -> float:
    """The mean coverage over all choices of calibration nodes, with the worst attack on the input of every node."""
    g = np.random.default_rng(0)
    classes = g.integers(0, 3, 16)
    votes = (chances(COPIES, noise) @ np.eye(3)[classes] * MANY).astype(np.int64)  # of each input
    votes[:, 2] = MANY - votes[:, :2].sum(1)
    nodes = g.permutation(16)[:9]
    labels = np.array([g.choice(3, p=row / MANY) for row in votes[nodes]])
    worst = np.array([
        np.where(within(COPIES[i], radius), votes[:, label], MANY + 1).argmin()
        for i, label in zip(nodes, labels, strict=True)
    ])  # fmt: skip
    seen, clean = votes_of(votes[worst], noise), votes_of(votes[nodes], noise) if is_calibration_clean else None

    def sets(some: list[int]) -> PredictionSets:
        if is_robust:
            return conformal_sets(seen, labels, some, alpha=0.25, clean=clean, features=radius)
        plain = conformal_sets(votes_of(votes[nodes], noise), labels, some, alpha=0.25)
        return replace(plain, members=seen.counts.numpy() / MANY >= plain.threshold)

    return float(np.mean([sets(some).coverage(labels, rest) for some, rest in all_calibrations(9, 7)]))


@pytest.mark.parametrize(("p_add", "p_del"), [(0.05, 0.5), (0.4, 0.1)])
@pytest.mark.parametrize("radius", [(1, 1), (0, 2), (2, 0)])
def test_the_true_class_stays_covered_under_the_worst_attack(
    radius: tuple[int, int], p_add: float, p_del: float
) -> None:
    noise = Noise(p_add=p_add, p_del=p_del)
    for is_calibration_clean in (True, False):
        assert attacked_sets(radius, noise, is_calibration_clean, True) >= 0.75


def test_plain_sets_do_not_withstand_the_attack() -> None:
    assert attacked_sets((1, 1), Noise(p_add=0.05, p_del=0.5), True, False) < 0.75


def test_votes_that_do_not_count_are_part_of_no_score_and_of_every_denominator() -> None:
    votes, labels = random_votes(40, 4, 100, 0)
    counts, calibration = votes.counts.numpy() // 2, np.arange(0, 40, 2)
    filtered = replace(votes, counts=torch.from_numpy(counts), min_confidence=0.5)
    sets = conformal_sets(filtered, labels, calibration, alpha=0.2)
    scores = sorted(counts[i, labels[i]] / 100 for i in calibration)
    assert sets.threshold == scores[int(0.2 * 21) - 1]
    assert np.array_equal(sets.members, counts / 100 >= sets.threshold)
    robust = conformal_sets(filtered, labels, calibration, alpha=0.2, clean=filtered, features=(1, 0))
    assert bool((robust.members >= sets.members).all())


def test_too_few_calibration_nodes_give_sets_of_all_classes() -> None:
    votes, labels = random_votes(10, 3, 50, 0)
    assert conformal_sets(votes, labels, [0, 1, 2], alpha=0.1).members.all()


def test_coverage_counts_the_nodes_asked_for() -> None:
    sets = PredictionSets(np.array([[True, False], [True, True], [False, True]]), 0.5, 0.1, {})
    assert sets.coverage([0, 1, 0]) == pytest.approx(2 / 3)
    assert sets.coverage([0, 1, 0], [2]) == 0
    assert sets.sizes.tolist() == [1, 2, 1]
    assert sets.coverage([0, 1, -1], [0, 1]) == sets.coverage([0, 1, -1], np.array([True, True, False])) == 1
    for labels in ([0, 1, -1], [0, 1, 2]):
        with pytest.raises(ValueError, match=r"classes, 0 to 1, got .* leave out nodes without a label"):
            sets.coverage(labels)


def test_without_a_radius_other_votes_of_the_clean_graph_are_refused() -> None:
    votes, labels = random_votes(10, 3, 50, 0)
    other, _ = random_votes(10, 3, 5000, 0)
    plain: list[dict[str, Any]] = [{}, {"features": (0, 0)}]
    for radii in plain:
        with pytest.raises(ValueError, match=r"without a radius .* leave clean out"):
            conformal_sets(votes, labels, [0, 1], clean=other, **radii)
        same = conformal_sets(votes, labels, np.arange(9), alpha=0.2, clean=replace(votes), **radii)
        assert np.array_equal(same.members, conformal_sets(votes, labels, np.arange(9), alpha=0.2).members)
    assert conformal_sets(votes, labels, [0, 1], clean=other, features=(0, 1)).members.shape == (10, 3)


def test_clean_votes_of_another_model_are_refused() -> None:
    votes, labels = random_votes(10, 3, 50, 0)
    of_first = replace(votes, provenance=(("graph", "a"), ("victim", "GCN"), ("weights", "1")))
    attacked = replace(votes, provenance=(("graph", "b"), ("victim", "GCN"), ("weights", "1")))
    with_and_without: list[dict[str, Any]] = [{}, {"features": (0, 1)}]
    for name, value in (("victim", "GAT"), ("weights", "2")):
        other = replace(votes, provenance=tuple({**dict(of_first.provenance), name: value}.items()))
        for radii in with_and_without:
            with pytest.raises(ValueError, match="the same model as votes"):
                conformal_sets(attacked, labels, [0, 1], clean=other, **radii)
    assert conformal_sets(attacked, labels, [0, 1], clean=of_first, features=(0, 1)).members.shape == (10, 3)


def test_wrong_arguments_are_named() -> None:
    votes, labels = random_votes(10, 3, 50, 0)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"alpha": 1.0}, "alpha, the probability that a set misses"),
        ({"calibration": []}, "calibration must hold one or more of the nodes"),
        ({"calibration": [0, 0]}, "calibration must be distinct, but 1 of 2"),
        ({"calibration": [10]}, "calibration must lie in 0 to 9"),
        ({"labels": labels[:5]}, "one for each of the 10 nodes"),
        ({"labels": labels + 3}, "classes, 0 to 2"),
        ({"edges": (0, 1)}, "these votes are about features, not about edges"),
        ({"features": (0, -1)}, "a radius is"),
        ({"clean": votes_of(votes.counts.numpy(), Noise(p_add=0.0, p_del=0.1))}, "the same noise"),
        ({"clean": replace(votes, min_confidence=0.5), "features": (1, 0)}, "the same min_confidence"),
    ]
    for named, message in wrong:
        with pytest.raises(ValueError, match=message):
            conformal_sets(votes, **{"labels": labels, "calibration": [0, 1], **named})


def test_labels_of_another_shape_are_refused_instead_of_broadcast() -> None:
    votes, labels = random_votes(10, 3, 50, 0)
    sets = conformal_sets(votes, labels, [0, 1, 2], alpha=0.3)
    assert sets.coverage(torch.as_tensor(labels)) == sets.coverage(list(labels)) == sets.coverage(labels)
    for odd in (labels[:, None], labels[:1], labels.astype(float)):
        with pytest.raises(ValueError, match=r"one for each of the 10 nodes, \[10\]; got \w+ of shape"):
            sets.coverage(odd)
