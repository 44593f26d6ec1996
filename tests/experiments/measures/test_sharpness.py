from collections.abc import Callable

import numpy as np
import pytest

from wtawp.analysis import LossOn, sharpness
from wtawp.experiments.measures.shared.interface import Result, TrainedModels
from wtawp.experiments.measures.shared.registry import run_measure
from wtawp.experiments.measures.sharpness import MEASURE
from wtawp.experiments.spec import MeasureRequest


def test_the_rises_are_those_of_analysis_at_four_radii(untrained: TrainedModels) -> None:
    results = run_measure(MeasureRequest("sharpness", (("radius", "global"), ("rho", 0.4))), untrained)
    for model, split, result in zip(untrained.models, untrained.splits, results, strict=True):
        loss = LossOn(model.eval(), untrained.data, split.train)
        assert result["rhos"] == [0.1, 0.2, pytest.approx(0.3), 0.4]
        assert result["rises"][0] == pytest.approx(sharpness(model, loss, rho=0.1, radius="global"), rel=1e-4)
        assert result["rises"] == sorted(result["rises"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"radius": "layers"}, "radius must be one of layer, global, adaptive"),
        ({"steps": True}, "steps must be a whole number >= 1, got True"),
        ({"rho": -1.0}, "rho must be a finite number >= 0, got -1.0"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MEASURE.parse(options)


def test_a_model_that_diverged_spoils_no_other(beside_diverged: Callable[..., tuple[Result, ...]]) -> None:
    diverged, beside, alone = beside_diverged(MeasureRequest("sharpness", (("steps", 2),)))
    assert np.isnan(np.hstack([diverged[name] for name in ("rises",)])).all()
    assert beside == alone
