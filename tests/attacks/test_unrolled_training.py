"""The unrolled training against torch's optimizer, and its meta-gradient against finite differences."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.attacks.relaxed import target_of
from wtawp.attacks.unrolled_training import State, TrainingOptions, UnrolledTraining
from wtawp.base import AttackError, rng
from wtawp.models import GAT, GCN, GCNSVD, PPNP, RGCN, ElasticGNN, GNNGuard, SimPGCN, SoftMedianGCN

CLASSES = 3
TRAIN, NODES = torch.tensor([1, 4, 5, 9]), torch.tensor([0, 2, 3, 7, 11])
DEFENCES: dict[str, Callable[[], nn.Module]] = {
    "GCN": lambda: GCN(4, CLASSES, hidden=(5,), generator=rng("init")),
    "GAT": lambda: GAT(4, CLASSES, width=2, heads=2, generator=rng("init")),
    "PPNP": lambda: PPNP(4, CLASSES, hidden=5, generator=rng("init")),
    "RGCN": lambda: RGCN(4, CLASSES, hidden=(5,), generator=rng("init")),
    "RGCN, random": lambda: RGCN(4, CLASSES, hidden=(5,), sample=True, generator=rng("init")),
    "SimPGCN": lambda: SimPGCN(4, CLASSES, hidden=5, neighbours=2, generator=rng("init")),
    "GNNGuard": lambda: GNNGuard(4, CLASSES, hidden=(5,), threshold=0.01, generator=rng("init")),
    "ElasticGNN": lambda: ElasticGNN(4, CLASSES, hidden=5, steps=3, generator=rng("init")),
    "SoftMedianGCN": lambda: SoftMedianGCN(4, CLASSES, hidden=(5,), generator=rng("init")),
}


def unrolled(data: Data, victim: nn.Module, *, steps: int = 6, lr: float | None = 0.1) -> UnrolledTraining:
    training, aim = (target_of(data, [nodes], [data.y], "ce") for nodes in (TRAIN, NODES))
    options = TrainingOptions(steps=steps, lr=lr, weight_decay=1e-3)
    return UnrolledTraining(victim.double().eval(), training, aim, options, seed=0)


def soft_graph(data: Data) -> tuple[Tensor, Tensor]:
    """All pairs as edges, with random weights that are the same in both directions."""
    i, j = torch.triu_indices(12, 12, 1)
    weight = 0.2 + 0.6 * torch.rand(len(i), generator=rng("weights"), dtype=torch.float64)
    assert data.num_nodes == 12
    return torch.stack([torch.cat([i, j]), torch.cat([j, i])]), weight.repeat(2)


def test_the_training_is_that_of_torchs_optimizer_on_dense_matrices(small: Callable[..., Data]) -> None:
    data = small()
    edges, weight = soft_graph(data)
    training = unrolled(data, DEFENCES["GCN"]())
    start = training.first_weights(rng("start"))
    a = torch.eye(12, dtype=torch.float64).index_put(tuple(edges), weight)
    scale = a.sum(1) ** -0.5
    hat = scale[:, None] * a * scale
    weights = [w.clone().requires_grad_() for w in start[0]]
    optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.9, weight_decay=1e-3)

    def logits() -> Tensor:
        return hat @ (hat @ data.x @ weights[0] + weights[1]).relu() @ weights[2] + weights[3]

    for _ in range(6):
        optimizer.zero_grad()
        F.cross_entropy(logits()[TRAIN], data.y[TRAIN]).backward()
        optimizer.step()
    (last, _), wrong = training.train(start, (edges, weight))[-1], logits()[NODES].argmax(1) != data.y[NODES]
    assert all(torch.allclose(one, other.detach()) for one, other in zip(last, weights, strict=True))
    expected = float(wrong.double().mean()), float(F.cross_entropy(logits()[NODES], data.y[NODES]).detach())
    assert training.damage((last, ()), (edges, weight)) == pytest.approx(expected)


@pytest.mark.parametrize("name", DEFENCES)
def test_the_meta_gradient_is_the_change_of_the_loss_after_another_training(
    name: str, small: Callable[..., Data]
) -> None:
    data = small()
    if name in ("GNNGuard", "SimPGCN"):
        data.x = data.x.abs()  # so that neighbours are similar
    edges, weight = soft_graph(data)
    training = unrolled(data, DEFENCES[name]())
    start = training.first_weights(rng("start"))

    def loss(weight: Tensor) -> float:
        return training.damage(training.train(start, (edges, weight))[-1], (edges, weight))[1]

    gradient, by_retraining = training.gradient(start, (edges, weight)), []
    chosen = [0, 17, 40, 70, 101]
    for edge in chosen:
        step = torch.zeros_like(weight)
        step[edge] = 1e-6
        by_retraining.append((loss(weight + step) - loss(weight - step)) / 2e-6)
    assert torch.allclose(gradient[chosen], torch.tensor(by_retraining, dtype=torch.float64), rtol=1e-4, atol=1e-7)
    assert float(gradient.abs().max()) > 1e-4


def test_the_effect_on_the_training_is_part_of_the_gradient(small: Callable[..., Data]) -> None:
    data = small()
    graph, training = soft_graph(data), unrolled(data, DEFENCES["GCN"]())
    start = training.first_weights(rng("start"))
    weights, edge_weight = training.train(start, graph)[-1][0], graph[1].clone().requires_grad_()
    logits = training._logits(weights, (graph[0], edge_weight), 0)[0][NODES]
    (direct,) = torch.autograd.grad(F.cross_entropy(logits, data.y[NODES]), edge_weight)
    whole = training.gradient(start, graph)
    assert float((whole - direct).norm()) > 0.1 * float(direct.norm())


def test_first_weights_are_the_victims_in_another_order_and_the_victim_stays(small: Callable[..., Data]) -> None:
    data, victim = small(), DEFENCES["GCN"]().double()
    before = [p.detach().clone() for p in victim.parameters()]
    training = unrolled(data, victim)
    one, same, other = (training.first_weights(rng("start", i)) for i in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(one[0], same[0], strict=True))
    assert not torch.equal(one[0][0], other[0][0])
    for drawn, p in zip(one[0], before, strict=True):
        assert torch.equal(drawn.flatten().sort().values, p.flatten().sort().values)
    training.gradient(one, soft_graph(data))
    assert all(torch.equal(p, b) and p.grad is None for p, b in zip(victim.parameters(), before, strict=True))


def test_batch_norms_use_the_statistics_of_the_victim_and_leave_them(small: Callable[..., Data]) -> None:
    data = small()
    graph, victim = soft_graph(data), GCN(4, CLASSES, hidden=(5,), norm="batch", generator=rng("init"))
    start, first = unrolled(data, victim).first_weights(rng("start")), dict[float, Tensor]()
    for mean in (0.0, 0.5):
        before = {name: (buffer + mean).clone() for name, buffer in victim.named_buffers()}
        victim.load_state_dict(before, strict=False)
        training = unrolled(data, victim)
        training.gradient(start, graph)
        first[mean] = training.train(start, graph)[1][0][0]
        assert all(torch.equal(buffer, before[name]) for name, buffer in victim.named_buffers())
    assert not torch.allclose(first[0.0], first[0.5])


def test_the_learning_rate_is_the_best_before_the_loss_rises_again(small: Callable[..., Data]) -> None:
    data = small()
    graph, training = soft_graph(data), unrolled(data, DEFENCES["GCN"](), lr=None)
    starts = [training.first_weights(rng("start", i)) for i in range(2)]

    def loss_at(rate: float, starts: list[State]) -> float:
        given = unrolled(data, DEFENCES["GCN"](), lr=rate)
        last = [given.train(start, graph)[-1][0] for start in starts]
        losses = [F.cross_entropy(given._logits(w, graph, 0)[0][TRAIN], data.y[TRAIN]) for w in last]
        return float(torch.stack(losses).mean().detach())

    for judged in ([starts[0]], [starts[1]], starts):
        training.choose_rate(judged, graph)
        losses = [loss_at(0.5 / 2**power, judged) for power in range(8)]
        first_rise = next(i for i in range(1, 9) if i == 8 or losses[i] >= losses[i - 1])
        assert training.rate == 0.5 / 2 ** (first_rise - 1)


def test_what_cannot_be_unrolled_says_what_to_do(small: Callable[..., Data], broken: nn.Module) -> None:
    data = small()
    graph = soft_graph(data)

    def start(training: UnrolledTraining) -> State:
        return training.first_weights(rng("start"))

    svd = unrolled(data, GCNSVD(4, CLASSES, hidden=(5,), rank=4, generator=rng("init")))
    with pytest.raises(AttackError, match=r"cannot be differentiated twice.* use metattack"):
        svd.gradient(start(svd), graph)
    with pytest.raises(ValueError, match="no weights that can learn"):
        unrolled(data, broken)
    wild = unrolled(data, DEFENCES["GCN"](), lr=1e9)
    with pytest.raises(AttackError, match=r"do not lower the loss of the training nodes.* lr=1e"):
        wild.choose_rate([start(wild)], graph)
    for bad in ({"steps": 0}, {"lr": 0.0}, {"weight_decay": -1.0}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            TrainingOptions(**{"steps": 1, "lr": 0.1, "weight_decay": 0.0, **bad})  # type: ignore[arg-type]
