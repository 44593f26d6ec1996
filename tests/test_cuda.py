"""The same results on a GPU; skipped, with a reason, where there is none."""

import copy
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference_step import Setting, gradients_of, reference_step, relative_error, same_bits, weights_of
from torch import Tensor, distributed, nn
from torch.nn import functional as F
from torch_geometric import nn as pyg
from torch_geometric.data import Data

from wtawp import analysis
from wtawp.attacks import grbcd, metattack_many, minmax, pgd, pgd_many, prbcd
from wtawp.base import CheckpointError, rng
from wtawp.certificates import Noise, vote
from wtawp.core import WTAWP, AwpConfig
from wtawp.graphs import Split, citation, knn_edges, load, memory_mapped, stratified
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
from wtawp.training import Fit, compute_logits, dot_product, evaluate, fit, fit_batches, fit_many

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


@pytest.mark.parametrize("kind", [GCN, GAT, GraphSAGE])
@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_norms_and_skip_connections_replayed_on_the_gpu_are_those_on_the_cpu(kind: type, norm: str) -> None:
    """Two splits, which are one stack on a GPU and two on a CPU; each member has its own running averages."""
    data, trained, losses = load("citation"), {}, {}
    data.x, splits = data.x.double(), [stratified(data.y, seed=seed) for seed in (0, 1)]
    for device in ("cpu", "cuda"):
        models = [
            kind(data.num_features, 7, norm=norm, residual=True, generator=rng("init", i)).double().to(device)
            for i in range(2)
        ]
        results = fit_many(models, data, splits, seeds=[0, 1], awp=AwpConfig(rho=0.5, lam=0.5), epochs=10)
        trained[device], losses[device] = models, [result.history["train_loss"] for result in results]
    for i in range(2):
        assert losses["cuda"][i] == pytest.approx(losses["cpu"][i], rel=1e-6)
        buffers = dict(trained["cpu"][i].named_buffers())
        assert bool(buffers) == (norm == "batch")
        for name, buffer in trained["cuda"][i].named_buffers():
            torch.testing.assert_close(buffer.cpu(), buffers[name], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("average", [None, 0.9, "swa"])
def test_lam_auto_and_averages_replayed_on_the_gpu_are_those_on_the_cpu(average: float | str | None) -> None:
    """Two splits, which are one stack on a GPU and two on a CPU."""
    data, results = load("wine"), {}
    splits = [stratified(data.y, seed=seed) for seed in (0, 1)]
    for device in ("cpu", "cuda"):
        models = [GCN(13, 3, dropout=0.0, generator=rng("init", i)).double().to(device) for i in range(2)]
        graph = data.clone()
        graph.x = graph.x.double()
        results[device] = fit_many(models, graph, splits, seeds=[0, 1], awp=AwpConfig(rho=1.0, lam="auto"), epochs=40,
                                   average=average)  # type: ignore[arg-type]  # fmt: skip
    for ours, theirs in zip(results["cuda"], results["cpu"], strict=True):
        assert max(theirs.history["lam"]) > 0.3
        for name in ("lam", "val_loss", "train_loss"):
            assert ours.history[name] == pytest.approx(theirs.history[name], abs=1e-6)


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


def small_network(*, norm: bool = False) -> tuple[nn.Sequential, Tensor, Tensor]:
    """A network of three layers on the GPU, and rows to train it on."""
    model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 3))
    if norm:
        model.insert(1, nn.BatchNorm1d(32))
    g = rng("weights")
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.5 * torch.randn(p.shape, generator=g))
    x, y = torch.randn(64, 6, generator=g), torch.randint(0, 3, (64,), generator=g)
    return model.cuda(), x.cuda(), y.cuda()


def setting_of(awp: WTAWP) -> Setting:
    c = awp.config
    names = tuple(n.removeprefix("module.") for n in awp.perturbed)
    return Setting(rho=c.rho, lam=c.lam, perturbed=names, projection=c.projection, steps=c.steps)


