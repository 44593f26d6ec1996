from collections.abc import Callable
from importlib import import_module
from itertools import combinations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn.models import basic_gnn

from wtawp.attacks import fga, random_flips
from wtawp.attacks.gradient import FactoredVictims
from wtawp.attacks.losses import LOSSES
from wtawp.attacks.pgd_attack import pgd, pgd_many
from wtawp.attacks.relaxed import RelaxedFlips
from wtawp.base import AttackError, isolated_rng, rng
from wtawp.graphs import EdgeFlips, citation, load, stratified
from wtawp.models import GCN, MLP
from wtawp.training import evaluate, fit

SIZE, CLASSES = 12, 3


NODES = torch.tensor([0, 2, 3, 7, 11])


@pytest.mark.parametrize("kind", LOSSES)
def test_thin_factors_and_weights_of_all_pairs_lead_to_the_same_flips(
    kind: str, small: Callable[..., Data], small_victim: Callable[..., GCN], black_box: type[nn.Module]
) -> None:
    data, model = small(3), small_victim(3)
    options = {"budget": 5, "nodes": NODES, "labels": data.y, "seed": 0, "steps": 20, "loss": kind, "step_size": 5.0}
    one, other = (pgd(data, v, **options) for v in (model, black_box(model)))  # type: ignore[arg-type]
    assert torch.equal(one.pairs, other.pairs)


def test_one_flip_is_nearly_the_best_of_all_single_flips(
    small: Callable[..., Data], small_victim: Callable[..., GCN]
) -> None:
    data, model = small(4), small_victim(4)
    flips = pgd(data, model, budget=1, nodes=NODES, labels=data.y, seed=0, steps=50, step_size=5.0)
    losses = {}
    for i, j in combinations(range(SIZE), 2):
        flipped = EdgeFlips(torch.tensor([[i], [j]]), SIZE).apply(data)
        losses[i, j] = evaluate(model, flipped, NODES)[0]
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


def test_losses_that_leave_lost_nodes_alone_take_more_than_the_cross_entropy() -> None:
    data = citation(seed=3, num_nodes=200, num_words=60, topicality=0.6)
    split = stratified(data.y, seed=0, train=0.2, val=0.2)
    model = GCN(60, 7, hidden=(16,), generator=rng("init"))
    fit(model, data, split, seed=0, epochs=60)
    left = {}
    for kind in ("ce", "tanh_margin", "masked_ce"):
        flips = pgd(data, model, budget=0.1, nodes=split.test, labels=data.y, seed=0, steps=40, loss=kind)  # type: ignore[arg-type]
        left[kind] = evaluate(model, flips.apply(data), split.test)[1]
    assert left["tanh_margin"] < left["ce"] - 0.02
    assert left["masked_ce"] < left["ce"]


