import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.stats import binom

from wtawp.certificates.certificate import Curve, NoiseAndRadius, certificate_of, clopper_pearson, regions
from wtawp.certificates.noise import Noise

NOISES = [(0.01, 0.6), (0.001, 0.4), (0.3, 0.3), (0.0, 0.5), (0.4, 0.0), (0.0, 0.0), (0.49, 0.5), (1e-9, 0.999)]
noises = pytest.mark.parametrize(("p_add", "p_del"), NOISES)
probabilities = st.floats(0.0, 0.99)
Outcome = tuple[Fraction, Fraction]  # under x, under x'


def noise_of(p_add: float, p_del: float) -> Noise:
    return Noise(p_add=p_add, p_del=p_del)


def chance(z: tuple[int, ...], x: tuple[int, ...], p_add: Fraction, p_del: Fraction) -> Fraction:
    """Of the noisy copy z of x, coordinate by coordinate."""
    each = {(0, 0): 1 - p_add, (0, 1): p_add, (1, 0): p_del, (1, 1): 1 - p_del}
    return math.prod((each[a, b] for a, b in zip(x, z, strict=True)), start=Fraction(1))


def outcomes(x: tuple[int, ...], moved: tuple[int, ...], noise: Noise) -> list[Outcome]:
    """The probability of every noisy copy, under both inputs, in exact numbers."""
    ps = Fraction(noise.p_add), Fraction(noise.p_del)
    return [(chance(z, x, *ps), chance(z, moved, *ps)) for z in product((0, 1), repeat=len(x))]


def least(found: list[Outcome], p: Fraction) -> Fraction:
    """The least P(h | x') over all h with P(h | x) = p: outcomes that speak most for x first, the last one in part."""
    total = Fraction(0)
    for a, b in sorted((o for o in found if o[0] > 0), key=lambda o: o[1] / o[0]):
        taken = min(p, a)
        total, p = total + taken / a * b, p - taken
    return total


