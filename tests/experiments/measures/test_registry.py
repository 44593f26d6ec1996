from dataclasses import replace
from pathlib import Path

import pytest
import torch

from wtawp.base import rng
from wtawp.experiments.execution.training import PlanError, check, train
from wtawp.experiments.measures.registry import ATTACKS, LABELS, NODES, Trained, find_flips, flips_of, measure
from wtawp.experiments.plans.robustness import POISONING, certifying, evading, poisoning
from wtawp.experiments.spec.plan import Cell, Measure, Plan, Run, Setting
from wtawp.graphs import EdgeFlips, load, stratified, undirected_pairs
from wtawp.models import GCN
from wtawp.training import fit_many

BASE = Setting(dataset="wine", epochs=20)


@pytest.fixture(scope="module")
def trained() -> Trained:
    data = load("wine")
    splits = [stratified(data.y, seed=split) for split in (0, 0, 1)]
    models = [GCN(13, 3, hidden=(8,), generator=rng("init", i)) for i in range(3)]
    fit_many(models, data, splits, seeds=[0, 1, 2], epochs=20)
    return Trained(models, data, "wine", splits, [(0, 0), (0, 1), (1, 0)])


def test_every_attack_has_a_protocol_for_poisoning() -> None:
    assert set(ATTACKS) == set(POISONING)


def test_an_evasion_is_the_accuracy_on_the_graph_with_the_flips_it_tells(trained: Trained) -> None:
    found = measure(evading("pgd", 0.1, steps=5), trained)
    for model, split, result in zip(trained.models, trained.splits, found, strict=True):
        flips = flips_of(result)
        attacked = flips.apply(trained.data)
        right = model.eval()(attacked.x, attacked.edge_index).argmax(1) == attacked.y
        assert result["accuracy"] == pytest.approx(float(right[split.test].float().mean()))
        assert (result["added"], result["removed"]) == (flips.num_added(trained.data), flips.num_removed(trained.data))
        assert len(flips) <= 0.1 * undirected_pairs(trained.data).shape[1]
        told = dict(flips.provenance)
        assert (told["dataset"], told["nodes"], told["labels"], told["attack"]) == ("wine", "test", "true", "pgd")
    assert [(dict(flips_of(r).provenance)["split"], dict(flips_of(r).provenance)["init"]) for r in found] == [
        ("0", "0"), ("0", "1"), ("1", "0"),
    ]  # fmt: skip
    assert found == measure(evading("pgd", 0.1, steps=5), trained)


def test_attacks_without_a_model_flip_the_same_edges_for_all_models_of_a_split(trained: Trained) -> None:
    for attack in ("dice", "random"):
        first, second, other = find_flips(trained, attack, 0.1, nodes="all")
        assert torch.equal(first.pairs, second.pairs)
        assert not torch.equal(first.pairs, other.pairs)


def test_flips_that_mislead_a_plain_gcn_are_another_attack(trained: Trained) -> None:
    own, transferred = (
        measure(evading("pgd", 0.1, steps=5, **how), trained) for how in ({}, {"adaptive": False})
    )  # fmt: skip
    assert [r["flips"] for r in own] != [r["flips"] for r in transferred]


@pytest.mark.parametrize("kind", LABELS)
def test_labels_are_those_asked_for(trained: Trained, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def attack(_: object, nodes: object, labels: list[torch.Tensor], *__: object) -> list[object]:
        seen.extend([nodes, labels])
        return [EdgeFlips(torch.zeros(2, 0, dtype=torch.int64), 178)] * 3

    monkeypatch.setitem(ATTACKS, "dice", attack)
    find_flips(trained, "dice", 0.1, nodes="train", labels=kind)
    nodes, labels = seen
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


def test_records_hold_what_was_measured_and_a_poisoned_run_needs_its_flips() -> None:
    setting = replace(BASE, measures=(evading("dice", 0.05), evading("dice", 0.2)))
    (record,) = train((Run(setting, 0, 0),), device="cpu")
    assert record.measured is not None
    assert [dict(flips_of(m).provenance)["budget"] for m in record.measured] == ["0.05", "0.2"]
    told = dict(flips_of(record.measured[0]).provenance)
    assert (told["model"], told["awp"], told["split"]) == ("GCN", "None", "0")
    poisoned = replace(BASE, poison=poisoning("dice", 0.2))
    (failed,) = train((Run(poisoned, 0, 0),), device="cpu")
    assert failed.status == "failed"
    assert "the attack failed that should poison split 0" in str(failed.error)
    clean, changed = (
        train((Run(one, 0, 0),), flips, device="cpu")[0]
        for one, flips in ((BASE, None), (poisoned, flips_of(record.measured[1])))
    )
    assert clean.loss != changed.loss
    assert "flips" in changed.versions
    assert "flips" not in clean.versions


def test_a_certificate_is_kept_with_its_votes(empty_home: Path) -> None:
    setting = Setting(dataset="citation", epochs=2, measures=(certifying("edges", 30),))
    (record,) = train((Run(setting, 0, 0),), device="cpu")
    assert record.measured is not None, record.error
    assert record.measured[0]["samples"] == 30
    assert 0 <= record.measured[0]["certified"][0][0] <= record.measured[0]["accuracy"] <= 1
    assert len(list((empty_home / "votes").iterdir())) == 1


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (certifying("edges", 0), "samples must be a whole number"),
        (certifying("features", 10), "for binary ones"),
        (
            Measure("certificat"),
            "a measure is one of certificate, evasion, .*spectrum, got 'certificat'",
        ),
        (Measure("evasion", (("attack", "pdg"), ("budget", 0.1))), "attack must be one of random, dice, .* got 'pdg'"),
        (Measure("evasion", (("attack", "pgd"),)), "needs a budget: a share"),
        (evading("pgd", 0.1, step=3), "pgd has no option 'step'; it has .*attack, budget"),
        (evading("dice", 0.1, steps=3), "dice has no option 'steps'"),
        (evading("metattack", 0.1), "metattack attacks the training, not a trained model; poison with it"),
        (evading("pgd", 0.1, nodes="tests"), "nodes must be one of train, .* got 'tests'"),
        (evading("pgd", 0.1, labels="guessed"), "labels must be one of true, .* got 'guessed'"),
    ],
)
def test_what_is_no_measure_is_refused_before_anything_is_trained(wanted: Measure, words: str) -> None:
    plan = Plan("mine", "", (Cell("", "", replace(BASE, measures=(wanted,))),))
    with pytest.raises(PlanError, match=words):
        check(plan)
    if wanted.name == "evasion" and "metattack" not in words:
        with pytest.raises(PlanError, match=words):
            check(Plan("mine", "", (Cell("", "", replace(BASE, poison=wanted)),)))
