import pytest
import torch
from torch_geometric.data import Data

from wtawp.attacks import attacked_by_prbcd, prbcd
from wtawp.base import rng
from wtawp.graphs import Split, citation, stratified
from wtawp.models import GCN
from wtawp.training import evaluate, fit


def small(seed: int) -> tuple[Data, Split, GCN]:
    data = citation(seed=seed, num_nodes=150, num_words=60, topicality=0.5, homophily=0.9)
    model = GCN(60, 7, hidden=(16,), generator=rng("init", seed))
    return data, stratified(data.y, seed=seed, train=0.5, val=0.1), model


def trained(seed: int, epochs: int, **options: float) -> tuple[Data, Split, GCN]:
    """Against attacks if options are given, plainly otherwise."""
    data, split, model = small(seed)
    chosen = {"nodes": split.train, "labels": data.y, "seed": seed, "loss": "ce", "block_size": 3000, **options}
    attack = attacked_by_prbcd(model, **chosen) if options else None  # type: ignore[arg-type]
    fit(model, data, split, seed=seed, epochs=epochs, augment=attack)
    return data, split, model


def lost(data: Data, split: Split, model: GCN) -> float:
    """What an attack on the test nodes adds to their cross-entropy."""
    options = {"labels": data.y, "seed": 0, "loss": "ce", "steps": 20, "block_size": 3000, "samples": 3}
    flips = prbcd(data, model, budget=0.2, nodes=split.test, **options)  # type: ignore[arg-type]
    return evaluate(model, flips.apply(data), split.test)[0] - evaluate(model, data, split.test)[0]


def test_attacked_in_training_it_loses_less_to_an_evasion_attack() -> None:
    for seed in range(2, 4):
        plain, adversarial = trained(seed, 100), trained(seed, 100, budget=0.2, steps=8, every=4)
        assert lost(*adversarial) < lost(*plain)


def test_the_same_seed_gives_the_same_weights_and_leaves_the_random_state_alone() -> None:
    state = torch.get_rng_state()
    options = {"budget": 0.1, "steps": 2, "every": 2, "warm_up": 1}
    one, same, other = (dict(trained(0, 6, **o)[2].named_parameters()) for o in (options, options, {}))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(p, same[name]) for name, p in one.items())
    assert not all(torch.equal(p, other[name]) for name, p in one.items())


def test_the_graph_is_attacked_every_so_many_epochs_after_warming_up() -> None:
    data, split, model = small(0)
    options = {"budget": 0.1, "nodes": split.train, "labels": data.y, "seed": 0, "steps": 2, "block_size": 3000}
    augment = attacked_by_prbcd(model, every=3, warm_up=2, **options)  # type: ignore[arg-type]
    seen = [augment(data, epoch) for epoch in range(9)]
    assert [any(d is e for e in seen[:i]) for i, d in enumerate(seen)] == [False, True, *[False, True, True] * 2, False]
    assert seen[0] is data
    assert all(d.x is data.x and d.edge_index.shape != data.edge_index.shape for d in seen[2:])


def test_bad_arguments_say_what_is_wrong() -> None:
    data, split, model = small(0)
    for change in ({"every": 0}, {"warm_up": -1}):
        with pytest.raises(ValueError, match="every must be >= 1 and warm_up >= 0"):
            attacked_by_prbcd(model, budget=0.1, nodes=split.train, labels=data.y, seed=0, **change)  # type: ignore[arg-type]