def inputs(r_add: int, r_del: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """An input and one at that distance; one 0 and one 1 stay as they are."""
    return (0,) * r_add + (1,) * r_del + (0, 1), (1,) * r_add + (0,) * r_del + (0, 1)


def radii(largest: int) -> Iterator[tuple[int, int]]:
    return ((a, d) for a in range(largest + 1) for d in range(largest + 1 - a))


@noises
def test_shares_equal_the_exact_worst_case_over_all_noisy_copies(p_add: float, p_del: float) -> None:
    noise = noise_of(p_add, p_del)
    for r_add, r_del in radii(4):
        found, curve = outcomes(*inputs(r_add, r_del), noise), Curve.of([(noise, r_add, r_del)])
        for p in (0.0, 0.1, 0.5, 0.77, 0.9, 0.999, 1 - 1e-9):
            exact, ours = least(found, Fraction(p)), Fraction(float(curve.lowest_share(p)))
            assert ours <= exact, "never more than the truth"
            assert exact - ours < 1e-11 or p > 0.9999  # a curve may be too steep there for float64


@settings(max_examples=60, deadline=None)
@given(probabilities, st.floats(0.0, 1.0), st.integers(0, 3), st.integers(0, 3), st.floats(0.0, 1.0))
def test_shares_equal_the_exact_worst_case_for_any_noise(
    total: float, part: float, r_add: int, r_del: int, p: float
) -> None:
    noise = noise_of(total * part, total * (1 - part))
    found = outcomes(*inputs(r_add, r_del), noise)
    ours = Fraction(float(Curve.of([(noise, r_add, r_del)]).lowest_share(p)))
    assert ours <= least(found, Fraction(p)) + Fraction(1, 10**300), "but for the smallest numbers there are"
    # Within float64, of p as well as of the result: the curve may be steep.
    assert ours >= least(found, Fraction(p) * (1 - Fraction(1, 10**13))) - Fraction(1, 10**12)


@noises
def test_the_smallest_majority_equals_the_exact_one(p_add: float, p_del: float) -> None:
    noise = noise_of(p_add, p_del)
    for r_add, r_del in radii(4):
        found, p = outcomes(*inputs(r_add, r_del), noise), Curve.of([(noise, r_add, r_del)]).smallest_majority
        if p >= 1:
            assert least(found, Fraction(1) - Fraction(1, 10**12)) <= Fraction(1, 2)
            continue
        assert least(found, Fraction(p)) >= Fraction(1, 2), "what is certified is true"
        assert least(found, Fraction(p) - Fraction(1, 10**12)) <= Fraction(1, 2), "and little that is true is not"


def greatest(found: list[Outcome], p: Fraction) -> Fraction:
    """The greatest P(h | x') over all h with P(h | x) = p: what is impossible under x costs nothing."""
    total = sum((b for a, b in found if a == 0), start=Fraction(0))
    for a, b in sorted((o for o in found if o[0] > 0), key=lambda o: o[0] / o[1] if o[1] else math.inf):
        taken = min(p, a)
        total, p = total + taken / a * b, p - taken
    return total


@noises
def test_a_multiclass_certificate_holds_just_where_no_two_classifiers_can_meet(p_add: float, p_del: float) -> None:
    noise, votes = noise_of(p_add, p_del), np.array([[950, 30, 20], [800, 150, 50], [600, 390, 10], [1000, 0, 0]])
    for kind in ("binary", "multiclass"):
        certificate = certificate_of(votes, {"edges": noise}, kind=kind, alpha=0.1)
        for r_add, r_del in radii(4):
            found, ours = outcomes(*inputs(r_add, r_del), noise), certificate.certified(edges=(r_add, r_del))
            for node, (p, q) in enumerate(zip(certificate.p_lower, certificate.p_upper, strict=True)):
                other = greatest(found, Fraction(q)) if kind == "multiclass" else Fraction(1, 2)
                gap = least(found, Fraction(p)) - other
                assert ours[node] == (gap > 0) or 0 < gap < 1e-11


def test_it_is_the_worst_case_of_all_perturbations_and_all_randomised_classifiers() -> None:
    """A linear program over classifiers, for every x' within the radius of every x of three coordinates."""
    noise, p, r_add, r_del = noise_of(0.2, 0.35), 0.93, 1, 1
    lowest = 1.0
    for x, moved in product(product((0, 1), repeat=3), repeat=2):
        added = sum(a < b for a, b in zip(x, moved, strict=True))
        if added > r_add or sum(a > b for a, b in zip(x, moved, strict=True)) > r_del:
            continue
        own, other = np.array(outcomes(x, moved, noise), dtype=float).T
        solved = linprog(other, A_eq=own[None], b_eq=[p], bounds=(0, 1))
        lowest = min(lowest, solved.fun)
    assert float(Curve.of([(noise, r_add, r_del)]).lowest_share(p)) == pytest.approx(lowest, abs=1e-9)


JOINT = [((0.01, 0.6), (0.001, 0.4)), ((0.2, 0.2), (0.2, 0.2)), ((0.0, 0.5), (0.1, 0.3)), ((0.3, 0.0), (0.0, 0.4)),
         ((0.0, 0.0), (0.3, 0.4))]  # fmt: skip


@pytest.mark.parametrize("both", JOINT)
def test_joint_shares_equal_the_exact_worst_case_of_the_product_noise(
    both: tuple[tuple[float, float], tuple[float, float]],
) -> None:
    first, second = (noise_of(*ps) for ps in both)
    for one, other in (((1, 1), (1, 1)), ((2, 0), (0, 1)), ((0, 2), (1, 0)), ((0, 0), (1, 1)), ((0, 1), (0, 0))):
        pairs = product(outcomes(*inputs(*one), first), outcomes(*inputs(*other), second))
        found = [(a[0] * b[0], a[1] * b[1]) for a, b in pairs]
        curve = Curve.of([(first, *one), (second, *other)])
        for p in (0.3, 0.8, 0.97, 0.9999):
            exact, ours = least(found, Fraction(p)), Fraction(float(curve.lowest_share(p)))
            assert ours <= exact
            assert exact - ours < 1e-10


def test_a_part_that_is_not_moved_changes_nothing() -> None:
    moved: NoiseAndRadius = (noise_of(0.01, 0.6), 2, 3)
    alone, beside = Curve.of([moved]), Curve.of([moved, (noise_of(0.001, 0.4), 0, 0)])
    p = np.linspace(0, 0.999, 50)
    assert alone.lowest_share(p) == pytest.approx(beside.lowest_share(p), abs=1e-10)


@noises
def test_regions_are_distributions_and_swap_with_the_roles(p_add: float, p_del: float) -> None:
    for r_add, r_del in radii(12):
        own, other = regions(noise_of(p_add, p_del), r_add, r_del)
        assert own.sum() == pytest.approx(1, abs=1e-14)
        assert other.sum() == pytest.approx(1, abs=1e-14)
        swapped = regions(noise_of(p_del, p_add), r_del, r_add)
        assert own == pytest.approx(swapped[0], abs=1e-15)
        assert other == pytest.approx(swapped[1], abs=1e-15)


@settings(max_examples=60, deadline=None)
@given(probabilities, st.floats(0.0, 1.0), st.integers(0, 20), st.integers(0, 20), st.floats(0.0, 1.0), st.floats(0, 1))
def test_a_larger_share_certifies_as_much_and_a_larger_radius_never_more(
    total: float, part: float, r_add: int, r_del: int, p: float, q: float
) -> None:
    noise = noise_of(total * part, total * (1 - part))
    curve = Curve.of([(noise, r_add, r_del)])
    assert float(curve.lowest_share(min(p, q))) <= float(curve.lowest_share(max(p, q)))
    for more in ((r_add + 1, r_del), (r_add, r_del + 1)):
        larger = Curve.of([(noise, *more)])
        # Where the two are equal rounding may tell them apart, in p and in the share.
        assert float(larger.lowest_share(p * (1 - 1e-13))) <= float(curve.lowest_share(p)) + 1e-13
        assert larger.smallest_majority >= curve.smallest_majority - 1e-13


def test_closed_forms_without_additions_and_without_deletions() -> None:
    p, q = 0.9, 0.6
    only_deleted, only_added = noise_of(0.0, q), noise_of(q, 0.0)
    for r in range(1, 6):
        # Under x' the r additions are all gone with probability q^r, and only then does it look like x.
        assert float(Curve.of([(only_deleted, r, 0)]).lowest_share(p)) == pytest.approx(p * q**r, rel=1e-12)
        # Of r deletions x shows one with probability 1 - q^r, which x' never does.
        expected = max(0.0, (p - (1 - q**r)) / q**r)
        assert float(Curve.of([(only_deleted, 0, r)]).lowest_share(p)) == pytest.approx(expected, abs=1e-12)
        assert float(Curve.of([(only_added, 0, r)]).lowest_share(p)) == pytest.approx(p * q**r, rel=1e-12)
    silent = noise_of(0.0, 0.0)
    assert float(Curve.of([(silent, 1, 0)]).lowest_share(p)) == 0
    assert float(Curve.of([(silent, 0, 0)]).lowest_share(p)) == pytest.approx(p, rel=1e-12)


@pytest.mark.parametrize("alpha", [0.3, 0.05, 0.01, 1e-6])
@pytest.mark.parametrize("samples", [1, 2, 7, 50, 1000])
def test_bounds_cover_as_often_as_they_promise_by_the_exact_sum(samples: int, alpha: float) -> None:
    hits = np.arange(samples + 1)
    lower, upper = clopper_pearson(hits, samples, alpha)
    for p in np.unique([*np.linspace(0, 1, 41), *lower, *upper]):  # the bounds themselves are the hardest
        chances = binom.pmf(hits, samples, p)
        assert chances[lower <= p].sum() >= (1 - alpha) * (1 - 1e-11)
        assert chances[upper >= p].sum() >= (1 - alpha) * (1 - 1e-11)


def test_bounds_close_in_with_more_samples_at_the_same_share() -> None:
    bounds = [clopper_pearson(3 * n // 4, n, 0.01) for n in (4, 40, 400, 4000, 400_000)]
    lower, upper = (np.array([float(b[side]) for b in bounds]) for side in (0, 1))
    assert bool((np.diff(lower) > 0).all() and (np.diff(upper) < 0).all())
    assert float(lower[-1]) == pytest.approx(0.75, abs=0.002)


FEATURES = {"features": noise_of(0.01, 0.6)}
VOTES = np.array([[10_000, 0, 0], [9000, 600, 400], [300, 9400, 300], [4000, 3000, 3000], [5000, 5000, 0]])


@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_the_grid_holds_what_single_radii_say(kind: str) -> None:
    found = certificate_of(VOTES, FEATURES, kind=kind)
    grid, stairs = found.certified_ratio(), found.deletions()
    for r_add in range(grid.shape[0] + 1):
        for r_del in range(grid.shape[1] + 1):
            single = found.certified(features=(r_add, r_del))
            inside = r_add < grid.shape[0] and r_del < grid.shape[1]
            assert single.mean() == (grid[r_add, r_del] if inside else 0)
            if inside:
                assert np.array_equal(single, stairs[:, r_add] >= r_del)
    assert found.radii[:, 1].tolist() == stairs[:, 0].tolist()
    assert found.radii[0].min() > 2
    assert bool((np.diff(grid, axis=0) <= 0).all() and (np.diff(grid, axis=1) <= 0).all())


def test_who_abstains_and_which_kind_certifies_more() -> None:
    binary, several = (certificate_of(VOTES, FEATURES, kind=kind) for kind in ("binary", "multiclass"))
    assert binary.abstained.tolist() == [False, False, False, True, True]
    assert several.abstained.tolist() == [False, False, False, False, True]  # 40 % are most, but not half
    assert several.radii[3].tolist() == [0, 0]
    assert binary.radii[4].tolist() == [-1, -1]
    assert binary.prediction.tolist() == [0, 0, 1, 0, 0]


def test_certified_accuracy_counts_right_nodes_among_those_asked_for() -> None:
    found = certificate_of(VOTES, FEATURES)
    labels = [0, 1, 1, 0, 0]
    assert found.certified_ratio(labels)[0, 0] == pytest.approx(3 / 5)
    assert found.certified_ratio(labels, [0, 1])[0, 0] == pytest.approx(1 / 2)
    assert found.certified_ratio(nodes=np.array([True, False, False, False, True]))[0, 0] == pytest.approx(1 / 2)
    with pytest.raises(ValueError, match="all of them 0 or 1: a mask must be of type bool"):
        found.certified_ratio(nodes=np.array([1, 0, 0, 0, 1]))
    nobody = certificate_of(VOTES[3:], FEATURES, kind="binary").certified_ratio()
    assert nobody.tolist() == [[0.0]]


def test_bounds_are_divided_among_classes_and_nodes() -> None:
    level = 0.02

    def lower(**options: object) -> float:
        return float(certificate_of(VOTES, FEATURES, alpha=level, **options).p_lower[1])  # type: ignore[arg-type]

    for options, share in (
        ({"kind": "binary"}, 3),
        ({"kind": "binary", "chosen": [0, 0, 1, 0, 0]}, 1),
        ({"kind": "multiclass"}, 6),
        ({"kind": "multiclass", "chosen": [0, 0, 1, 0, 0]}, 3),
        ({"kind": "binary", "over_nodes": True}, 15),
    ):
        assert lower(**options) == float(clopper_pearson(9000, 10_000, level / share)[0])
    assert certificate_of(VOTES, FEATURES, chosen=[1, 0, 1, 0, 0]).abstained[0]


def test_a_joint_certificate_is_asked_about_parts() -> None:
    both = {**FEATURES, "edges": noise_of(0.001, 0.4)}
    found = certificate_of(VOTES, both)
    assert found.certified(features=(1, 2), edges=(0, 1)).sum() <= found.certified(features=(1, 2)).sum()
    assert found.certified(edges=(0, 2)).sum() > 0
    assert np.array_equal(found.deletions("features"), certificate_of(VOTES, FEATURES).deletions())
    with pytest.raises(ValueError, match="say on which part"):
        found.deletions()
    with pytest.raises(ValueError, match=r"use deletions\(on=...\), with 'features' or 'edges'"):
        _ = found.radii
    with pytest.raises(ValueError, match="not about edges"):
        certificate_of(VOTES, FEATURES).certified(edges=(1, 0))
    with pytest.raises(ValueError, match="two whole numbers >= 0"):
        found.certified(edges=(1, -1))


def test_bad_votes_and_levels_are_refused() -> None:
    for alpha in (0.0, 1.0, -0.1, math.nan):
        with pytest.raises(ValueError, match=r"\(0, 1\)"):
            certificate_of(VOTES, FEATURES, alpha=alpha)
    with pytest.raises(ValueError, match="cast votes first"):
        certificate_of(np.zeros((3, 2), dtype=int), FEATURES)
    with pytest.raises(ValueError, match="same number of votes"):
        certificate_of(np.array([[1, 2], [1, 1]]), FEATURES)
    with pytest.raises(ValueError, match="whole numbers"):
        certificate_of(VOTES / 2, FEATURES)
    for samples in (None, 9):
        with pytest.raises(ValueError, match=r"counts of votes must be >= 0, got -1; pass what vote\(\) returned"):
            certificate_of(np.array([[3, -1], [1, 1]]), FEATURES, samples=samples)
    with pytest.raises(ValueError, match="'binary' or 'multiclass'"):
        certificate_of(VOTES, FEATURES, kind="exact")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="chosen must be a class"):
        certificate_of(VOTES, FEATURES, chosen=[0, 1, 2, 3, 0])
    with pytest.raises(ValueError, match="hits must lie"):
        clopper_pearson(3, 2, 0.1)


def test_the_number_of_votes_may_be_one_of_numpy() -> None:
    counts = np.array([[3, 1], [0, 0]])
    one, other = (certificate_of(counts, FEATURES, samples=samples) for samples in (np.int64(9), 9))  # type: ignore[arg-type]
    assert np.array_equal(one.p_lower, other.p_lower)
    assert type(one.samples) is int
    for samples in (3, 0, True, 9.0, "9"):
        with pytest.raises(ValueError, match=r"at least the counted votes of a node, up to 4, got .*; pass the number"):
            certificate_of(counts, FEATURES, samples=samples)  # type: ignore[arg-type]


def test_a_node_without_a_counted_vote_has_no_class_and_is_never_right() -> None:
    found = certificate_of(np.array([[0, 0, 0], [90, 5, 0]]), FEATURES, samples=100)
    assert found.prediction.tolist() == [-1, 0]
    assert found.certified_ratio([0, 0])[0, 0] == 0.5
    chosen = certificate_of(np.array([[0, 0, 0], [90, 5, 0]]), FEATURES, samples=100, chosen=[2, 0])
    assert chosen.prediction.tolist() == [2, 0]


def test_labels_of_another_shape_are_refused_instead_of_broadcast() -> None:
    found = certificate_of(np.array([[990, 10], [600, 400], [20, 980]]), {"edges": Noise(p_add=0.001, p_del=0.4)})
    for labels in (np.array([[0], [0], [1]]), [0], 0, [0.0, 0.0, 1.0]):
        with pytest.raises(ValueError, match=r"one for each of the 3 nodes, \[3\]; got \w+ of shape"):
            found.certified_ratio(labels)


def test_radii_that_are_not_whole_numbers_are_refused() -> None:
    found = certificate_of(np.array([[990, 10], [600, 400]]), {"features": Noise(p_add=0.01, p_del=0.6)})
    for radius in ((1.5, 0), 3, (1,), (0, -1), (True, 0), "12", (None, 0), [[1, 0], [0, 1]]):
        with pytest.raises(ValueError, match=r"two whole numbers >= 0; got features="):
            found.certified(features=radius)
    for same in ([0, 2], np.array([0, 2]), (np.int64(0), 2)):
        assert np.array_equal(found.certified(features=same), found.certified(features=(0, 2)))
    for most in (-1, 1.5, None, True):
        for ask in (found.deletions, found.certified_ratio):
            with pytest.raises(ValueError, match="most, the largest radius that is tried, must be a whole number >= 0"):
                ask(most=most)
    assert found.deletions(most=np.int64(0)).shape == (2, 1)