def test_the_best_draw_is_that_of_the_lowest_accuracy_and_for_the_cross_entropy_that_of_the_highest_loss(
    small: Callable[..., Data], small_victim: Callable[..., GCN], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, model = small(8), small_victim(8).eval()
    for kind, selects_by_accuracy in (("ce", False), ("tanh_margin", True)):
        drawn: list[tuple[float, float]] = []
        logits_of = FactoredVictims.flipped_logits

        def spying(self: FactoredVictims, flips: RelaxedFlips) -> Tensor:
            logits = logits_of(self, flips)  # noqa: B023, called before the next turn
            drawn.append((float(self.target.lost(logits)[0]), float(self.target.losses(logits)[0])))  # noqa: B023
            return logits

        monkeypatch.setattr(FactoredVictims, "flipped_logits", spying)
        options = {"budget": 4, "nodes": torch.arange(SIZE), "labels": data.y, "seed": 0, "steps": 10, "loss": kind}
        flips = pgd(data, model, **options)  # type: ignore[arg-type]
        monkeypatch.undo()
        assert len(drawn) == 21
        with torch.no_grad():
            logits = model(data.x, flips.apply(data).edge_index)
        lost = float((logits.argmax(1) != data.y).double().mean())
        best = max(drawn) if selects_by_accuracy else max(drawn, key=lambda each: each[1])
        assert lost == pytest.approx(best[0])


def test_frozen_weights_and_models_of_others_can_be_attacked(
    small: Callable[..., Data], small_victim: Callable[..., GCN]
) -> None:
    data = small(5)
    frozen = small_victim(5).requires_grad_(False)
    with isolated_rng("theirs"):
        theirs = basic_gnn.GCN(4, 5, 2, CLASSES).double()
    for model in (frozen, theirs):
        flips = pgd(data, model, budget=3, nodes=NODES, labels=data.y, seed=0, steps=20, step_size=5.0)
        model.eval()
        with torch.no_grad():
            clean, attacked = (
                F.cross_entropy(model(d.x, d.edge_index)[NODES], d.y[NODES]) for d in (data, flips.apply(data))
            )
        assert attacked > clean


def test_a_victim_that_gives_nothing_to_climb_is_said_so(
    small: Callable[..., Data],
    small_victim: Callable[..., GCN],
    black_box: type[nn.Module],
    blind: nn.Module,
    weightless: nn.Module,
    broken: nn.Module,
) -> None:
    data = small()
    dead = small_victim()
    nn.init.zeros_(dead.convs[1].weight)  # type: ignore[arg-type]
    mlp = MLP(4, CLASSES, hidden=(5,), generator=rng("mlp")).double()
    for model, message in [
        (dead, "zero for every pair"),
        (black_box(dead), "zero for every pair"),
        (blind, "ignores the graph"),
        (mlp, "ignores the graph"),
        (weightless, "takes no edge_weight"),
        (broken, "NaN or infinite logits"),
    ]:
        with pytest.raises(AttackError, match=message):
            pgd(data, model, budget=1, nodes=NODES, labels=data.y, seed=0, steps=2)
    nan = small_victim()
    nn.init.constant_(nan.convs[0].weight, float("nan"))  # type: ignore[arg-type]
    with pytest.raises(AttackError, match="NaN"):
        pgd(data, nan, budget=1, nodes=NODES, labels=data.y, seed=0)


def test_a_margin_that_is_lost_everywhere_is_flat(small: Callable[..., Data], small_victim: Callable[..., GCN]) -> None:
    data, model = small(), small_victim()
    with torch.no_grad():
        wrong = model.eval()(data.x, data.edge_index).argmin(1)
    with pytest.raises(AttackError, match="misclassified"):
        pgd(data, model, budget=1, nodes=NODES, labels=wrong, seed=0, loss="margin")


def test_victims_without_factors_are_for_small_graphs(blind: nn.Module) -> None:
    data = citation(seed=0, num_nodes=1001, num_words=4)
    with pytest.raises(AttackError, match="Blind shows no factors"):
        pgd(data, blind, budget=1, nodes=torch.tensor([0]), labels=data.y, seed=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": torch.full((SIZE,), CLASSES)}, "labels go up to 3, but the logits have 3 classes"),
        ({"labels": torch.full((SIZE,), -1)}, "must be known"),
        ({"labels": torch.zeros(3, dtype=torch.int64)}, "one for each node"),
        ({"nodes": torch.tensor([SIZE])}, "nodes must lie in 0 to 11"),
        ({"nodes": torch.zeros(SIZE, dtype=torch.bool)}, "nodes must hold one or more of the nodes"),
        ({"nodes": torch.tensor([0.0])}, "nodes must be indices"),
        ({"loss": "cw"}, "loss must be one of 'ce', 'masked_ce', 'margin'"),
        ({"steps": 0}, "steps must be >= 1"),
        ({"samples": -1}, "samples >= 0"),
        ({"step_size": 0.0}, "step_size must be positive"),
        ({"budget": 0}, "budget"),
    ],
)
def test_bad_arguments_are_refused(
    change: dict[str, object], message: str, small: Callable[..., Data], small_victim: Callable[..., GCN]
) -> None:
    data = small()
    options = {"budget": 1, "nodes": NODES, "labels": data.y, "seed": 0, **change}
    with pytest.raises(ValueError, match=message):
        pgd(data, small_victim(), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["ce", "margin", "tanh_margin", "masked_ce"])
@pytest.mark.parametrize("plain", [False, True])
def test_many_victims_get_the_flips_that_each_gets_alone(
    kind: str, plain: bool, small: Callable[..., Data], small_victim: Callable[..., GCN], black_box: type[nn.Module]
) -> None:
    data, seeds = small(6), [3, 1, 4]
    models = [black_box(small_victim(s)) if plain else small_victim(s) for s in range(3)]
    nodes, labels = [NODES, torch.arange(SIZE) > 3, torch.tensor([5])], [data.y, data.y.roll(1), data.y.flip(0)]
    told: list[float] = []
    options = {"budget": 4, "steps": 20, "loss": kind, "step_size": 5.0}
    together = pgd_many(
        data, models, nodes=nodes, labels=labels, seeds=seeds, progress=lambda share, _: told.append(share),
        **options,  # type: ignore[arg-type]
    )  # fmt: skip
    for found, model, at, y, seed in zip(together, models, nodes, labels, seeds, strict=True):
        alone = pgd(data, model, nodes=at, labels=y, seed=seed, **options)  # type: ignore[arg-type]
        assert torch.equal(found.pairs, alone.pairs)
        assert found.provenance == alone.provenance
    assert told == ([1 / 3, 2 / 3, 1.0] if plain else [1.0])


