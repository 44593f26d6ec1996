from dataclasses import dataclass, make_dataclass, replace
from functools import partial

import pytest

from wtawp.experiments.execution.checks import check_plan
from wtawp.experiments.measures.shared import registry
from wtawp.experiments.measures.shared.interface import MeasureSpec, Result, TrainedModels
from wtawp.experiments.measures.shared.registry import measure_names, measure_spec, options_of, register_measure
from wtawp.experiments.plans.robustness import certifying, evading
from wtawp.experiments.spec import Cell, MeasureRequest, Plan, PlanError, Setting, source_digest
from wtawp.experiments.spec.sources import MEASURE_REFERENCES

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


@dataclass(frozen=True, kw_only=True)
class NormOptions:
    order: float = 2.0


def norms(trained: TrainedModels, options: NormOptions) -> list[Result]:
    return [{"norm": options.order} for _ in trained.models]


def test_the_code_of_a_registered_measure_is_part_of_requests_and_not_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {})
    register_measure(MeasureSpec(name="weight_norm", options=NormOptions, run=partial(norms)))
    (wanted,) = replace(BASE, measures=(MeasureRequest("weight_norm", (("order", 1.0),)),)).measures
    assert dict(wanted.options) == {"order": 1.0, "code": source_digest(f"{__name__}:norms")}
    assert options_of(wanted) == NormOptions(order=1.0)
    named_code = make_dataclass("Options", [("code", str)])
    with pytest.raises(ValueError, match="the option code of 'other' is the hash of its source"):
        register_measure(MeasureSpec(name="other", options=named_code, run=norms))
    MEASURE_REFERENCES.pop("weight_norm")
