"""The same results on a GPU; skipped, with a reason, where there is none."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from wtawp.attacks import pgd, pgd_many
from wtawp.base import rng
from wtawp.certificates import Noise, vote
from wtawp.core import WTAWP, AwpConfig
from wtawp.graphs import citation, load, stratified
from wtawp.models import GCN, GCNSVD, GIN, MLP, RGCN, GCNJaccard, GraphSAGE, SimPGCN
from wtawp.training import fit

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("steps", [1, 3])
def test_the_gradient_on_the_gpu_is_the_cpu_s(exact: bool, steps: int) -> None:
    grads = []
    for device in ("cpu", "cuda"):
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.BatchNorm1d(8), nn.Linear(8, 3)).double()
        g = rng("weights")
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.randn(p.shape, generator=g, dtype=torch.float64))
        x, y = torch.randn(20, 4, generator=g, dtype=torch.float64), torch.randint(0, 3, (20,), generator=g)
        model, x, y = model.to(device), x.to(device), y.to(device)
        awp = WTAWP(model, rho=0.5, lam=0.7, steps=steps, exact=exact, balance=2.0)
        loss = awp.backward(lambda model=model, x=x, y=y: F.cross_entropy(model(x), y))
        assert loss.device.type == device
        grads.append(torch.cat([p.grad.flatten() for p in model.parameters()]).cpu())
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-9, atol=1e-11)


def test_training_on_the_gpu_repeats_and_learns() -> None:
    data = load("citation")
    split, config = stratified(data.y, seed=0), AwpConfig(rho=1.0, lam=0.7)
    results = []
    for _ in range(2):
        model = GCN(data.num_features, 7, generator=rng("init")).cuda()
        results.append(fit(model, data, split, seed=0, awp=config, epochs=200))
    assert results[0].accuracy["test"] > 0.75
    assert results[0].accuracy["test"] == pytest.approx(results[1].accuracy["test"], abs=0.02)


@pytest.mark.parametrize("kind", [GCN, MLP, GraphSAGE, GIN])
def test_training_replayed_on_the_gpu_is_training_on_the_cpu(kind: type) -> None:
    data = load("citation")
    data.x = data.x.double()
    losses = []
    for device in ("cpu", "cuda"):
        model = kind(data.num_features, 7, generator=rng("init")).double().to(device)
        result = fit(model, data, stratified(data.y, seed=0), seed=0, awp=AwpConfig(rho=0.5, lam=0.5), epochs=10)
        losses.append(result.history["train_loss"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)


@pytest.mark.parametrize("part", ["features", "edges", "both"])
@pytest.mark.parametrize("is_ours", [True, False])
def test_votes_on_the_gpu_are_those_on_the_cpu(part: str, is_ours: bool) -> None:
    data, noise = load("citation"), Noise(p_add=0.002, p_del=0.4)
    data.x = data.x.double()
    parts = {name: noise for name in ("features", "edges") if part in (name, "both")}
    counts = []
    for device in ("cpu", "cuda"):
        model = GCN(data.num_features, 7, generator=rng("init")).double().to(device).eval()
        victim = model if is_ours else lambda x, edge_index, model=model: model(x, edge_index)
        counts.append(vote(copy.copy(data).to(device), victim, **parts, samples=20, seed=1).counts)
    assert torch.equal(*counts)


@pytest.mark.parametrize("kind", [GCN, GCNJaccard, RGCN, SimPGCN, GCNSVD])
def test_many_attacks_on_the_gpu_find_what_each_finds_on_the_cpu(kind: type) -> None:
    data = citation(seed=0, num_nodes=120, num_words=40)
    data.x = data.x.double()
    models = [kind(40, 7, generator=rng("victim", s)).double() for s in range(3)]
    nodes, options = data.y >= 0, {"budget": 0.1, "steps": 20}
    alone = [pgd(data, m, nodes=nodes, labels=data.y, seed=s, **options) for s, m in enumerate(models)]
    together = pgd_many(
        data.cuda(), [m.cuda() for m in models], nodes=[nodes] * 3, labels=[data.y] * 3, seeds=[0, 1, 2], **options
    )
    for one, other in zip(alone, together, strict=True):
        assert torch.equal(one.pairs, other.pairs)
