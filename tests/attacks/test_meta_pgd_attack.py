"""Meta-PGD: the best flip of all, strength against a defence, and refusals."""

from collections.abc import Callable
from statistics import mean

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from wtawp.attacks import attack, meta_pgd, metattack, random_flips, self_training_labels
from wtawp.attacks.relaxed import target_of
from wtawp.attacks.unrolled_training import RATES, TrainingOptions, UnrolledTraining
from wtawp.base import AttackError, rng
from wtawp.graphs import EdgeFlips, Split, citation, stratified
from wtawp.models import GCN, GNNGuard
from wtawp.training import evaluate, fit, fit_many

TRAIN, NODES = torch.tensor([1, 4, 5, 9]), torch.tensor([0, 2, 3, 7, 11])
FEW = {"budget": 2, "nodes": NODES, "train": TRAIN, "seed": 0, "steps": 3, "training_steps": 3, "samples": 2}


def test_one_flip_is_among_the_best_of_all_when_the_model_is_trained_on_each(
    small: Callable[..., Data], small_victim: Callable[..., GCN]
) -> None:
    data, victim = small(), small_victim().eval()
    training, aim = (target_of(data, [nodes], [data.y], "ce") for nodes in (TRAIN, NODES))
    options = TrainingOptions(steps=5, lr=0.2, weight_decay=5e-4)
    unrolled = UnrolledTraining(victim, training, aim, options, seed=0)
    starts = [unrolled.first_weights(rng("start", i)) for i in range(2)]

    def loss(flips: EdgeFlips) -> float:
        edges = flips.apply(data).edge_index
        graph = edges, torch.ones(edges.shape[1], dtype=torch.float64)
        return mean(unrolled.damage(unrolled.train(start, graph)[-1], graph)[1] for start in starts)

    every = [EdgeFlips.of(pair[:, None], 12) for pair in torch.triu_indices(12, 12, 1).T]
    losses = sorted(map(loss, every), reverse=True)
    common = {"nodes": NODES, "labels": data.y, "train": TRAIN, "training_steps": 5, "lr": 0.2, "loss": "ce"}
    flips = meta_pgd(data, victim, budget=1, seed=0, steps=15, samples=5, **common)  # type: ignore[arg-type]
    assert loss(flips) >= losses[6]  # of 66


def accuracies_after(
    model: Callable[[int], nn.Module], data: Data, split: Split, found: dict[str, EdgeFlips]
) -> dict[str, float]:
    """The mean accuracy on all nodes but the training nodes, of two models trained on the graph after each attack."""
    rest, after = torch.cat([split.val, split.test]), {}
    for name, flips in found.items():
        graph, trained = flips.apply(data), [model(init) for init in range(2)]
        fit_many(trained, graph, [split] * 2, seeds=[0, 1], epochs=25, lr=0.05)
        after[name] = mean(evaluate(each, graph, rest)[1] for each in trained)
    return after


def graph_and_split(seed: int, size: int) -> tuple[Data, Split]:
    data = citation(seed=seed, num_nodes=size, num_words=100, topicality=0.4, homophily=0.9)
    return data, stratified(data.y, seed=seed, train=0.3, val=0.1)


def test_models_trained_on_its_graph_do_worse_than_on_random_flips() -> None:
    data, split = graph_and_split(0, 80)

    def gcn(seed: int) -> GCN:
        return GCN(100, 7, hidden=(8,), generator=rng("init", seed))

    rest = torch.cat([split.val, split.test])
    flips = meta_pgd(
        data, gcn(9), budget=0.2, nodes=rest, labels=data.y, seed=0, train=split.train, steps=10, training_steps=10,
        samples=0, step_size=0.5, loss="ce",
    )  # fmt: skip
    found = {"ours": flips, **{f"random {i}": random_flips(data, budget=0.2, seed=i) for i in range(2)}}
    after = accuracies_after(gcn, data, split, found)
    assert after["ours"] < min(after["random 0"], after["random 1"]) - 0.03


