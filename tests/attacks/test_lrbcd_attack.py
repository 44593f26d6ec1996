"""LR-BCD: both budgets, exhaustive search on small graphs, and refusals."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.attacks import lrbcd
from wtawp.base import AttackError
from wtawp.graphs import EdgeFlips, citation, undirected_pairs
from wtawp.models import GCN

ALL = torch.arange(12)


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_no_node_has_more_than_its_share_of_the_degree_flipped(small_victim: Callable[..., GCN], share: float) -> None:
    data = citation(seed=1, num_nodes=60, num_words=4)
    pairs = undirected_pairs(data)
    for seed, block_size in ((0, 300), (1, 100_000)):
        flips = lrbcd(
            data, small_victim().float(), budget=0.4, nodes=torch.arange(60), labels=data.y % 3, seed=seed,
            local_budget=share, steps=4, block_size=block_size,
        )  # fmt: skip
        assert 0 < len(flips) <= int(0.4 * pairs.shape[1])
        for node in range(60):
            assert int((flips.pairs == node).sum()) <= share * int((pairs == node).sum()) + 1e-9


def test_one_flip_is_the_best_of_all_legal_ones(small: Callable[..., Data], small_victim: Callable[..., GCN]) -> None:
    data, victim = small(), small_victim().eval()
    data.y = victim(data.x, data.edge_index).argmax(1)
    degrees = torch.bincount(undirected_pairs(data).flatten(), minlength=12)

    def loss(pair: Tensor) -> float:
        changed = EdgeFlips.of(pair, 12).apply(data)
        return float(nn.functional.cross_entropy(victim(changed.x, changed.edge_index), data.y).detach())

    legal = [pair[:, None] for pair in torch.triu_indices(12, 12, 1).T if bool((degrees[pair] >= 3).all())]
    flips = lrbcd(
        data, victim, budget=1, nodes=ALL, labels=data.y, seed=0, local_budget=1 / 3, steps=30, loss="ce", samples=60
    )
    best = sorted(map(loss, legal), reverse=True)
    assert loss(flips.pairs) >= best[2] > loss(torch.zeros(2, 0, dtype=torch.int64))


def test_budgets_and_options_that_leave_nothing_are_refused(
    small: Callable[..., Data], small_victim: Callable[..., GCN]
) -> None:
    common = {"budget": 2, "nodes": ALL, "labels": small().y, "seed": 0}
    with pytest.raises(ValueError, match="leaves no legal flip"):
        lrbcd(small(), small_victim(), local_budget=0.01, **common)  # type: ignore[arg-type]
    for bad in ({"steps": 0}, {"samples": -1}, {"block_size": 0}, {"step_size": 0.0}, {"loss": "hinge"}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            lrbcd(small(), small_victim(), **common, **bad)  # type: ignore[arg-type]


def test_victims_without_weights_or_with_outputs_that_are_not_finite_are_refused(
    small: Callable[..., Data], blind: nn.Module, weightless: nn.Module, broken: nn.Module
) -> None:
    common = {"budget": 2, "nodes": ALL, "labels": small().y, "seed": 0, "steps": 2}
    for victim, match in ((blind, "gradient is zero"), (weightless, "takes no edge_weight"), (broken, "NaN or inf")):
        with pytest.raises(AttackError, match=match):
            lrbcd(small(), victim, **common)  # type: ignore[arg-type]
