from dataclasses import replace

import pytest
import torch

from wtawp.base import AttackError, rng
from wtawp.experiments.measures import targeted
from wtawp.experiments.measures.shared.flips import flips_from_result
from wtawp.experiments.measures.shared.interface import TrainedModels
from wtawp.experiments.measures.shared.registry import check_measure, run_measure
from wtawp.experiments.measures.targeted import chosen_targets
from wtawp.experiments.plans.robustness import targeting
from wtawp.experiments.spec import MeasureRequest
from wtawp.models import GCN, MLP


def test_targets_are_right_nodes_of_the_largest_the_smallest_and_random_margins() -> None:
    own = torch.arange(1.0, 21.0)
    logits = torch.stack([own, torch.zeros(20)], 1)
    logits[3] = torch.tensor([0.0, 1.0])  # wrong
    labels, nodes = torch.zeros(20, dtype=torch.int64), torch.arange(2, 20)
    chosen = chosen_targets(logits, labels, nodes, 8, rng("x")).tolist()
    assert chosen[:4] == [19, 18, 4, 2]
    assert len(set(chosen)) == 8
    assert set(chosen) <= set(range(2, 20)) - {3}
    assert sorted(chosen_targets(logits, labels, nodes, 99, rng("x")).tolist()) == sorted(set(range(2, 20)) - {3})


@pytest.mark.parametrize(("attack", "budget"), [("nettack", None), ("fga", None), ("fga", 2)])
def test_the_accuracy_is_that_of_the_targets_each_on_its_own_attacked_graph(
    trained: TrainedModels, attack: str, budget: int | None
) -> None:
    some = replace(
        trained, models=trained.models[:2], splits=trained.splits[:2], run_ids=trained.run_ids[:2], model="GCN"
    )
    wanted = targeting(attack, budget, 4)
    results = run_measure(wanted, some)
    degree = torch.bincount(trained.data.edge_index[0], minlength=178)
    for model, split, result in zip(some.models, some.splits, results, strict=True):
        assert len(result["targets"]) == 4
        is_right = []
        for each in result["targets"]:
            node, flips = each["node"], flips_from_result(each)
            assert node in split.test
            assert len(flips) <= (int(degree[node]) + 2 if budget is None else budget)
            changed = flips.apply(trained.data)
            is_right.append(
                int(model.eval()(changed.x, changed.edge_index)[node].argmax()) == int(trained.data.y[node])
            )
            origin = dict(flips.provenance)
            assert (origin["attack"], origin["node"], origin["model"]) == (attack, str(node), "GCN")
        assert [each["is_right"] for each in result["targets"]] == is_right
        assert result["accuracy"] == sum(is_right) / 4
    assert results == run_measure(wanted, some)


def test_a_target_without_a_flip_counts_as_right_and_its_error_is_kept(trained: TrainedModels) -> None:
    one = replace(trained, models=trained.models[:1], splits=trained.splits[:1], run_ids=trained.run_ids[:1])
    (result,) = run_measure(targeting("nettack", 1, 2, likelihood_cutoff=1e-12), one)
    assert result["accuracy"] == 1.0
    assert all("no flip" in each["no_flip"] for each in result["targets"])


def test_a_failed_attack_does_not_count_as_robustness(trained: TrainedModels, monkeypatch: pytest.MonkeyPatch) -> None:
    one = replace(trained, models=trained.models[:1], splits=trained.splits[:1], run_ids=trained.run_ids[:1])
    whole = targeted.find_flips
    monkeypatch.setattr(targeted, "find_flips", lambda *a: [AttackError("flat"), *whole(*a)[1:]])
    (result,) = run_measure(targeting("fga", 3, 4), one)
    counted = [each["is_right"] for each in result["targets"] if "error" not in each]
    assert (len(counted), result["targets"][0]["error"]) == (3, "flat")
    assert result["accuracy"] == sum(counted) / 3
    monkeypatch.setattr(targeted, "find_flips", lambda *_: [AttackError("flat")] * 4)
    with pytest.raises(AttackError, match="fga fails on all 4 targets, first with: flat"):
        run_measure(targeting("fga", 3, 4), one)


def test_wrong_options_are_refused(trained: TrainedModels) -> None:
    data, split = trained.data, trained.splits[0]
    model = GCN(13, 3, hidden=(8,), generator=rng("init"))
    check_measure(targeting("nettack", None, 4), model, data, split)
    for options, message in (
        ({}, "needs an attack"),
        ({"attack": "dice"}, "dice attacks a whole graph, not single nodes"),
        ({"attack": "metattack"}, "metattack attacks a whole graph"),
        ({"attack": "fga", "budget": 0.1}, "budget must be a whole number >= 1"),
        ({"attack": "fga", "targets": 0}, "targets must be a whole number >= 1"),
        ({"attack": "fga", "steps": 3}, "fga has no option 'steps'; it has attack, budget, direct, loss, targets"),
    ):
        with pytest.raises(ValueError, match=message):
            check_measure(MeasureRequest("targeted", tuple(options.items())), model, data, split)
    with pytest.raises(AttackError, match="ignores the graph"):
        check_measure(targeting("fga", 1, 4), MLP(13, 3, generator=rng("init")), data, split)
