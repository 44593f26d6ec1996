from dataclasses import replace

import pytest
import torch

from wtawp.attacks.registry import AttackRequest
from wtawp.experiments.measures.shared.flips import (
    LABELS,
    NODES,
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