def test_in_single_precision_many_victims_fare_as_they_do_alone() -> None:
    data = citation(seed=1, num_nodes=150, num_words=40)
    models = [GCN(40, 7, hidden=(16,), generator=rng("float", s)) for s in range(3)]
    options = {"budget": 0.1, "steps": 40}
    together = pgd_many(data, models, nodes=[data.y >= 0] * 3, labels=[data.y] * 3, seeds=[0, 1, 2], **options)  # type: ignore[arg-type]
    for seed, (model, found) in enumerate(zip(models, together, strict=True)):
        alone = pgd(data, model, nodes=data.y >= 0, labels=data.y, seed=seed, **options)  # type: ignore[arg-type]
        losses = [evaluate(model, flips.apply(data), torch.arange(150))[0] for flips in (found, alone)]
        assert losses[0] == pytest.approx(losses[1], rel=0.01)  # sums are rounded otherwise, so a flip may differ


def test_one_node_s_margin_falls(small: Callable[..., Data], small_victim: Callable[..., GCN]) -> None:
    data, model = small(7), small_victim(7).eval()
    with torch.no_grad():
        logits = model(data.x, data.edge_index)
    right = logits.argmax(1)
    node = int((logits.max(1).values - logits.topk(2).values[:, 1]).argmax())

    def margin(graph: Data) -> float:
        with torch.no_grad():
            row = model(graph.x, graph.edge_index)[node]
        others = [row[c] for c in range(CLASSES) if c != right[node]]
        return float(row[right[node]] - max(others))

    for kind in ("ce", "margin"):
        flips = pgd(
            data, model, budget=2, nodes=torch.tensor([node]), labels=right, seed=0, steps=30, loss=kind, step_size=5.0
        )  # type: ignore[arg-type]
        assert margin(flips.apply(data)) < margin(data) - 0.01


def test_victims_that_do_not_go_together_are_refused(
    small: Callable[..., Data], small_victim: Callable[..., GCN], black_box: type[nn.Module]
) -> None:
    data, one = small(), small_victim()
    nodes, labels = [NODES, NODES], [data.y, data.y]
    for other in (small_victim(hidden=(6,)), small_victim(hidden=(5, 5)), black_box(small_victim())):
        with pytest.raises(ValueError, match="one architecture, but number 1"):
            pgd_many(data, [one, other], budget=1, nodes=nodes, labels=labels, seeds=[0, 1])
    with pytest.raises(ValueError, match="2 victims, got 2, 2, 1"):
        pgd_many(data, [one, one], budget=1, nodes=nodes, labels=labels, seeds=[0])
    with pytest.raises(ValueError, match="0 victims"):
        pgd_many(data, [], budget=1, nodes=[], labels=[], seeds=[])


@pytest.mark.parametrize("block", [1, 1 << 20])
def test_of_many_victims_the_one_that_cannot_be_attacked_is_named(
    block: int, monkeypatch: pytest.MonkeyPatch, small: Callable[..., Data], small_victim: Callable[..., GCN]
) -> None:
    monkeypatch.setitem(import_module("wtawp.attacks.gradient").BLOCK, "cpu", block)
    data, dead, nan = small(), small_victim(), small_victim()
    nn.init.zeros_(dead.convs[1].weight)  # type: ignore[arg-type]
    nn.init.constant_(nan.convs[0].weight, float("nan"))  # type: ignore[arg-type]
    for bad, message in ((dead, "a victim, number 1, ignores"), (nan, "a victim, number 1, returns NaN")):
        with pytest.raises(AttackError, match=message):
            pgd_many(
                data, [small_victim(), bad], budget=1, nodes=[NODES] * 2, labels=[data.y] * 2, seeds=[0, 1], steps=2
            )


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


def test_a_single_node_is_attacked_at_least_as_strongly_as_by_the_greedy_gradient() -> None:
    data, node = citation(seed=0, num_nodes=60, num_words=20), torch.tensor([7])
    victim = GCN(20, 7, hidden=(8,), generator=rng("victim"))
    how = {"budget": 5, "nodes": node, "labels": data.y, "seed": 0}

    def loss(changed: Data) -> float:
        with torch.no_grad():
            return float(F.cross_entropy(victim.eval()(changed.x, changed.edge_index)[node], data.y[node]))

    clean, found, greedy = (
        loss(each) for each in (data, pgd(data, victim, **how).apply(data), fga(data, victim, **how).apply(data))
    )
    assert clean < greedy <= found + 0.05
