import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from wtawp.attacks.dice_attack import dice
from wtawp.base import AttackError, rng
from wtawp.graphs import citation, load


def graph_of(pairs: Tensor, size: int) -> Data:
    return Data(edge_index=torch.cat([pairs, pairs.flip(0)], dim=1), num_nodes=size)


@given(
    size=st.integers(2, 12), seed=st.integers(0, 1000), density=st.floats(0.05, 1), share=st.floats(0.01, 1),
    classes=st.integers(1, 4),
)  # fmt: skip
def test_it_deletes_inside_and_connects_outside_and_stops_only_when_nothing_is_left(
    size: int, seed: int, density: float, share: float, classes: int
) -> None:
    g = rng("dice test", seed)
    pairs = torch.triu_indices(size, size, 1)
    edges = pairs[:, torch.rand(pairs.shape[1], generator=g) < density]
    labels = torch.randint(-1, classes, (size,), generator=g)
    if edges.shape[1] == 0:
        return
    present = {tuple(p) for p in edges.T.tolist()}
    known = [p for p in map(tuple, pairs.T.tolist()) if labels[p[0]] >= 0 and labels[p[1]] >= 0]
    allowed = {p for p in known if (p in present) == bool(labels[p[0]] == labels[p[1]])}
    count = max(1, int(share * edges.shape[1]))
    if not allowed:
        with pytest.raises(AttackError, match="nothing to flip"):
            dice(graph_of(edges, size), budget=count, labels=labels, seed=seed)
        return
    flips = dice(graph_of(edges, size), budget=count, labels=labels, seed=seed)
    assert {tuple(p) for p in flips.pairs.T.tolist()} <= allowed
    assert len(flips) == min(count, len(allowed))


def test_half_of_the_flips_are_removals() -> None:
    data = citation(seed=0, num_nodes=1000)
    flips = dice(data, budget=400, labels=data.y, seed=0)
    assert len(flips) == 400
    assert 160 < flips.num_removed(data) < 240  # four standard deviations


def test_all_additions_are_equally_likely_on_both_ways_of_drawing() -> None:
    size, labels = 12, torch.tensor([0] * 6 + [1] * 4 + [2, -1])  # 34 pairs between classes
    edges = torch.tensor([[0, 1, 0, 0], [6, 7, 10, 11]])  # none inside a class: all flips are additions
    for count in (1, 4):  # by rejection, by shuffling
        seen = torch.zeros(size, size)
        for seed in range(600):
            i, j = dice(graph_of(edges, size), budget=count, labels=labels, seed=seed).pairs
            seen[i, j] += 1
        allowed = (labels[:, None] != labels) & (labels >= 0) & (labels >= 0)[:, None]
        allowed[edges[0], edges[1]] = False
        drawn, expected = seen[allowed.triu(1)], 600 * count / 31
        assert len(drawn) == 31
        assert ((drawn - expected) ** 2 / expected).sum() < 65  # chi-squared with 30 degrees: p < 0.0003


def test_bad_labels_are_refused() -> None:
    data = graph_of(torch.tensor([[0], [1]]), 3)
    for bad in (torch.zeros(2, dtype=torch.int64), torch.zeros(3), torch.zeros(3, 1, dtype=torch.int64)):
        with pytest.raises(ValueError, match="one for each node"):
            dice(data, budget=1, labels=bad, seed=0)


@pytest.mark.usefixtures("offline")
def test_cora_takes_less_than_half_a_second() -> None:
    data = load("cora")
    start = time.perf_counter()
    flips = dice(data, budget=0.05, labels=data.y, seed=0)
    assert time.perf_counter() - start < 0.5
    assert len(flips) == 253
