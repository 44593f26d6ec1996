from collections.abc import Callable
from statistics import mean

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.attacks import minmax, pgd, project_onto_budget, random_flips
from wtawp.base import AttackError, rng
from wtawp.graphs import citation, stratified
from wtawp.models import GCN, GCNSVD, MLP
from wtawp.training import evaluate, fit

SIZE, CLASSES = 12, 3
ALL = torch.triu_indices(SIZE, SIZE, 1)
TRAIN, NODES = torch.tensor([1, 4, 5, 9]), torch.tensor([0, 2, 3, 7, 11])


def naive(data: Data, model: GCN, budget: int, steps: int, step_size: float) -> set[tuple[int, int]]:
    """Dense matrices, autograd through all, torch's Adam; the largest flips at the end."""
    adjacency = torch.zeros(SIZE, SIZE, dtype=torch.float64)
    adjacency[data.edge_index[0], data.edge_index[1]] = 1
    weights = [w.detach().clone().requires_grad_() for c in model.convs for w in (c.weight, c.bias)]
    optimizer = torch.optim.Adam(weights, lr=0.05, weight_decay=1e-3)
    p = torch.zeros(ALL.shape[1], dtype=torch.float64)

    def loss(p: Tensor, nodes: Tensor) -> Tensor:
        upper = torch.zeros(SIZE, SIZE, dtype=torch.float64).index_put(tuple(ALL), p)
        a = adjacency + (1 - 2 * adjacency) * (upper + upper.T) + torch.eye(SIZE, dtype=torch.float64)
        scale = a.sum(1) ** -0.5
        hat = scale[:, None] * a * scale
        hidden = (hat @ data.x @ weights[0] + weights[1]).relu()
        return F.cross_entropy((hat @ hidden @ weights[2] + weights[3])[nodes], data.y[nodes])

    for t in range(steps):
        optimizer.zero_grad()
        loss(p, TRAIN).backward()
        optimizer.step()
        p.requires_grad_()
        (slope,) = torch.autograd.grad(loss(p, NODES), p)
        p = project_onto_budget(p.detach() + step_size / (t + 1) ** 0.5 * slope, budget)
    best = p.topk(budget).indices
    return {tuple(pair) for pair in ALL[:, best[p[best] > 0]].T.tolist()}


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_it_is_descent_and_ascent_in_turn(
    plain: bool, seed: int, small: Callable[..., Data], small_victim: Callable[..., GCN], black_box: type[nn.Module]
) -> None:
    data, model = small(seed), small_victim(seed)
    flips = minmax(
        data, black_box(model) if plain else model, budget=4, nodes=NODES, train=TRAIN, labels=data.y, seed=0, steps=12,
        lr=0.05, weight_decay=1e-3, samples=0, step_size=5.0,
    )  # fmt: skip
    expected = naive(data, model, 4, 12, 5.0)
    assert {tuple(pair) for pair in flips.pairs.T.tolist()} == expected
    assert len(expected) > 1


def test_the_victim_is_left_as_it_was_and_its_learning_matters(
    small: Callable[..., Data], small_victim: Callable[..., GCN], black_box: type[nn.Module]
) -> None:
    data, model = small(2), small_victim(2)
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for v in (model, black_box(model)):
        flips = minmax(data, v, budget=4, nodes=NODES, labels=data.y, seed=0, steps=30, lr=0.1, step_size=5.0)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert model.training
    still = pgd(data, model, budget=4, nodes=NODES, labels=data.y, seed=0, steps=30, step_size=5.0)
    assert not torch.equal(flips.pairs, still.pairs)
    assert dict(flips.provenance)["lr"] == "0.1"


def test_models_trained_on_its_graph_do_worse_than_on_random_flips() -> None:
    data = citation(seed=0, num_nodes=150, num_words=50, topicality=0.6)
    split = stratified(data.y, seed=0, train=0.2, val=0.2)

    def fresh(seed: int) -> GCN:
        return GCN(50, 7, hidden=(16,), generator=rng("fresh", seed))

    def loss_after(graph: Data) -> float:
        losses = []
        for seed in range(3):
            model = fresh(seed)
            fit(model, graph, split, seed=seed, epochs=60)
            losses.append(evaluate(model, graph, split.test)[0])
        return mean(losses)

    surrogate = fresh(9)
    fit(surrogate, data, split, seed=9, epochs=60)
    flips = minmax(data, surrogate, budget=0.1, nodes=split.test, train=split.train, labels=data.y, seed=0, steps=60)
    at_random = [loss_after(random_flips(data, budget=0.1, seed=s).apply(data)) for s in range(2)]
    assert loss_after(flips.apply(data)) > max(at_random) + 0.05


def test_a_defence_can_learn_as_well(small: Callable[..., Data]) -> None:
    data = small(3)
    model = GCNSVD(4, CLASSES, hidden=(5,), rank=4, generator=rng("svd")).double()
    flips = minmax(data, model, budget=3, nodes=NODES, labels=data.y, seed=0, steps=5, step_size=5.0)
    assert 0 < len(flips) <= 3


def test_what_cannot_be_attacked_is_said_so(small: Callable[..., Data], small_victim: Callable[..., GCN]) -> None:
    data = small()
    options = {"budget": 1, "nodes": NODES, "labels": data.y, "seed": 0, "steps": 2}
    with pytest.raises(ValueError, match="no weights that can learn"):
        minmax(data, small_victim().requires_grad_(False), **options)  # type: ignore[arg-type]
    with pytest.raises(AttackError, match="ignores the graph"):
        minmax(data, MLP(4, CLASSES, hidden=(5,), generator=rng("mlp")).double(), **options)  # type: ignore[arg-type]
    wrong: list[tuple[dict[str, object], str]] = [
        ({"lr": 0.0}, "lr must be positive"), ({"weight_decay": -1.0}, "weight_decay"), ({"steps": 0}, "steps"),
        ({"train": torch.tensor([SIZE])}, "nodes must lie in"),
    ]  # fmt: skip
    for change, message in wrong:
        with pytest.raises(ValueError, match=message):
            minmax(data, small_victim(), **{**options, **change})  # type: ignore[arg-type]
