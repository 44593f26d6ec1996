"""The same results on a GPU; skipped, with a reason, where there is none."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric import nn as pyg
from torch_geometric.data import Data

from wtawp import analysis
from wtawp.attacks import grbcd, metattack_many, minmax, pgd, pgd_many, prbcd
from wtawp.base import rng
from wtawp.certificates import Noise, vote
from wtawp.core import WTAWP, AwpConfig
from wtawp.graphs import citation, knn_edges, load, stratified
from wtawp.models import (
    GAT,
    GCN,
    GCNSVD,
    GIN,
    MLP,
    RGCN,
    GCNJaccard,
    GraphSAGE,
    PooledGCN,
    PooledGIN,
    PooledSAGE,
    SimPGCN,
)
from wtawp.training import compute_logits, evaluate, fit, fit_batches, fit_many

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


def small() -> Data:
    data = citation(seed=0, num_nodes=200, num_words=40)
    data.x = data.x.double()
    return data


def on(device: str, kind: type = GCN) -> tuple[nn.Module, Data]:
    data = small()
    return kind(40, 7, generator=rng("victim")).double().eval().to(device), data.to(device)


@pytest.mark.parametrize("name", ["metattack", "minmax", "prbcd", "grbcd"])
def test_other_attacks_on_the_gpu_hurt_as_on_the_cpu(name: str) -> None:
    """Their choices hang on the last bit of sums, so that accuracies are compared, not flips."""
    found = []
    for device in ("cpu", "cuda"):
        data = small().to(device)
        split = stratified(data.y.cpu(), seed=0)
        model = GCN(40, 7, generator=rng("init")).double().to(device)
        fit(model, data, split, seed=0, epochs=100)
        given = {"budget": 0.2, "labels": data.y, "seed": 0}
        if name == "metattack":
            (flips,) = metattack_many(data, budget=0.2, trains=[split.train], labels=[data.y], seeds=[0], steps=30)
        else:
            attack = {"minmax": minmax, "prbcd": prbcd, "grbcd": grbcd}[name]
            flips = attack(data, model.eval(), nodes=split.test, steps=30, **given)
        attacked = flips.apply(data)
        if name in ("metattack", "minmax"):
            model = GCN(40, 7, generator=rng("init")).double().to(device)
            fit(model, attacked, split, seed=0, epochs=100)
        before, after = evaluate(model, data, split.test)[1], evaluate(model, attacked, split.test)[1]
        found.append((len(flips), before, after))
    (count, _, one), (count_there, _, other) = found
    assert count == count_there
    assert other == pytest.approx(one, abs=0.06)


@pytest.mark.parametrize("kind", [GCN, GAT])
def test_the_geometry_on_the_gpu_is_that_on_the_cpu(kind: type) -> None:
    found = []
    for device in ("cpu", "cuda"):
        model, data = on(device, kind)
        split = stratified(data.y.cpu(), seed=0)
        loss = analysis.LossOn(model, data, split.train)
        u, v = (analysis.random_direction(model, seed=0, number=i, scale="filter") for i in (0, 1))
        values = [
            *analysis.losses_on_plane(model, loss, u, v, [-1.0, 0.0, 1.0], [0.0, 0.5]).flatten().tolist(),
            *analysis.loss_along(model, loss, analysis.adversarial_direction(model, loss), [0.1, 0.2]).tolist(),
            *analysis.loss_along_random_directions(model, loss, [0.5], seed=1, num_directions=2).flatten().tolist(),
            *(analysis.sharpness(model, loss, rho=0.3, radius=r) for r in ("layer", "adaptive", "global")),
            *analysis.top_eigenvalues(model, loss, k=2),
            analysis.hessian_trace(model, loss, seed=0, probes=3).mean,
            *analysis.spectral_density(model, loss, seed=0, probes=2, steps=5).nodes.flatten().tolist(),
            *(at.bound.total for at in analysis.bound_over_rho(model, data, split.train, [0.1, 1.0])),
        ]
        for wrt in ("adjacency", "features"):
            norms = analysis.input_gradient_norms([model], data, split.train, wrt=wrt, seed=0, samples=2)
            values += norms.flatten().tolist()
        found.append(values)
    assert found[1] == pytest.approx(found[0], rel=1e-6, abs=1e-9)


def some_graphs() -> list[Data]:
    made = []
    for i in range(40):
        x = torch.randn(3 + i % 5, 4, generator=rng("x", i), dtype=torch.float64) + (0.3 if i % 2 else -0.3)
        made.append(Data(x=x, edge_index=knn_edges(x, 2), y=torch.tensor([i % 2])))
    return made


@pytest.mark.parametrize("kind", [PooledGCN, PooledGIN, PooledSAGE])
def test_graphs_are_classified_on_the_gpu_as_on_the_cpu(kind: type) -> None:
    graphs = some_graphs()
    split = stratified(torch.cat([g.y for g in graphs]), seed=0, train=0.6, val=0.2)
    awp, found = AwpConfig(rho=0.5, lam=0.5, layers="first"), []
    for device in ("cpu", "cuda"):
        models = [kind(4, 2, generator=rng("init", i)).double().to(device) for i in range(3)]
        fits = fit_many(models, graphs, split, seeds=[0, 1, 2], awp=awp, epochs=8)
        losses = [loss for one in fits for loss in one.history["train_loss"]]
        alone = kind(4, 2, dropout=0.0, generator=rng("init")).double().to(device)
        losses += fit_batches(alone, graphs, split, seed=0, batch_size=8, awp=awp, epochs=2).history["train_loss"]
        loss = analysis.LossOn(models[0].eval(), [g.to(device) for g in graphs], split.train)
        found.append([*losses, analysis.sharpness(models[0], loss, rho=0.1)])
    assert found[1] == pytest.approx(found[0], rel=1e-6)


@pytest.mark.parametrize("kind", [GCN, GraphSAGE, GAT, pyg.GCN])
def test_minibatches_of_nodes_are_those_of_the_cpu(kind: type) -> None:
    data = citation(seed=0, num_nodes=200, num_words=12)
    data.x, split = data.x.double(), stratified(data.y, seed=0)
    found = []
    for device in ("cpu", "cuda"):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = pyg.GCN(12, 8, 2, 7) if kind is pyg.GCN else kind(12, 7, dropout=0.0, generator=rng("init"))
        model = model.double().to(device)
        awp = AwpConfig(rho=0.5, lam=0.5)
        result = fit_batches(model, data, split, seed=0, batch_size=8, fanouts=(3, 3), awp=awp, epochs=3)
        found.append([*result.history["train_loss"], *result.loss.values(), *compute_logits(model, data)[0].tolist()])
    assert found[1] == pytest.approx(found[0], rel=1e-6)
