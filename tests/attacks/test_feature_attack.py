"""PGD on features against an exhaustive search and against what it must refuse."""

from itertools import combinations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.attacks import feature_attack, pgd_features, project_onto_budget
from wtawp.base import AttackError, DataError, rng
from wtawp.graphs import FeatureFlips, citation
from wtawp.models import GCN, GCNJaccard

DATA = citation(seed=0, num_nodes=60, num_words=20)
VICTIM = GCN(20, 7, hidden=(8,), generator=rng("victim"))
NODES = torch.arange(10)


class Linear(nn.Module):
    """A model that adds up the features of a node and of its neighbours, each times a weight."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:  # noqa: ARG002
        return (x.index_add(0, edge_index[1], x[edge_index[0]])) @ self.weight


def test_on_a_small_graph_it_is_among_the_best_of_all_sets_of_flips() -> None:
    g = rng("tiny")
    data = Data(x=(torch.rand(4, 3, generator=g) < 0.5).float(), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
    data.y = torch.tensor([0, 1, 0, 1])
    victim = Linear(torch.randn(3, 2, generator=g))
    losses = {}
    for chosen in combinations([(i, j) for i in range(4) for j in range(3)], 3):
        flips = FeatureFlips.of(torch.tensor(chosen).T, 4, 3)
        logits = victim(flips.apply(data).x, data.edge_index)
        losses[frozenset(chosen)] = float(F.cross_entropy(logits[[0, 2]], data.y[[0, 2]]).detach())
    found = pgd_features(data, victim, budget=3, nodes=torch.tensor([0, 2]), labels=data.y, seed=0, loss="ce")
    reached = losses[frozenset((i, j) for i, j in found.entries.T.tolist())]
    assert sum(loss > reached for loss in losses.values()) <= 2  # of 220


@pytest.mark.parametrize("few", [0, 50_000])
@pytest.mark.parametrize(("scale", "budget"), [(1.0, 3), (0.001, 3), (0.1, 200), (5.0, 40), (0.0, 1)])
def test_the_projection_is_the_nearest_point_within_the_budget(
    scale: float, budget: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feature_attack, "FEW", few)
    values = scale * torch.randn(60, 20, generator=rng("values"))
    projected = feature_attack._projected(values, budget)
    assert torch.allclose(projected.flatten(), project_onto_budget(values.flatten(), budget), atol=1e-5)
    assert float(projected.sum()) <= budget * (1 + 1e-5)


@pytest.mark.parametrize("loss", ["ce", "margin"])
def test_it_raises_the_loss_more_than_random_flips(loss: str) -> None:
    def value(flips: FeatureFlips) -> float:
        changed = flips.apply(DATA)
        logits = VICTIM.eval()(changed.x, changed.edge_index)[NODES]
        return float(F.cross_entropy(logits, DATA.y[NODES]).detach())

    found = pgd_features(
        DATA, VICTIM, budget=0.05, nodes=NODES, labels=DATA.y, seed=0, steps=20, loss=loss  # type: ignore[arg-type]
    )  # fmt: skip
    assert 0 < len(found) <= 0.05 * int(DATA.x.sum())
    for seed in range(5):
        entries = torch.randperm(60 * 20, generator=rng("random entries", seed))[: len(found)]
        assert value(found) > value(FeatureFlips.of(torch.stack([entries // 20, entries % 20]), 60, 20))


def test_a_single_node_is_attacked_within_its_reach() -> None:
    found = pgd_features(DATA, VICTIM, budget=4, nodes=torch.tensor([7]), labels=DATA.y, seed=0, steps=20)
    near = {7, *DATA.edge_index[1, DATA.edge_index[0] == 7].tolist()}
    reach = {j for i, j in DATA.edge_index.T.tolist() if i in near} | near
    assert set(found.entries[0].tolist()) <= reach


def test_a_defence_that_compares_features_is_attacked_too() -> None:
    victim = GCNJaccard(20, 7, hidden=(8,), generator=rng("victim"))
    assert len(pgd_features(DATA, victim, budget=4, nodes=NODES, labels=DATA.y, seed=0, steps=3)) > 0


def test_what_cannot_be_attacked_is_refused() -> None:
    how = {"budget": 4, "nodes": NODES, "labels": DATA.y, "seed": 0}
    halves = DATA.clone()
    halves.x = DATA.x / 2
    with pytest.raises(DataError, match="only binary features can be flipped"):
        pgd_features(halves, VICTIM, **how)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="loss must be one of"):
        pgd_features(DATA, VICTIM, loss="cw", **how)  # type: ignore[arg-type]

    class Blind(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # noqa: ARG002
            return torch.zeros(len(x), 7)

    with pytest.raises(AttackError, match="ignores the features"):
        pgd_features(DATA, Blind(), **how)  # type: ignore[arg-type]
