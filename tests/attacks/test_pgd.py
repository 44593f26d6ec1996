from importlib import import_module
from itertools import combinations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn.models import basic_gnn

from wtawp.attacks import project_onto_budget, random_flips
from wtawp.attacks.pgd import FactoredGradient, Relaxed, factored_gradient, pgd, target_of
from wtawp.base import AttackError, fenced_rng, rng
from wtawp.graphs import citation, load, stratified
from wtawp.models import GCN, GCNSVD, MLP
from wtawp.training import evaluate, fit

SIZE, CLASSES = 12, 3


class Plain(nn.Module):
    """A victim that shows nothing but its forward pass."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = self.inner(x, edge_index, edge_weight)
        return out


class Blind(nn.Module):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:  # noqa: ARG002
        return x


class Weightless(nn.Module):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # noqa: ARG002
        return x


class Broken(nn.Module):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:  # noqa: ARG002
        return x / 0


def small(seed: int = 0, size: int = SIZE) -> Data:
    g = rng("pgd", seed)
    upper = (torch.rand(size, size, generator=g) > 0.7).triu(1).long()
    x = torch.randn(size, 4, generator=g, dtype=torch.float64)
    y = torch.arange(size) % CLASSES
    return Data(x=x, y=y, edge_index=(upper + upper.T).nonzero().T.contiguous())


def victim(seed: int = 0, hidden: tuple[int, ...] = (5,)) -> GCN:
    return GCN(4, CLASSES, hidden=hidden, generator=rng("victim", seed)).double()


def relaxed(data: Data, seed: int = 0) -> Relaxed:
    """Some pairs, edges among them, flipped a little."""
    g = rng("relaxed", seed)
    pairs = torch.triu_indices(SIZE, SIZE, 1)
    pairs = pairs[:, torch.rand(pairs.shape[1], generator=g) < 0.4]
    return Relaxed(pairs[0] * SIZE + pairs[1], torch.rand(pairs.shape[1], generator=g, dtype=data.x.dtype))


def dense(flips: Relaxed) -> Tensor:  # -> [n, n], upper triangle
    out = torch.zeros(SIZE * SIZE, dtype=flips.amounts.dtype)
    out[flips.codes] = flips.amounts
    return out.view(SIZE, SIZE)


def dense_loss(data: Data, model: GCN, upper: Tensor, nodes: Tensor, kind: str) -> Tensor:
    """The released code's way: everything dense, with no code shared."""
    adjacency = torch.zeros(SIZE, SIZE, dtype=torch.float64)
    adjacency[data.edge_index[0], data.edge_index[1]] = 1
    p = upper.triu(1)
    changed = adjacency + (1 - 2 * adjacency) * (p + p.T)
    changed = changed - torch.diag(changed.diag()) + torch.eye(SIZE, dtype=torch.float64)
    scale = changed.sum(1) ** -0.5
    hat = scale[:, None] * changed * scale
    x = data.x
    for layer, conv in enumerate(model.convs):
        x = hat @ x @ conv.weight + conv.bias
        x = x.relu() if layer + 1 < len(model.convs) else x
    logits, labels = x[nodes], data.y[nodes]
    if kind == "ce":
        return -logits.log_softmax(1)[torch.arange(len(nodes)), labels].mean()
    margins = [
        torch.stack([row[c] for c in range(CLASSES) if c != y]).max() - row[y]
        for row, y in zip(logits, labels.tolist(), strict=True)
    ]
    return torch.stack(margins).clamp(max=0).mean()


ALL = torch.triu_indices(SIZE, SIZE, 1)
CODES = ALL[0] * SIZE + ALL[1]
NODES = torch.tensor([0, 2, 3, 7, 11])


@pytest.mark.parametrize("kind", ["ce", "margin"])
@pytest.mark.parametrize("hidden", [(), (5,), (6, 5)])
@pytest.mark.parametrize("loops", [False, True])
def test_the_gradient_of_all_pairs_is_that_of_a_dense_network(kind: str, hidden: tuple[int, ...], loops: bool) -> None:
    data, model = small(), victim(hidden=hidden)
    if loops:
        data.edge_index = torch.cat([data.edge_index, torch.tensor([[1, 4], [1, 4]])], dim=1)
    flips = relaxed(data)
    found = factored_gradient(target_of(data, NODES, data.y, kind), model, data.x, flips).at(CODES)
    upper = dense(flips).requires_grad_()
    (expected,) = torch.autograd.grad(dense_loss(data, model, upper, NODES, kind), upper)
    assert torch.allclose(found, expected[tuple(ALL)], atol=1e-12)
    assert found.abs().max() > 1e-4


