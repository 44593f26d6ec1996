import pytest

from wtawp.experiments.measures.shared.flips import flips_from_result
from wtawp.experiments.measures.shared.interface import TrainedModels
from wtawp.experiments.measures.shared.registry import run_measure
from wtawp.experiments.plans.robustness import evading
from wtawp.experiments.spec import Setting
from wtawp.graphs import undirected_pairs

BASE = Setting(dataset="wine", epochs=20)


def test_an_evasion_is_the_accuracy_on_the_graph_with_the_flips_it_tells(trained: TrainedModels) -> None:
    found = run_measure(evading("pgd", 0.1, steps=5), trained)
    for model, split, result in zip(trained.models, trained.splits, found, strict=True):
        flips = flips_from_result(result)
        attacked = flips.apply(trained.data)
        right = model.eval()(attacked.x, attacked.edge_index).argmax(1) == attacked.y
        assert result["accuracy"] == pytest.approx(float(right[split.test].float().mean()))
        assert (result["added"], result["removed"]) == (flips.num_added(trained.data), flips.num_removed(trained.data))
        assert len(flips) <= 0.1 * undirected_pairs(trained.data).shape[1]
        told = dict(flips.provenance)
        assert (told["dataset"], told["nodes"], told["labels"], told["attack"]) == ("wine", "test", "true", "pgd")
    origins = [dict(flips_from_result(r).provenance) for r in found]
    assert [(origin["split"], origin["init"]) for origin in origins] == [
        ("0", "0"), ("0", "1"), ("1", "0"),
    ]  # fmt: skip
    assert found == run_measure(evading("pgd", 0.1, steps=5), trained)


def test_flips_that_mislead_a_plain_gcn_are_another_attack(trained: TrainedModels) -> None:
    own, transferred = (
        run_measure(evading("pgd", 0.1, steps=5, **how), trained) for how in ({}, {"adaptive": False})
    )  # fmt: skip
    assert [r["flips"] for r in own] != [r["flips"] for r in transferred]
