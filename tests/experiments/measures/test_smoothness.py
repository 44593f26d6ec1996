from collections.abc import Callable

import numpy as np
import pytest

from wtawp.analysis import input_gradient_norms
from wtawp.experiments.measures.shared.interface import Result, TrainedModels
from wtawp.experiments.measures.shared.registry import run_measure
from wtawp.experiments.measures.smoothness import MEASURE
from wtawp.experiments.spec import MeasureRequest

WANTED = MeasureRequest("smoothness", (("wrt", "features"), ("samples", 3)))


def test_mean_and_spread_are_those_of_the_norms_of_analysis(untrained: TrainedModels) -> None:
    for model, split, result in zip(untrained.models, untrained.splits, run_measure(WANTED, untrained), strict=True):
        norms = input_gradient_norms([model.eval()], untrained.data, split.train, wrt="features", seed=0, samples=3)
        assert result["norm"] == pytest.approx(float(norms.mean()), rel=1e-4)
        assert result["spread"] == pytest.approx(float(norms.std(correction=0)), abs=1e-8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "smoothness needs the option 'wrt'"),
        ({"wrt": "features", "sigma": 1.0}, "smoothness has no option 'sigma'; it has definition, noise, samples, wrt"),
        ({"wrt": "labels"}, "wrt must be one of adjacency, features, got 'labels'"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MEASURE.parse(options)


def test_a_model_that_diverged_spoils_no_other(beside_diverged: Callable[..., tuple[Result, ...]]) -> None:
    diverged, beside, alone = beside_diverged(MeasureRequest("smoothness", (("wrt", "features"), ("samples", 2))))
    assert np.isnan(np.hstack([diverged[name] for name in ("norm", "spread")])).all()
    assert beside == alone
