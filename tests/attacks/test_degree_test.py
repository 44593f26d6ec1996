"""The test on degrees against a recomputation from lists of degrees."""

import math
from itertools import combinations

import torch
from torch import Tensor

from wtawp.attacks.degree_test import LikelyDegrees
from wtawp.base import rng

SIZE = 30


def likelihood(degrees: list[int]) -> float:
    tail = [d for d in degrees if d >= 2]
    n, s = len(tail), sum(math.log(d) for d in tail)
    alpha = 1 + n / sum(math.log(d / 1.5) for d in tail)
    return n * math.log(alpha) + n * alpha * math.log(2) + (alpha + 1) * s


def ratio(original: Tensor, changed: Tensor) -> float:
    """The likelihood ratio of two dense adjacency matrices."""
    one, other = ([int(d) for d in a.sum(0)] for a in (original, changed))
    return -2 * likelihood(one + other) + 2 * (likelihood(one) + likelihood(other))


def flipped(adjacency: Tensor, i: int, j: int) -> Tensor:
    changed = adjacency.clone()
    changed[i, j] = changed[j, i] = 1 - adjacency[i, j]
    return changed


def test_allowed_flips_are_those_of_a_naive_recomputation() -> None:
    cutoff = 0.02
    upper = (torch.rand(SIZE, SIZE, generator=rng("degrees", 0)) < 0.12).triu(1)
    original = (upper | upper.T).double()
    now = flipped(flipped(original, 0, 7), *upper.nonzero()[3].tolist())
    allowed = LikelyDegrees(original.sum(0).long(), now.sum(0).long(), cutoff)
    added, answers = allowed.added(0, SIZE), set()
    for i, j in combinations(range(SIZE), 2):
        expected = ratio(original, flipped(now, i, j)) < cutoff
        removed = bool(allowed.removed(torch.tensor([i]), torch.tensor([j])))
        assert (removed if now[i, j] else bool(added[i, j])) == expected
        answers.add((bool(now[i, j]), expected))
    assert len(answers) == 4  # both answers, for additions and removals
    assert torch.equal(allowed.added(4, 9), added[4:9, 4:])


def test_degrees_that_are_all_one_have_no_likelihood_and_no_nan() -> None:
    ones = torch.ones(4, dtype=torch.int64)
    assert bool(LikelyDegrees(ones, ones, 0.1).removed(torch.tensor([0]), torch.tensor([1])))


def test_the_answer_for_pairs_is_that_of_the_tables() -> None:
    degree = torch.tensor([1, 2, 3, 5, 8, 2])
    likely = LikelyDegrees(degree, degree, 0.1)
    i, j = torch.triu_indices(6, 6, 1)
    is_edge = torch.arange(len(i)) % 2 == 0
    expected = torch.where(is_edge, likely.removed(i, j), likely.added(0, 6)[i, j])
    assert torch.equal(likely.allowed(i, j, is_edge), expected)
    assert expected.any()
    assert not expected.all()
