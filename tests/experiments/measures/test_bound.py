import pytest

from wtawp.analysis import bound_over_rho
from wtawp.experiments.measures.bound import MEASURE
from wtawp.experiments.measures.shared.interface import TrainedModels
from wtawp.experiments.measures.shared.registry import run_measure
from wtawp.experiments.spec import MeasureRequest


def test_the_terms_are_those_of_analysis(untrained: TrainedModels) -> None:
    results = run_measure(MeasureRequest("bound", (("points", 2), ("rho", 1.0))), untrained)
    model, split = untrained.models[0], untrained.splits[0]
    at = bound_over_rho(model.eval(), untrained.data, split.train, [0.01, 1.0])
    assert results[0]["rhos"] == [0.01, 1.0]
    assert results[0]["total"] == pytest.approx([a.bound.total for a in at], rel=1e-4)
    assert results[0]["train_loss"] == pytest.approx(at[0].train_loss, rel=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delta": 1.0}, r"delta must lie in \(0, 1\)"),
        ({"delta": "x"}, r"delta must lie in \(0, 1\), got 'x'"),
        ({"rho": 0.001}, r"least must be at most rho, got 0\.01 and 0\.001"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MEASURE.parse(options)
