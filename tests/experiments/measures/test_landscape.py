from collections.abc import Callable

import numpy as np
import pytest

from wtawp.analysis import LossOn, loss_along_random_directions
from wtawp.experiments.measures.landscape import MEASURE
from wtawp.experiments.measures.shared.interface import Result, TrainedModels
from wtawp.experiments.measures.shared.registry import run_measure
from wtawp.experiments.spec import MeasureRequest


def test_the_mean_line_is_that_of_analysis(untrained: TrainedModels) -> None:
    wanted = MeasureRequest("landscape", (("scale", "unit"), ("points", 5), ("directions", 2)))
    for model, split, result in zip(untrained.models, untrained.splits, run_measure(wanted, untrained), strict=True):
        loss = LossOn(model.eval(), untrained.data, split.train)
        lines = loss_along_random_directions(
            model, loss, [-1.0, -0.5, 0.0, 0.5, 1.0], seed=0, num_directions=2, scale="unit"
        )
        assert result["distances"] == [-1.0, -0.5, 0.0, 0.5, 1.0]
        assert result["mean"] == pytest.approx(lines.mean(0).tolist(), rel=1e-4)
        assert result["mean"][2] == pytest.approx(result["loss"], rel=1e-4)
        assert all(low <= high for low, high in zip(result["low"], result["high"], strict=True))
        assert result["gaps"] == 0


def test_bad_options_are_refused() -> None:
    with pytest.raises(ValueError, match="points must be a whole number >= 2"):
        MEASURE.parse({"points": 1})


def test_a_model_that_diverged_spoils_no_other(beside_diverged: Callable[..., tuple[Result, ...]]) -> None:
    diverged, beside, alone = beside_diverged(MeasureRequest("landscape", (("points", 3), ("directions", 1))))
    assert np.isnan(np.hstack([diverged[name] for name in ("loss", "mean")])).all()
    assert beside == alone
