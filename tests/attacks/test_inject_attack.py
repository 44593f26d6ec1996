"""Node injection against random injection, an exhaustive search, its limits and what it must refuse."""

from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE as PyGSAGE

from wtawp.attacks import inject_at_random, inject_nodes
from wtawp.base import AttackError, DataError, rng
from wtawp.graphs import InjectedNodes, citation, stratified
from wtawp.models import GAT, GCN, GIN, RGCN, GCNJaccard, GNNGuard, SimPGCN
from wtawp.training import evaluate, fit

DATA = citation(seed=0, num_nodes=60, num_words=20)
VICTIM = GCN(20, 7, hidden=(8,), generator=rng("victim"))
NODES = torch.arange(20)
HOW: dict[str, Any] = {"nodes": NODES, "labels": DATA.y, "seed": 0}
ONES = round(float(DATA.x.sum(1).mean()))


def margin_after(injected: InjectedNodes, victim: nn.Module = VICTIM, data: Data = DATA, at: Tensor = NODES) -> float:
    """The mean tanh margin of the attacked nodes, which the attack raises."""
    changed = injected.apply(data)
    scores, index = victim.eval()(changed.x, changed.edge_index)[at].log_softmax(1).detach(), data.y[at][:, None]
    margin = scores.scatter(1, index, -torch.inf).amax(1) - scores.gather(1, index)[:, 0]
    return float(margin.tanh().mean())


@pytest.mark.parametrize("budget", [1, 7, 0.1, 0.5])
@pytest.mark.parametrize("edges_per_node", [None, 1, 5])
def test_the_limits_are_kept(budget: float, edges_per_node: int | None) -> None:
    most = budget if isinstance(budget, int) else int(budget * 60)
    mean_degree = round(DATA.edge_index.shape[1] / 60)
    chosen = inject_nodes(DATA, VICTIM, budget=budget, edges_per_node=edges_per_node, rounds=3, steps=2, **HOW)
    drawn = inject_at_random(DATA, budget=budget, edges_per_node=edges_per_node, seed=0)
    assert 0 < len(chosen) <= most  # fewer if all attacked nodes are misclassified by then
    assert len(drawn) == most
    for injected in (chosen, drawn):
        assert injected.num_nodes == 60
        degrees = torch.bincount(injected.edges[0])
        assert degrees.tolist() == [edges_per_node or mean_degree] * len(injected)
        assert bool(((injected.x == 0) | (injected.x == 1)).all())
        assert int(injected.x.sum(1).max()) <= ONES


def test_other_features_stay_in_the_range_of_the_graph() -> None:
    data = DATA.clone()
    data.x = torch.randn(60, 20, generator=rng("x"))
    injected = inject_nodes(data, VICTIM, budget=6, steps=10, **HOW)
    assert bool((injected.x >= data.x.amin(0)).all())
    assert bool((injected.x <= data.x.amax(0)).all())
    reached = margin_after(injected, data=data)
    assert reached > max(margin_after(inject_at_random(data, budget=6, seed=s), data=data) for s in range(10))


def test_the_input_and_the_callers_random_state_are_left_alone() -> None:
    data, state = DATA.clone(), torch.get_rng_state()
    weights, mode = [p.clone() for p in VICTIM.parameters()], VICTIM.train().training
    inject_nodes(data, VICTIM, budget=3, steps=2, **HOW).apply(data)
    assert all(torch.equal(data[key], DATA[key]) for key in DATA.keys())  # noqa: SIM118
    assert torch.equal(torch.get_rng_state(), state)
    assert VICTIM.training == mode
    for now, before in zip(VICTIM.parameters(), weights, strict=True):
        assert torch.equal(now, before)
        assert now.grad is None


def test_the_same_seed_gives_the_same_nodes_and_another_gives_others() -> None:
    how = {"budget": 5, "nodes": NODES, "labels": DATA.y, "steps": 3}
    one, again, other = (inject_nodes(DATA, VICTIM, seed=seed, **how) for seed in (0, 0, 1))  # type: ignore[arg-type]
    assert torch.equal(one.x, again.x)
    assert torch.equal(one.edges, again.edges)
    assert one.provenance == again.provenance
    assert dict(one.provenance).items() >= {"attack": "inject", "budget": "5", "seed": "0"}.items()
    assert dict(other.provenance)["seed"] == "1"
    drawn = [inject_at_random(DATA, budget=5, seed=seed) for seed in (0, 0, 1)]
    assert torch.equal(drawn[0].edges, drawn[1].edges)
    assert not torch.equal(drawn[0].edges, drawn[2].edges)


def test_on_a_trained_gcn_it_is_far_stronger_than_random_injection() -> None:
    data = citation(seed=1, num_nodes=300, num_words=100)
    split = stratified(data.y, seed=0)
    victim = GCN(100, 7, hidden=(16,), generator=rng("init"))
    fit(victim, data, split, seed=0, epochs=100)
    clean = evaluate(victim, data, split.test)[1]
    injected = inject_nodes(data, victim, budget=0.05, nodes=split.test, labels=data.y, seed=0, rounds=5, steps=15)
    drawn = [evaluate(victim, inject_at_random(data, budget=0.05, seed=s).apply(data), split.test)[1] for s in range(5)]
    reached = evaluate(victim, injected.apply(data), split.test)[1]
    assert clean - reached > 0.05
    assert clean - reached > 2 * (clean - min(drawn))


