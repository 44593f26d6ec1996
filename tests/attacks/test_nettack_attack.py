"""Nettack against a slow one that computes A_hat^2 X W anew for each candidate."""

import math
from itertools import product

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from wtawp.attacks import AttackRequest, nettack, nettack_many
from wtawp.attacks.nettack_attack import run_nettack
from wtawp.base import AttackError, DataError, rng
from wtawp.graphs import GraphFlips, citation
from wtawp.models import GCN


def small(seed: int, size: int = 24, width: int = 12) -> Data:
    g = rng("nettack", seed)
    upper = (torch.rand(size, size, generator=g) < 0.15).triu(1)
    upper[torch.arange(size - 1), torch.arange(1, size)] = True  # no node alone
    x = (torch.rand(size, width, generator=g) < 0.3).double()
    return Data(x=x, edge_index=(upper | upper.T).nonzero().T, y=torch.randint(0, 3, (size,), generator=g))


def slow_margin(adjacency: Tensor, x: Tensor, weights: Tensor, target: int, label: int) -> float:
    full = adjacency + torch.eye(len(adjacency), dtype=torch.float64)
    scale = full.sum(1).pow(-0.5)
    operator = scale[:, None] * full * scale
    logits = (operator @ operator @ x @ weights)[target].tolist()
    return max(z for c, z in enumerate(logits) if c != label) - logits[label]


def likelihood(degrees: list[float]) -> float:
    tail = [d for d in degrees if d >= 2]
    n, s = len(tail), sum(map(math.log, tail))
    alpha = 1 + n / (s - n * math.log(1.5))
    return n * math.log(alpha) + n * alpha * math.log(2) + (alpha + 1) * s


def is_likely(before: Tensor, after: Tensor, cutoff: float) -> bool:
    one, other = before.sum(1).tolist(), after.sum(1).tolist()
    return 2 * (likelihood(one) + likelihood(other)) - 2 * likelihood(one + other) < cutoff


def may_add(x: Tensor, node: int, feature: int) -> bool:
    width = x.shape[1]
    joined = [
        [i != j and any(row[i] > 0 and row[j] > 0 for row in x.tolist()) for j in range(width)] for i in range(width)
    ]
    present = [j for j in range(width) if x[node, j] > 0]
    chance = [1 / sum(joined[j]) if any(joined[j]) else 0.0 for j in present]
    return sum(c for c, j in zip(chance, present, strict=True) if joined[j][feature]) > 0.5 * sum(chance)


def slow_nettack(
    data: Data, weights: Tensor, target: int, attackers: list[int], count: int, *, edges: bool, features: bool,
    cutoff: float | None,
) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:  # fmt: skip
    size, label = int(data.num_nodes), int(data.y[target])
    adjacency = torch.zeros(size, size, dtype=torch.float64)
    adjacency[data.edge_index[0], data.edge_index[1]] = 1
    x, original, original_x = data.x.clone(), adjacency.clone(), data.x.clone()
    pairs, entries = set(), set()
    for _ in range(count):
        best, step = slow_margin(adjacency, x, weights, target, label) + 1e-12, None
        for a, b in product(attackers, range(size)) if edges else ():
            if a == b or (min(a, b), max(a, b)) in pairs or (target in (a, b) and target not in attackers):
                continue
            changed = adjacency.clone()
            changed[a, b] = changed[b, a] = 1 - changed[a, b]
            if bool((changed.sum(1)[[a, b]] == 0).any()) or (cutoff and not is_likely(original, changed, cutoff)):
                continue
            value = slow_margin(changed, x, weights, target, label)
            if value > best + 1e-12:
                best, step = value, (changed, x, {(min(a, b), max(a, b))}, set())
        for a, i in product(attackers, range(x.shape[1])) if features else ():
            if (a, i) in entries or (original_x[a, i] == 0 and not may_add(original_x, a, i)):
                continue
            changed = x.clone()
            changed[a, i] = 1 - changed[a, i]
            value = slow_margin(adjacency, changed, weights, target, label)
            if value > best + 1e-12:
                best, step = value, (adjacency, changed, set(), {(a, i)})
        if step is None:
            break
        adjacency, x = step[0], step[1]
        pairs, entries = pairs | step[2], entries | step[3]
    return pairs, entries


