"""The spectrum of the Hessian of the training loss: its largest eigenvalues, and its trace."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from wtawp.analysis import LossOn, Trace, hessian_trace, top_eigenvalues
from wtawp.experiments.measures.shared.interface import MeasureSpec, Result, TrainedModels, has_finite_weights, rounded
from wtawp.experiments.measures.shared.option_checks import check_count


@dataclass(frozen=True, kw_only=True)
class SpectrumOptions:
    """Options of the measure.

    Attributes:
        top: How many of the largest eigenvalues.
        probes: Random vectors from which the trace is estimated.
    """

    top: int = 5
    probes: int = 30

    def __post_init__(self) -> None:
        check_count("top", self.top, 1)
        check_count("probes", self.probes, 2)


def eigenvalues_and_trace(
    model: nn.Module, loss: Callable[[], Tensor], *, top: int, probes: int = 30
) -> tuple[list[float], Trace]:
    """The `top` largest eigenvalues and the estimated trace; NaN for a model that diverged."""
    if not has_finite_weights(model):
        return [math.nan] * top, Trace(math.nan, math.nan)
    return top_eigenvalues(model, loss, k=top), hessian_trace(model, loss, seed=0, probes=probes)


def run(trained: TrainedModels, options: SpectrumOptions) -> list[Result]:
    """Eigenvalues and trace of each model."""
    results: list[Result] = []
    for model, split in zip(trained.models, trained.splits, strict=True):
        loss = LossOn(model.eval(), trained.data, split.train)
        values, trace = eigenvalues_and_trace(model, loss, top=options.top, probes=options.probes)
        results.append({
            "top": [rounded(value) for value in values],
            "trace": rounded(trace.mean), "trace_error": rounded(trace.standard_error),
        })  # fmt: skip
    return results


MEASURE = MeasureSpec(
    name="spectrum",
    options=SpectrumOptions,
    run=run,
    levels=frozenset({"node", "graph"}),
    smoke_options={"probes": 2},
)