def test_the_gradient_is_what_finite_differences_say() -> None:
    data, model, flips = small(1), victim(1), relaxed(small(1), 1)
    found = factored_gradient(target_of(data, NODES, data.y, "ce"), model, data.x, flips).at(CODES)
    upper, step = dense(flips), 1e-5
    for place, (i, j) in enumerate(ALL.T.tolist()):
        moved = [upper.clone(), upper.clone()]
        moved[0][i, j] += step
        moved[1][i, j] -= step
        up, down = (float(dense_loss(data, model, m, NODES, "ce").detach()) for m in moved)
        assert float(found[place]) == pytest.approx((up - down) / (2 * step), abs=1e-8)


@pytest.mark.parametrize("block", [1, 40, 1 << 20])
@pytest.mark.parametrize("step", [0.01, 1.0, 1000.0])
def test_a_step_block_by_block_is_the_projection_of_all_pairs(
    block: int, step: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("wtawp.attacks.pgd"), "BLOCK", block)
    data = small(2)
    flips = relaxed(data, 2)
    gradient = factored_gradient(target_of(data, NODES, data.y, "ce"), victim(2), data.x, flips)
    assert isinstance(gradient, FactoredGradient)
    after = gradient.climb(flips, step, budget=4)
    expected = project_onto_budget(dense(flips)[tuple(ALL)] + step * gradient.at(CODES), 4)
    assert torch.allclose(dense(after)[tuple(ALL)], expected, atol=1e-9)
    assert bool((after.amounts > 0).all())
    assert bool((after.codes.diff() > 0).all())


@pytest.mark.parametrize("kind", ["ce", "margin"])
def test_thin_factors_and_weights_of_all_pairs_lead_to_the_same_flips(kind: str) -> None:
    data, model = small(3), victim(3)
    options = {"budget": 5, "nodes": NODES, "labels": data.y, "seed": 0, "steps": 20, "loss": kind, "step_size": 5.0}
    one, other = (pgd(data, v, **options) for v in (model, Plain(model)))  # type: ignore[arg-type]
    assert torch.equal(one.pairs, other.pairs)


def test_one_flip_is_nearly_the_best_of_all_single_flips() -> None:
    data, model = small(4), victim(4)
    flips = pgd(data, model, budget=1, nodes=NODES, labels=data.y, seed=0, steps=50, step_size=5.0)
    losses = {}
    for i, j in combinations(range(SIZE), 2):
        upper = torch.zeros(SIZE, SIZE, dtype=torch.float64)
        upper[i, j] = 1
        losses[i, j] = float(dense_loss(data, model, upper, NODES, "ce").detach())
    found = losses[tuple(flips.pairs[:, 0].tolist())]  # type: ignore[index]
    assert sum(other > found for other in losses.values()) <= 3  # of 66


def test_it_hurts_more_than_random_flips_and_leaves_the_victim_as_it_was() -> None:
    data = citation(seed=0, num_nodes=200, num_words=60, topicality=0.6)
    split = stratified(data.y, seed=0, train=0.2, val=0.2)
    model = GCN(60, 7, hidden=(16,), generator=rng("init"))
    fit(model, data, split, seed=0, epochs=60)
    model.train()
    model.convs[0].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    grads = [p.grad for p in model.parameters()]
    flips = pgd(data, model, budget=0.05, nodes=split.test, labels=data.y, seed=0, steps=50)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is g for p, g in zip(model.parameters(), grads, strict=True))
    assert (model.training, model.convs[0].training, model.convs[1].training) == (True, False, True)
    clean, attacked = (evaluate(model, d, split.test) for d in (data, flips.apply(data)))
    at_random = [evaluate(model, random_flips(data, budget=0.05, seed=s).apply(data), split.test) for s in range(5)]
    assert attacked[1] < min(accuracy for _, accuracy in at_random) - 0.02
    assert attacked[0] > 1.1 * max(clean[0], *(loss for loss, _ in at_random))


