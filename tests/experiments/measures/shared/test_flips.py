from dataclasses import replace
from typing import Any

import pytest
import torch

from wtawp.attacks.spec import AttackRequest, Stage
from wtawp.base import AttackError
from wtawp.experiments.measures.shared.flips import (
    LABELS,
    NODES,
    check_attack,
    find_flips,
    parse_attack_options,
)
from wtawp.experiments.measures.shared.interface import TrainedModels
from wtawp.experiments.spec import Setting
from wtawp.graphs import EdgeFlips, load, stratified

BASE = Setting(dataset="wine", epochs=20)


def test_attacks_without_a_model_flip_the_same_edges_for_all_models_of_a_split(trained: TrainedModels) -> None:
    for attack in ("dice", "random"):
        options = parse_attack_options("poisoning", {"attack": attack, "budget": 0.1, "nodes": "all"})
        first, second, other = find_flips(trained, options)
        assert torch.equal(first.pairs, second.pairs)
        assert not torch.equal(first.pairs, other.pairs)


@pytest.mark.parametrize("kind", LABELS)
def test_labels_are_those_asked_for(trained: TrainedModels, kind: str) -> None:
    requests: list[AttackRequest] = []

    def attack(request: AttackRequest) -> list[EdgeFlips]:
        requests.append(request)
        return [EdgeFlips(torch.zeros(2, 0, dtype=torch.int64), 178)] * 3

    options = parse_attack_options("evasion", {"attack": "dice", "budget": 0.1, "nodes": "train", "labels": kind})
    find_flips(trained, replace(options, attack=replace(options.attack, run_many=attack)))
    nodes, labels = requests[0].nodes, requests[0].labels
    y, guessed = trained.data.y, trained.models[0].eval()(trained.data.x, trained.data.edge_index).argmax(1)
    train = trained.splits[0].train
    assert torch.equal(nodes[0], train)
    assert not torch.equal(y, guessed)
    wanted = {"true": y, "predicted": guessed, "self-training": guessed.index_put((train,), y[train])}[kind]
    assert torch.equal(labels[0], wanted)


def test_the_named_nodes_are_parts_of_the_split() -> None:
    split = stratified(load("wine").y, seed=0)
    sizes = {name: len(nodes(split)) for name, nodes in NODES.items()}
    assert sizes["unlabelled"] == sizes["all"] - sizes["train"]
    assert sizes["train+test"] == sizes["train"] + sizes["test"]
    assert sizes["all"] == 178


@pytest.mark.parametrize(
    ("attack", "given", "expected"),
    [
        ("meta-pgd", {}, {"steps": 1, "samples": 0, "training_steps": 1, "block_size": 20_000}),
        ("meta-pgd", {"block_size": 300_000, "steps": 9}, {"block_size": 300_000, "training_steps": 1, "steps": 1}),
        ("meta-pgd", {"lr": 0.1, "weight_decay": 0.0}, {"lr": 0.1, "weight_decay": 0.0, "block_size": 20_000}),
        ("meta-pgd", {"lr": 0.1, "training_steps": 7}, {"lr": 0.1, "training_steps": 7, "steps": 1}),
        ("prbcd", {}, {"steps": 1, "block_size": 250_000}),
        ("minmax", {"lr": 0.5}, {"steps": 1, "lr": 0.5}),
        ("strongest", {}, {"steps": 1, "restarts": 1}),
    ],
)
def test_a_check_before_training_has_the_blocks_and_trainings_of_the_attack(
    attack: str, given: dict[str, Any], expected: dict[str, Any], trained: TrainedModels
) -> None:
    calls: list[dict[str, Any]] = []

    def run_many(_: AttackRequest, **options: Any) -> list[EdgeFlips]:
        calls.append(options)
        return [EdgeFlips(torch.zeros(2, 0, dtype=torch.int64), 178)]

    stage: Stage = "evasion" if attack == "strongest" else "poisoning"
    options = parse_attack_options(stage, {"attack": attack, "budget": 0.1, **given})
    options = replace(options, attack=replace(options.attack, run_many=run_many))
    check_attack(options, trained.models[0], trained.data, trained.splits[0])
    assert calls[0].items() >= expected.items()
    assert "training_steps" not in calls[0] or "training_steps" in expected
    assert "block_size" not in calls[0] or attack != "strongest"


def test_a_learning_rate_that_learns_nothing_is_refused_before_training(trained: TrainedModels) -> None:
    options = parse_attack_options("poisoning", {"attack": "meta-pgd", "budget": 0.1, "lr": 1e9})
    with pytest.raises(AttackError, match="do not lower the loss of the training nodes"):
        check_attack(options, trained.models[0], trained.data, trained.splits[0])
