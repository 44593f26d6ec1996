import math
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from wtawp.experiments.measures.shared.interface import MeasureSpec, TrainedModels, has_finite_weights, rounded
from wtawp.graphs import load


@dataclass(frozen=True, kw_only=True)
class Options:
    size: int
    name: str = "x"


SPEC = MeasureSpec(name="toy", options=Options, run=lambda *_: [])


def test_options_are_parsed_and_what_is_unknown_or_missing_is_named() -> None:
    assert SPEC.parse({"size": 3}) == Options(size=3)
    with pytest.raises(ValueError, match="toy has no option 'sise'; it has name, size"):
        SPEC.parse({"sise": 3})
    with pytest.raises(ValueError, match="toy needs the option 'size'"):
        SPEC.parse({})


def test_seeds_are_those_of_the_trainings() -> None:
    trained = TrainedModels([], load("karate"), "karate", [], [(0, 0), (2, 5)])
    assert trained.seeds == [0, 2005]


def test_a_diverged_model_is_noticed_and_values_are_rounded() -> None:
    model = nn.Linear(2, 2)
    assert has_finite_weights(model)
    nn.init.constant_(model.weight, math.inf)
    assert not has_finite_weights(model)
    assert rounded(torch.tensor(1 / 3, dtype=torch.float64)) == 0.33333333