def test_frozen_weights_and_models_of_others_can_be_attacked() -> None:
    data = small(5)
    frozen = victim(5).requires_grad_(False)
    with fenced_rng("theirs"):
        theirs = basic_gnn.GCN(4, 5, 2, CLASSES).double()
    for model in (frozen, theirs):
        flips = pgd(data, model, budget=3, nodes=NODES, labels=data.y, seed=0, steps=20, step_size=5.0)
        model.eval()
        with torch.no_grad():
            clean, attacked = (
                F.cross_entropy(model(d.x, d.edge_index)[NODES], d.y[NODES]) for d in (data, flips.apply(data))
            )
        assert attacked > clean


def test_a_victim_that_gives_nothing_to_climb_is_said_so() -> None:
    data = small()
    dead = victim()
    nn.init.zeros_(dead.convs[1].weight)  # type: ignore[arg-type]
    mlp = MLP(4, CLASSES, hidden=(5,), generator=rng("mlp")).double()
    for model, message in [
        (dead, "zero for every pair"),
        (Plain(dead), "zero for every pair"),
        (Blind(), "ignores the graph"),
        (mlp, "ignores the graph"),
        (Weightless(), "takes no edge_weight"),
        (Broken(), "NaN or infinite logits"),
    ]:
        with pytest.raises(AttackError, match=message):
            pgd(data, model, budget=1, nodes=NODES, labels=data.y, seed=0, steps=2)
    nan = victim()
    nn.init.constant_(nan.convs[0].weight, float("nan"))  # type: ignore[arg-type]
    with pytest.raises(AttackError, match="NaN"):
        pgd(data, nan, budget=1, nodes=NODES, labels=data.y, seed=0)
    svd = GCNSVD(4, CLASSES, rank=3, generator=rng("svd")).double()
    with pytest.raises(ValueError, match="no gradient with respect to edge weights"):
        pgd(data, svd, budget=1, nodes=NODES, labels=data.y, seed=0)


def test_a_margin_that_is_lost_everywhere_is_flat() -> None:
    data, model = small(), victim()
    with torch.no_grad():
        wrong = model.eval()(data.x, data.edge_index).argmin(1)
    with pytest.raises(AttackError, match="misclassified"):
        pgd(data, model, budget=1, nodes=NODES, labels=wrong, seed=0, loss="margin")


def test_victims_without_factors_are_for_small_graphs() -> None:
    data = citation(seed=0, num_nodes=1001, num_words=4)
    with pytest.raises(AttackError, match="Blind shows no factors"):
        pgd(data, Blind(), budget=1, nodes=torch.tensor([0]), labels=data.y, seed=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": torch.full((SIZE,), CLASSES)}, "labels go up to 3, but logits are of 3 classes"),
        ({"labels": torch.full((SIZE,), -1)}, "must be known"),
        ({"labels": torch.zeros(3, dtype=torch.int64)}, "one a node"),
        ({"nodes": torch.tensor([SIZE])}, "nodes must lie in 0 to 11"),
        ({"nodes": torch.zeros(SIZE, dtype=torch.bool)}, "one or more indices"),
        ({"nodes": torch.tensor([0.0])}, "one or more indices"),
        ({"loss": "cw"}, "loss must be one of 'ce', 'margin'"),
        ({"steps": 0}, "steps must be >= 1"),
        ({"samples": -1}, "samples >= 0"),
        ({"step_size": 0.0}, "step_size must be positive"),
        ({"budget": 0}, "budget"),
    ],
)
def test_bad_arguments_are_refused(change: dict[str, object], message: str) -> None:
    data = small()
    options = {"budget": 1, "nodes": NODES, "labels": data.y, "seed": 0, **change}
    with pytest.raises(ValueError, match=message):
        pgd(data, victim(), **options)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.usefixtures("offline")
def test_evasion_on_cora_is_as_strong_as_in_the_paper() -> None:
    data, accuracies = load("cora"), []
    for seed in range(2):
        split = stratified(data.y, seed=seed)
        model = GCN(data.num_features, 7, generator=rng("init", seed))
        fit(model, data, split, seed=seed)
        flips = pgd(data, model, budget=0.05, nodes=split.test, labels=data.y, seed=0)
        assert len(flips) <= 253
        accuracies.append(100 * evaluate(model, flips.apply(data), split.test)[1])
    assert sum(accuracies) / 2 == pytest.approx(79.92, abs=1)  # tab:evasion, over 20 splits
