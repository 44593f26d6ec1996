"""Evasion: the accuracy of trained models on a graph that was attacked to mislead them."""

from typing import Any

from wtawp.experiments.measures.shared.flips import (
    AttackOptions,
    check_attack,
    find_flips,
    flips_to_result,
    parse_attack_options,
    surrogate_models,
)
from wtawp.experiments.measures.shared.interface import MeasureSpec, Result, TrainedModels
from wtawp.models.evaluation import refuse_cached
from wtawp.training import evaluate


def _parse(**options: Any) -> AttackOptions:
    """The test nodes and their true labels are the defaults."""
    return parse_attack_options("evasion", options)


def run(trained: TrainedModels, options: AttackOptions) -> list[Result]:
    """The test accuracy of each model after the attack, and the flips."""
    for model in trained.models:
        refuse_cached(model)  # it would have the accuracy of the first graph on every other
    surrogates = surrogate_models(trained) if options.attack.uses_surrogate or not options.adaptive else None
    if options.adaptive or surrogates is None:
        flips = find_flips(trained, options, surrogates)
    else:
        flips = find_flips(surrogates, options)
    results: list[Result] = []
    for model, split, flipped in zip(trained.models, trained.splits, flips, strict=True):
        _, accuracy = evaluate(model, flipped.apply(trained.data), split.test)
        results.append({"accuracy": accuracy, **flips_to_result(flipped, trained.data)})
    return results


MEASURE = MeasureSpec(
    name="evasion",
    options=_parse,
    run=run,
    smoke_options={"budget": 4, "steps": 10, "samples": 100},
    check=check_attack,
    cost=lambda options: options.attack.cost,
)
