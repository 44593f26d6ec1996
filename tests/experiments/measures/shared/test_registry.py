from dataclasses import replace

import pytest

from wtawp.experiments.execution.checks import check_plan
from wtawp.experiments.measures.shared.interface import MeasureSpec
from wtawp.experiments.measures.shared.registry import measure_names, measure_spec, register_measure
from wtawp.experiments.plans.robustness import certifying, evading
from wtawp.experiments.spec import Cell, MeasureRequest, Plan, PlanError, Setting

BASE = Setting(dataset="wine", epochs=20)


def test_every_module_of_the_package_is_a_measure_of_its_name() -> None:
    assert set(measure_names()) >= {"bound", "certificate", "evasion", "landscape", "poison", "smoothness"}
    assert [measure_spec(name).name for name in measure_names()] == list(measure_names())


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ValueError, match="there is a measure called 'bound' already"):
        register_measure(MeasureSpec(name="bound", options=dict, run=lambda *_: []))


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (certifying("edges", 0), "samples must be a whole number"),
        (certifying("features", 10), "for binary ones"),
        (
            MeasureRequest("certificat"),
            "a measure is one of .*certificate, .*spectrum.*, got 'certificat'",
        ),
        (
            MeasureRequest("evasion", (("attack", "pdg"), ("budget", 0.1))),
            "attack must be one of random, dice, .* got 'pdg'",
        ),
        (MeasureRequest("evasion", (("attack", "pgd"),)), "needs a budget: a share"),
        (evading("pgd", 0.1, step=3), "pgd has no option 'step'; it has .*attack, budget"),
        (evading("dice", 0.1, steps=3), "dice has no option 'steps'"),
        (evading("metattack", 0.1), "metattack attacks the training, not a trained model; poison with it"),
        (evading("pgd", 0.1, nodes="tests"), "nodes must be one of train, .* got 'tests'"),
        (evading("pgd", 0.1, labels="guessed"), "labels must be one of true, .* got 'guessed'"),
    ],
)
def test_what_is_no_measure_is_refused_before_anything_is_trained(wanted: MeasureRequest, words: str) -> None:
    plan = Plan("mine", "", (Cell("", "", replace(BASE, measures=(wanted,))),))
    with pytest.raises(PlanError, match=words):
        check_plan(plan)
    if wanted.name == "evasion" and "metattack" not in words:
        with pytest.raises(PlanError, match=words):
            check_plan(Plan("mine", "", (Cell("", "", replace(BASE, poison=wanted)),)))