def sets(flips: GraphFlips) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    return {(i, j) for i, j in flips.edges.pairs.T.tolist()}, {(i, j) for i, j in flips.features.entries.T.tolist()}


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "influence"])
@pytest.mark.parametrize(("edges", "features"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("seed", [0, 1])
def test_flips_are_those_of_a_search_that_computes_every_candidate_anew(
    direct: bool, edges: bool, features: bool, seed: int
) -> None:
    data = small(seed)
    weights = torch.randn(12, 3, dtype=torch.float64, generator=rng("weights", seed))
    neighbours = data.edge_index[1, data.edge_index[0] == 5].tolist()
    attackers = [5] if direct else sorted(neighbours)
    flips = nettack(
        data, nodes=torch.tensor([5]), labels=data.y, seed=seed, budget=4, weights=weights, flip_edges=edges,
        flip_features=features, direct=direct, influencers=len(neighbours), likelihood_cutoff=0.01,
    )  # fmt: skip
    expected = slow_nettack(data, weights, 5, attackers, 4, edges=edges, features=features, cutoff=0.01)
    assert sets(flips) == expected
    assert 0 < len(flips) <= 4


def test_the_default_budget_is_the_degree_plus_two() -> None:
    data = small(2)
    flips = nettack_many(data, targets=range(24), labels=data.y, seed=0, train=torch.arange(24), likelihood_cutoff=None)
    degrees = torch.bincount(data.edge_index[0], minlength=24).tolist()
    assert all(0 < len(each) <= degree + 2 for each, degree in zip(flips, degrees, strict=True))
    assert any(len(each) == degree + 2 for each, degree in zip(flips, degrees, strict=True))
    assert [dict(each.provenance)["node"] for each in flips] == [str(i) for i in range(24)]
    assert all(bool((each.edges.pairs == i).any(0).all()) for i, each in enumerate(flips))


def test_an_influence_attack_leaves_the_target_alone_and_draws_its_attackers_by_the_seed() -> None:
    data = small(3, size=40)
    how = {"labels": data.y, "train": torch.arange(40), "direct": False, "influencers": 2, "likelihood_cutoff": None}
    drawn = [nettack(data, nodes=[7], seed=seed, budget=5, **how) for seed in (0, 0, 1, 2, 3)]  # type: ignore[arg-type]
    assert sets(drawn[0]) == sets(drawn[1])
    assert len({str(sets(flips)) for flips in drawn}) > 1
    near = set(data.edge_index[1, data.edge_index[0] == 7].tolist())
    for flips in drawn:
        assert 7 not in flips.edges.pairs
        assert all({i, j} & near for i, j in flips.edges.pairs.T.tolist())


def test_the_surrogate_imitates_the_victim_unless_training_nodes_are_given() -> None:
    data = citation(seed=0, num_nodes=60, num_words=20)
    victim, train = GCN(20, 7, hidden=(8,), generator=rng("victim")), torch.arange(0, 60, 2)
    request = AttackRequest(
        data=data, victims=[victim] * 2, budget=None, nodes=[torch.tensor([3]), torch.tensor([4])], labels=[data.y] * 2,
        seeds=[0, 1], split_seeds=[0, 0], trains=[train] * 2,
    )  # fmt: skip
    trained = run_nettack(request)
    expected = nettack_many(data, targets=[3, 4], labels=data.y, seed=0, train=train)
    assert [sets(flips) for flips in trained] == [sets(flips) for flips in expected]
    imitated = nettack(data, victim, nodes=torch.tensor([3]), labels=data.y, seed=0)
    assert sets(imitated) == sets(run_nettack(request, train=None)[0])
    assert sets(imitated) != sets(trained[0])


def test_what_cannot_be_attacked_is_refused() -> None:
    data = small(0)
    how = {"labels": data.y, "seed": 0, "train": torch.arange(24)}
    one = torch.tensor([3])
    with pytest.raises(ValueError, match="one node at a time, got 2 nodes"):
        nettack(data, nodes=torch.tensor([1, 2]), **how)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="set flip_edges or flip_features"):
        nettack(data, nodes=one, flip_edges=False, **how)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="influencers must be >= 1"):
        nettack(data, nodes=one, influencers=0, **how)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="likelihood_cutoff must be positive"):
        nettack(data, nodes=one, likelihood_cutoff=0.0, **how)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"training nodes .* or a victim"):
        nettack(data, nodes=one, labels=data.y, seed=0)
    with pytest.raises(ValueError, match=r"weights must be of shape \[12, classes\]"):
        nettack(data, nodes=one, weights=torch.zeros(3, 3), **how)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="label of node 3 must be one of the surrogate's classes, got -1"):
        nettack(data, nodes=one, labels=torch.full((24,), -1), seed=0, weights=torch.zeros(12, 3).double())
    with pytest.raises(AttackError, match="no flip that could mislead node 3 is allowed"):
        nettack(data, nodes=one, likelihood_cutoff=1e-12, **how)  # type: ignore[arg-type]
    halves = data.clone()
    halves.x = data.x / 2
    assert len(nettack(halves, nodes=one, **how)) > 0  # type: ignore[arg-type]
    with pytest.raises(DataError, match="only binary features"):
        nettack(halves, nodes=one, flip_features=True, **how)  # type: ignore[arg-type]
    alone = Data(x=data.x, y=data.y, edge_index=data.edge_index[:, (data.edge_index != 3).all(0)])
    with pytest.raises(AttackError, match="node 3 has no neighbours"):
        nettack(alone, nodes=one, direct=False, **how)  # type: ignore[arg-type]
    assert len(nettack(alone, nodes=one, likelihood_cutoff=None, **how)) > 0  # type: ignore[arg-type]
