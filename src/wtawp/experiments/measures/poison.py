"""Poisoning: the flips that other models are then trained with, found on surrogates, one set for each split."""

from typing import Any

from wtawp.experiments.measures.shared.flips import (
    AttackOptions,
    check_attack,
    find_flips,
    flips_to_result,
    parse_attack_options,
)
from wtawp.experiments.measures.shared.interface import MeasureSpec, Result, TrainedModels


def _parse(**options: Any) -> AttackOptions:
    return parse_attack_options("poisoning", options)


def run(trained: TrainedModels, options: AttackOptions) -> list[Result]:
    """The flips found on each surrogate."""
    return [flips_to_result(flips, trained.data) for flips in find_flips(trained, options)]


MEASURE = MeasureSpec(
    name="poison",
    options=_parse,
    run=run,
    smoke_options={"budget": 4, "steps": 10, "samples": 100},
    check=check_attack,
    cost=lambda options: options.attack.cost,
)