@pytest.mark.slow
def test_against_a_defence_it_beats_random_flips_and_on_average_those_of_metattack() -> None:
    def guard(seed: int) -> GNNGuard:
        return GNNGuard(100, 7, hidden=(8,), generator=rng("init", seed))

    after: dict[str, list[float]] = {"ours": [], "transferred": [], "random": []}
    for seed in range(3):
        data, split = graph_and_split(seed, 80)
        common = {"budget": 0.2, "train": split.train, "labels": data.y, "seed": seed}
        rest, victim = torch.cat([split.val, split.test]), guard(9)
        fit(victim, data, split, seed=9, epochs=25, lr=0.05)
        found = {
            "ours": meta_pgd(data, victim, nodes=rest, steps=15, training_steps=10, samples=1, **common),  # type: ignore[arg-type]
            "transferred": metattack(data, steps=20, **common),  # type: ignore[arg-type]
            "random": random_flips(data, budget=0.2, seed=seed),
        }
        for name, accuracy in accuracies_after(guard, data, split, found).items():
            after[name].append(accuracy)
    assert mean(after["ours"]) < mean(after["random"]) - 0.05
    assert mean(after["ours"]) <= mean(after["transferred"])


def test_its_options_are_in_the_provenance_and_the_victim_keeps_mode_and_weights(
    small: Callable[..., Data], small_victim: Callable[..., GCN], black_box: type[nn.Module]
) -> None:
    data, model = small(), small_victim()
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    one, other = (meta_pgd(data, v, labels=data.y, **FEW) for v in (model, black_box(model)))  # type: ignore[arg-type]
    assert torch.equal(one.pairs, other.pairs)  # it needs nothing but the forward pass
    assert dict(one.provenance).items() >= {"training_steps": "3", "step_size": "0.2"}.items()
    rate = float(dict(one.provenance)["lr"])
    assert rate in RATES
    again = meta_pgd(data, model, labels=data.y, lr=rate, **FEW)  # type: ignore[arg-type]
    assert torch.equal(again.pairs, one.pairs)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training
    assert all(p.grad is None for p in model.parameters())


def test_by_name_the_nodes_are_the_training_nodes_and_the_others_are_attacked(
    small: Callable[..., Data], small_victim: Callable[..., GCN]
) -> None:
    data, model = small(), small_victim().eval()
    rest = torch.tensor([i for i in range(12) if i not in TRAIN.tolist()])
    labels = self_training_labels(model(data.x, data.edge_index).detach(), data.y, TRAIN)
    how = {"budget": 2, "seed": 0, "steps": 3, "training_steps": 3}
    by_name = attack(data, model, method="meta-pgd", nodes=TRAIN, **how)  # type: ignore[arg-type]
    direct = meta_pgd(data, model, train=TRAIN, nodes=rest, labels=labels, **how)  # type: ignore[arg-type]
    assert isinstance(by_name, EdgeFlips)
    assert torch.equal(by_name.pairs, direct.pairs)
    with pytest.raises(ValueError, match="needs the training nodes"):
        attack(data, model, method="meta-pgd", budget=2)


def test_what_cannot_be_attacked_is_said_so(
    small: Callable[..., Data], small_victim: Callable[..., GCN], weightless: nn.Module, blind: nn.Module
) -> None:
    data = small()
    wrong: list[tuple[dict[str, object], str]] = [
        ({"steps": 0}, "steps"), ({"samples": -1}, "samples"), ({"step_size": 2.0}, "step_size"), ({"lr": -1.0}, "lr"),
        ({"training_steps": 0}, "training_steps"), ({"block_size": 3}, "block_size"), ({"loss": "hinge"}, "loss"),
        ({"labels": data.y + 7}, "labels go up to"), ({"train": torch.tensor([12])}, "nodes must lie in"),
    ]  # fmt: skip
    for change, message in wrong:
        with pytest.raises(ValueError, match=message):
            meta_pgd(data, small_victim(), **{"labels": data.y, **FEW, **change})  # type: ignore[arg-type]
    with pytest.raises(AttackError, match="takes no edge_weight"):
        meta_pgd(data, weightless, labels=data.y, **FEW)  # type: ignore[arg-type]

    class Deaf(nn.Module):
        """Learns from the features alone."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3).double()

        def forward(self, x: torch.Tensor, _edges: torch.Tensor, edge_weight: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
            logits: torch.Tensor = self.linear(x)
            return logits

    with pytest.raises(AttackError, match="ignores the graph"):
        meta_pgd(data, Deaf(), labels=data.y, **FEW)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no weights that can learn"):
        meta_pgd(data, blind, labels=data.y, **FEW)  # type: ignore[arg-type]