def test_on_a_tiny_graph_it_is_among_the_best_of_all_injections_of_one_node() -> None:
    g = rng("tiny")
    data = Data(x=(torch.rand(6, 4, generator=g) < 0.5).float(), y=torch.tensor([0, 1, 0, 1, 0, 1]))
    data.edge_index = torch.tensor([[0, 1, 1, 2, 2, 3, 4, 5], [1, 0, 2, 1, 3, 2, 5, 4]])
    victim = GCN(4, 2, hidden=(4,), generator=g).eval()
    with torch.no_grad():
        data.y = victim(data.x, data.edge_index).argmax(1)  # every node is right on the clean graph
    ones, everybody = round(float(data.x.sum(1).mean())), torch.arange(6)
    values = []
    for ends in combinations(range(6), 2):
        for words in (w for size in range(1, ones + 1) for w in combinations(range(4), size)):
            x = torch.zeros(1, 4).index_fill(1, torch.tensor(words), 1.0)
            values.append(margin_after(InjectedNodes(x, torch.tensor([[0, 0], ends]), 6), victim, data, everybody))
    how = {"nodes": everybody, "labels": data.y, "seed": 0, "edges_per_node": 2}
    reached = margin_after(inject_nodes(data, victim, budget=1, **how), victim, data, everybody)  # type: ignore[arg-type]
    assert sum(value > reached + 1e-6 for value in values) <= len(values) // 10


@pytest.mark.parametrize("kind", [GAT, GIN, GNNGuard, RGCN, SimPGCN, GCNJaccard])
def test_other_models_and_defences_are_attacked_too(kind: Any) -> None:
    victim = kind(20, 7, generator=rng("victim")).eval()
    injected = inject_nodes(DATA, victim, budget=4, rounds=2, steps=3, loss="ce", **HOW)
    assert 0 < len(injected) <= 4  # fewer if all attacked nodes are misclassified by then
    none = InjectedNodes(DATA.x[:0], torch.zeros(2, 0, dtype=torch.int64), 60)
    assert margin_after(injected, victim) > margin_after(none, victim)


def test_a_model_without_edge_weights_is_attacked() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        victim = PyGSAGE(20, 8, num_layers=2, out_channels=7).eval()
    injected = inject_nodes(DATA, victim, budget=4, rounds=2, steps=10, **HOW)
    assert margin_after(injected, victim) > margin_after(inject_at_random(DATA, budget=4, seed=0), victim)


def test_it_stops_once_all_nodes_are_misclassified() -> None:
    victim = VICTIM.eval()
    with torch.no_grad():
        predicted = victim(DATA.x, DATA.edge_index).argmax(1)
    right = (predicted == DATA.y).nonzero()[:, 0][:1]
    how = {"labels": DATA.y, "seed": 0, "budget": 1.0, "rounds": 20, "steps": 10, "loss": "margin"}
    injected = inject_nodes(DATA, victim, nodes=right, **how)  # type: ignore[arg-type]
    assert len(injected) < 60
    changed = injected.apply(DATA)
    assert int(victim(changed.x, changed.edge_index)[right].argmax()) != int(DATA.y[right])
    wrong = (predicted != DATA.y).nonzero()[:, 0]
    with pytest.raises(AttackError, match="misclassifies all attacked nodes"):
        inject_nodes(DATA, victim, nodes=wrong, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0}, "budget given as a count must lie between 1 and the 60 nodes"),
        ({"budget": 0.001}, "0.001 of 60 nodes is less than one"),
        ({"edges_per_node": 0}, "edges_per_node must be a whole number from 1 to the 60 nodes, got 0"),
        ({"edges_per_node": 61}, "edges_per_node"),
        ({"rounds": 0}, "rounds must be a whole number >= 1"),
        ({"steps": 1.5}, "steps must be a whole number >= 1"),
        ({"loss": "cw"}, "loss must be one of"),
        ({"nodes": torch.tensor([60])}, "nodes must lie in 0 to 59"),
        ({"labels": torch.zeros(3)}, "labels must be whole numbers"),
    ],
)
def test_bad_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        inject_nodes(DATA, VICTIM, **{"budget": 3, **HOW, **options})


def test_graphs_and_victims_that_cannot_be_attacked_are_refused() -> None:
    class Undifferentiable(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            with torch.no_grad():
                return VICTIM(x, edge_index)  # type: ignore[no-any-return]

    class Blind(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # noqa: ARG002
            return x[:, :7] + torch.arange(7)  # of its own node alone

    for victim in (Undifferentiable(), Blind()):
        with pytest.raises(AttackError, match="inject_at_random needs no gradient"):
            inject_nodes(DATA, victim, budget=3, nodes=torch.arange(60), labels=DATA.y, seed=0)
    with pytest.raises(AttackError, match="needs a victim"):
        inject_nodes(DATA, "GCN", budget=3, **HOW)  # type: ignore[arg-type]
    for change, message in (
        ({"edge_weight": torch.ones(DATA.edge_index.shape[1])}, "edge_weight"),
        ({"x": DATA.x.to_sparse()}, "dense float matrix"),
        ({"x": DATA.x.long()}, "dense float matrix"),
        ({"edge_index": torch.tensor([[0], [1]])}, "undirected"),
    ):
        data = DATA.clone()
        for key, value in change.items():
            data[key] = value
        with pytest.raises(DataError, match=message):
            inject_at_random(data, budget=3, seed=0)
        with pytest.raises(DataError, match=message):
            inject_nodes(data, VICTIM, budget=3, **HOW)
