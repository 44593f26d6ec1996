from collections.abc import Callable

import numpy as np
import pytest

from wtawp.analysis import LossOn, hessian_trace, top_eigenvalues
from wtawp.experiments.measures.shared.interface import Result, TrainedModels
from wtawp.experiments.measures.shared.registry import run_measure
from wtawp.experiments.measures.spectrum import MEASURE
from wtawp.experiments.spec import MeasureRequest

WANTED = MeasureRequest("spectrum", (("top", 2), ("probes", 4)))


def test_eigenvalues_and_trace_are_those_of_analysis(untrained: TrainedModels) -> None:
    for model, split, result in zip(untrained.models, untrained.splits, run_measure(WANTED, untrained), strict=True):
        loss = LossOn(model.eval(), untrained.data, split.train)
        assert result["top"] == pytest.approx(top_eigenvalues(model, loss, k=2), rel=1e-3)
        assert result["trace"] == pytest.approx(hessian_trace(model, loss, seed=0, probes=4).mean, rel=1e-3)
        assert result["trace_error"] > 0


def test_dropout_does_not_reach_the_measure(untrained: TrainedModels) -> None:
    untrained.models[0].train()
    assert run_measure(WANTED, untrained) == run_measure(WANTED, untrained)


def test_bad_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"top must be a whole number >= 1, got 1\.5"):
        MEASURE.parse({"top": 1.5})


def test_a_model_that_diverged_spoils_no_other(beside_diverged: Callable[..., tuple[Result, ...]]) -> None:
    diverged, beside, alone = beside_diverged(MeasureRequest("spectrum", (("top", 1), ("probes", 2))))
    assert np.isnan(np.hstack([diverged[name] for name in ("top", "trace")])).all()
    assert beside == alone
