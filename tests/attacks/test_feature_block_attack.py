"""PRBCD on features against an exhaustive search, a dense gradient and what it must refuse."""

from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.attacks import feature_block_attack, prbcd_features
from wtawp.attacks.relaxed import RelaxedFlips, target_of
from wtawp.base import AttackError, DataError, rng
from wtawp.graphs import FeatureFlips, citation
from wtawp.models import GAT, GCN, GIN, MLP, PPNP, RGCN, GCNJaccard, GNNGuard, GraphSAGE, SimPGCN
from wtawp.models.capabilities import StackAware

DATA = citation(seed=0, num_nodes=60, num_words=20)
VICTIM = GCN(20, 7, hidden=(8,), generator=rng("victim"))
NODES = torch.arange(10)
HOW: dict[str, Any] = {"nodes": NODES, "labels": DATA.y, "seed": 0}


class Plain(nn.Module):
    """A victim that shows nothing but its forward pass, and is called with dense features."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        assert isinstance(x, Tensor)
        out: Tensor = self.inner(x, edge_index)
        return out


def loss_after(flips: FeatureFlips, victim: nn.Module = VICTIM) -> float:
    changed = flips.apply(DATA)
    logits = victim.eval()(changed.x, changed.edge_index)[NODES]
    return float(F.cross_entropy(logits, DATA.y[NODES]).detach())


@pytest.mark.parametrize(("block_size", "step_size"), [(8, 1000.0), (100, 10.0)])  # a block that stays takes its time
def test_on_a_small_graph_it_is_among_the_best_of_all_sets_of_flips(block_size: int, step_size: float) -> None:
    g = rng("tiny")
    data = Data(x=(torch.rand(4, 3, generator=g) < 0.5).float(), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
    data.y = torch.tensor([0, 1, 0, 1])
    victim = GCN(3, 2, hidden=(4,), generator=g).eval()
    losses = {}
    for chosen in combinations([(i, j) for i in range(4) for j in range(3)], 2):
        logits = victim(FeatureFlips.of(torch.tensor(chosen).T, 4, 3).apply(data).x, data.edge_index)
        losses[frozenset(chosen)] = float(F.cross_entropy(logits[[0, 2]], data.y[[0, 2]]).detach())
    how = {"nodes": torch.tensor([0, 2]), "labels": data.y, "seed": 0, "loss": "ce", "block_size": block_size}
    found = prbcd_features(data, victim, budget=2, steps=40, step_size=step_size, **how)  # type: ignore[arg-type]
    reached = losses[frozenset((i, j) for i, j in found.entries.T.tolist())]
    assert sum(loss > reached for loss in losses.values()) <= 2  # of 66


def test_sparse_features_have_the_loss_and_the_gradient_of_dense_ones() -> None:
    data = DATA.clone()
    data.x = data.x.double()
    victim = GCN(20, 7, hidden=(8,), generator=rng("victim")).double().eval()
    codes = torch.randperm(1200, generator=rng("codes"))[:300].sort().values
    amounts = torch.rand(300, generator=rng("amounts"), dtype=torch.float64)
    amounts[::7] = 0.0  # not in the features, and yet with a gradient
    target, found = target_of(data, [NODES], [DATA.y], "ce"), []
    for each in (victim, Plain(victim)):
        assert isinstance(each, StackAware) == (each is victim)
        space = feature_block_attack._Entries(target, each, 5, 300, rng("draws"))
        variable = amounts.clone().requires_grad_()
        loss = space.loss(RelaxedFlips(codes, variable))
        found.append((loss.detach(), torch.autograd.grad(loss, variable)[0]))
    dense = data.x.clone()
    i, j = codes // 20, codes % 20
    dense[i, j] = dense[i, j] * (1 - amounts) + (1 - dense[i, j]) * amounts
    exact = F.cross_entropy(victim(dense, data.edge_index)[NODES], DATA.y[NODES])
    assert torch.allclose(found[0][0], exact)
    assert all(torch.allclose(sparse, plain, atol=1e-12) for sparse, plain in zip(*found, strict=True))
    assert bool((found[0][1][::7] != 0).any())


@pytest.mark.parametrize("loss", ["ce", "tanh_margin"])
@pytest.mark.parametrize("victim", [VICTIM, Plain(VICTIM)], ids=["ours", "any"])
def test_it_raises_the_loss_more_than_random_flips(loss: str, victim: nn.Module) -> None:
    found = prbcd_features(DATA, victim, budget=0.05, steps=20, block_size=600, loss=loss, **HOW)
    assert 0 < len(found) <= 0.05 * int(DATA.x.sum())
    for seed in range(5):
        entries = torch.randperm(60 * 20, generator=rng("random entries", seed))[: len(found)]
        assert loss_after(found) > loss_after(FeatureFlips.of(torch.stack([entries // 20, entries % 20]), 60, 20))


def test_no_more_entries_are_relaxed_than_a_block_has(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, real = list[int](), feature_block_attack._Entries.loss

    def counting(self: Any, flips: RelaxedFlips) -> Tensor:
        sizes.append(len(flips.codes))
        return real(self, flips)

    monkeypatch.setattr(feature_block_attack._Entries, "loss", counting)
    prbcd_features(DATA, VICTIM, budget=9, steps=10, block_size=50, **HOW)
    assert max(sizes) <= 50


@pytest.mark.parametrize("kind", [GAT, GIN, GNNGuard, GraphSAGE, MLP, PPNP, RGCN, SimPGCN, GCNJaccard])
def test_other_models_and_defences_that_compare_features_are_attacked_too(kind: Any) -> None:
    victim = kind(20, 7, generator=rng("victim")).eval()
    flips = prbcd_features(DATA, victim, budget=4, steps=3, block_size=600, loss="ce", **HOW)
    assert 0 < len(flips) <= 4
    none = FeatureFlips.of(torch.zeros(2, 0, dtype=torch.int64), 60, 20)
    assert loss_after(flips, victim) > loss_after(none, victim)


def test_what_cannot_be_attacked_is_refused() -> None:
    halves = DATA.clone()
    halves.x = DATA.x / 2
    with pytest.raises(DataError, match="only binary features can be flipped"):
        prbcd_features(halves, VICTIM, budget=4, **HOW)
    with pytest.raises(ValueError, match="4 flips cannot be found in a block of 3 entries; raise block_size"):
        prbcd_features(DATA, VICTIM, budget=4, block_size=3, **HOW)
    with pytest.raises(ValueError, match="loss must be one of"):
        prbcd_features(DATA, VICTIM, budget=4, loss="cw", **HOW)  # type: ignore[arg-type]

    class Blind(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # noqa: ARG002
            return torch.zeros(len(x), 7)

    with pytest.raises(AttackError, match="ignores the features"):
        prbcd_features(DATA, Blind(), budget=4, **HOW)