@pytest.fixture
def nccl(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone."""
    distributed.init_process_group(
        "nccl", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1, device_id=torch.device("cuda:0")
    )
    yield
    distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("wrap", "options", "sync"),
    [
        ({}, {}, True),
        ({}, {}, False),
        ({"gradient_as_bucket_view": True}, {"steps": 2}, True),
        ({"gradient_as_bucket_view": True}, {"steps": 2}, False),
        ({"static_graph": True}, {}, True),
        ({"find_unused_parameters": True}, {"projection": "ball"}, True),
    ],
)
@pytest.mark.usefixtures("nccl")
@pytest.mark.filterwarnings("ignore:find_unused_parameters=True was specified")
def test_ddp_over_nccl_has_the_gradient_of_the_model_itself(
    wrap: dict[str, Any], options: dict[str, Any], sync: bool
) -> None:
    inner, x, y = small_network()
    model = nn.parallel.DistributedDataParallel(inner, device_ids=[0], **wrap)
    awp = WTAWP(model, rho=0.3, lam=0.7, **options)
    expected = reference_step(inner, lambda: F.cross_entropy(inner(x), y), setting_of(awp)).gradient
    before = weights_of(inner)
    awp.backward(lambda: F.cross_entropy(model(x), y), sync=sync)
    assert relative_error(gradients_of(inner), expected) < 1e-5
    assert same_bits(weights_of(inner), before)


@pytest.mark.usefixtures("nccl")
def test_sharded_training_over_nccl_has_the_gradient_of_the_model_itself() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, x, y = small_network()
    expected = reference_step(
        model,
        lambda: F.cross_entropy(model(x), y),
        Setting(rho=0.3, lam=0.7, perturbed=("0.weight", "2.weight")),
    ).gradient
    fully_shard(model, mesh=init_device_mesh("cuda", (1,)))
    WTAWP(model, rho=0.3, lam=0.7).backward(lambda: F.cross_entropy(model(x), y))
    gradient = {n: p.grad.full_tensor() for n, p in model.named_parameters()}
    assert relative_error(gradient, expected) < 1e-5


@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("options", [{}, {"projection": "ball"}, {"steps": 2}])
def test_half_precision_with_a_scaler_has_the_gradient_of_float32(
    options: dict[str, Any], norm: bool, accumulation: int
) -> None:
    model, x, y = small_network(norm=norm)
    awp, scaler = WTAWP(model, rho=0.2, lam=0.7, **options), torch.amp.GradScaler("cuda", init_scale=2.0**14)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    expected: dict[str, Tensor] = {}
    for rows in torch.arange(64, device="cuda").chunk(accumulation):

        def half_loss(rows: Tensor = rows) -> Tensor:
            with torch.autocast("cuda", torch.float16):
                return F.cross_entropy(model(x[rows]), y[rows])

        def full_loss(rows: Tensor = rows) -> Tensor:
            return F.cross_entropy(model(x[rows]), y[rows])

        expected = reference_step(
            model, full_loss, setting_of(awp), scaled=lambda loss: loss / accumulation, prior=expected
        ).gradient
        before = weights_of(model)
        awp.backward(half_loss, backward=lambda loss: scaler.scale(loss / accumulation).backward())
        assert same_bits(weights_of(model), before)
    scaler.unscale_(optimizer)
    assert relative_error(gradients_of(model), expected) < 1.6e-2
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**14
    assert not same_bits(weights_of(model), before)


@pytest.mark.parametrize("pass_number", [1, 2])
def test_an_overflow_on_the_gpu_makes_the_scaler_skip_and_back_off(pass_number: int) -> None:
    model, x, y = small_network()
    awp, scaler = WTAWP(model, rho=0.2, lam=0.7), torch.amp.GradScaler("cuda", init_scale=1024.0)
    optimizer, before, calls = torch.optim.Adam(model.parameters(), fused=True), weights_of(model), 0

    def closure() -> Tensor:
        nonlocal calls
        calls += 1
        return F.cross_entropy(model(x), y) * (torch.inf if calls == pass_number else 1.0)

    awp.backward(closure, backward=lambda loss: scaler.scale(loss).backward())
    scaler.step(optimizer)
    scaler.update()
    assert same_bits(weights_of(model), before)
    assert scaler.get_scale() == 512.0


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node")  # torch says so of graphs built on several streams
@pytest.mark.parametrize("options", [{}, {"projection": "ball"}, {"steps": 2}, {"balance": 0.5}, {"layers": "*"}])
def test_the_step_is_captured_as_a_cuda_graph(options: dict[str, Any]) -> None:
    """A replay on other rows gives the gradient and the loss that the step gives there."""
    model, x, y = small_network()
    awp = WTAWP(model, rho=0.3, lam=0.7, **options)
    held_x, held_y = x.clone(), y.clone()

    def closure() -> Tensor:
        return F.cross_entropy(model(held_x), held_y)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model.zero_grad(set_to_none=True)
            awp.backward(closure)
    torch.cuda.current_stream().wait_stream(side)
    model.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = awp.backward(closure)
    before = weights_of(model)
    for shift in (0.0, 1.0):
        held_x.copy_(x + shift)
        held_y.copy_(y.flip(0))
        graph.replay()
        assert same_bits(weights_of(model), before)
        twin = copy.deepcopy(model)
        twin.zero_grad(set_to_none=True)
        expected = WTAWP(twin, rho=0.3, lam=0.7, **options).backward(
            lambda twin=twin: F.cross_entropy(twin(held_x), held_y)
        )
        assert relative_error(gradients_of(model), gradients_of(twin)) < 1e-5
        torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
def test_fused_optimizers_on_the_gpu_train_as_with_the_reference(optimizer: type[torch.optim.Optimizer]) -> None:
    (model, x, y), (twin, _, _) = small_network(), small_network()
    ours, theirs = (optimizer(m.parameters(), lr=0.01, fused=True) for m in (model, twin))
    awp = WTAWP(model, rho=0.3, lam=0.7)
    for _ in range(3):
        ours.zero_grad()
        awp.backward(lambda: F.cross_entropy(model(x), y))
        for n, g in reference_step(twin, lambda: F.cross_entropy(twin(x), y), setting_of(awp)).gradient.items():
            twin.get_parameter(n).grad = g.float()
        ours.step()
        theirs.step()
    assert relative_error(weights_of(model), weights_of(twin)) < 1e-4


def test_a_training_continues_from_a_checkpoint_where_it_is_replayed(tmp_path: Path) -> None:
    data = load("citation")
    data.x = data.x.double()
    split, awp = stratified(data.y, seed=0), AwpConfig(rho=0.5, lam=0.5, every=2)
    path = tmp_path / "training.pt"

    def train(checkpoint: Path | None, observe: Callable[[nn.Module, int], None] | None = None) -> Fit:
        model = GCN(data.num_features, 7, generator=rng("init")).double().cuda()
        return fit(model, data, split, seed=0, awp=awp, epochs=24, checkpoint=checkpoint, checkpoint_every=5,
                   observe=observe)  # fmt: skip

    def keep(_model: nn.Module, epoch: int) -> None:
        shutil.copy(path, tmp_path / f"{epoch}.pt")

    expected = train(None)
    for found in (train(path, keep), train(path), train(tmp_path / "3.pt"), train(tmp_path / "17.pt")):
        assert found.epoch == expected.epoch
        for name, values in expected.history.items():
            assert found.history[name] == pytest.approx(values, rel=1e-7, abs=1e-10)
    model = GCN(data.num_features, 7, generator=rng("init")).double()
    with pytest.raises(CheckpointError, match=r"device \(cuda in the file, cpu now\)"):
        fit(model, data, split, seed=0, awp=awp, epochs=24, checkpoint=path)


def warm_up(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=6)


def margin(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.multi_margin_loss(output, target)


@pytest.mark.parametrize(
    "options",
    [
        {"scheduler": warm_up},
        {"optimizer": lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9), "scheduler": warm_up},
        {"optimizer": torch.optim.Adafactor},
        {"loss": margin, "metric": lambda o, t: float((o.argmax(1) == t).sum()), "select_on": "metric"},
        {"loss": margin, "awp": AwpConfig(rho=0.5, lam=0.5, every=3)},
        {"awp": AwpConfig(rho=0.5, lam=0.5, every=3)},
    ],
)
def test_own_optimizers_schedules_and_losses_train_on_the_gpu_as_on_the_cpu(options: dict[str, Any]) -> None:
    data = load("citation")
    data.x = data.x.double()
    splits = [stratified(data.y, seed=s) for s in range(2)]
    losses = []
    for device in ("cpu", "cuda"):
        models = [GCN(data.num_features, 7, generator=rng("init", i)).double().to(device) for i in range(2)]
        results = fit_many(models, data, splits, seeds=[0, 1], epochs=12, **options)
        losses.append([v for r in results for name in ("train_loss", "val_loss") for v in r.history[name]])
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)


def test_links_train_on_the_gpu_as_on_the_cpu() -> None:
    data = load("citation")
    pairs = torch.randint(0, data.num_nodes, (2, 90), generator=rng("pairs"))
    graph = Data(x=data.x.double(), edge_index=data.edge_index, edge_label_index=pairs,
                 edge_label=(data.y[pairs[0]] == data.y[pairs[1]]).double())  # fmt: skip
    parts = Split(*torch.arange(90).split(30))
    losses = []
    for device in ("cpu", "cuda"):
        model = GCN(data.num_features, 7, generator=rng("init")).double().to(device)
        with warnings.catch_warnings(action="ignore"):  # some of the random pairs are edges
            result = fit(model, graph, parts, seed=0, epochs=8, decoder=dot_product, metric=lambda o, t: 0.0,  # noqa: ARG005
                         loss=F.binary_cross_entropy_with_logits)  # fmt: skip
        losses.append(result.history["val_loss"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)


@pytest.mark.parametrize("kind", [GCN, GAT, GraphSAGE, GCNSVD])
def test_memory_mapped_features_train_as_those_in_memory(kind: type, tmp_path: Path) -> None:
    """The first three move only the rows that they need; the last one moves all."""
    data = load("wine")
    np.save(tmp_path / "x.npy", data.x.numpy())
    split, runs = stratified(data.y, seed=0), []
    for x in (data.x, memory_mapped(tmp_path / "x.npy")):
        model = kind(13, 3, generator=rng("init")).cuda()
        graph = Data(x=x, edge_index=data.edge_index, y=data.y)
        runs.append((fit(model, graph, split, seed=0, epochs=5), [p.tolist() for p in model.parameters()]))
        assert graph.x.device.type == "cpu"
    assert runs[0] == runs[1]


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


@pytest.mark.parametrize("average", [None, 0.9])
@pytest.mark.parametrize(
    "options",
    [
        {"lam": 1.0, "direction": "momentum"},
        {"lam": 0.6, "direction": "momentum", "every": 2},
        {"lam": 1.0, "direction": "without-edges"},
        {"lam": 0.6, "perturbed_gradient": "without-edges"},
        {"lam": 0.6, "perturbed_gradient": "functional"},
    ],
)
def test_substitutes_for_gradients_replayed_on_the_gpu_are_those_on_the_cpu(
    options: dict[str, Any], average: float | None
) -> None:
    data = load("citation")
    data.x = data.x.double()
    splits, losses = [stratified(data.y, seed=s) for s in range(2)], []
    for device in ("cpu", "cuda"):
        models = [GCN(data.num_features, 7, generator=rng("init", i)).double().to(device) for i in range(2)]
        results = fit_many(models, data, splits, seeds=[0, 1], epochs=12, average=average,
                           awp=AwpConfig(rho=0.3, layers="*", radius="global", **options))  # fmt: skip
        losses.append([v for r in results for name in ("train_loss", "val_loss") for v in r.history[name]])
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
