"""Sharpness: how far the training loss rises inside a ball around the weights, found by climbing."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args

from torch import Tensor, nn

from wtawp.analysis import LossOn, sharpness_over
from wtawp.core import Radius
from wtawp.experiments.measures.shared.interface import MeasureSpec, Result, TrainedModels, has_finite_weights, rounded
from wtawp.experiments.measures.shared.option_checks import check_choice, check_count, check_number


@dataclass(frozen=True, kw_only=True)
class SharpnessOptions:
    """Options of the measure.

    Attributes:
        radius: What the radius is relative to: "layer", "global" or "adaptive".
        rho: The largest radius.
        steps: Steps of the climb.
        layers: The layers whose weights may move.
    """

    radius: Radius = "layer"
    rho: float = 0.1
    steps: int = 50
    layers: str = "all"

    POINTS = 4  # radii at which the rise is measured, up to rho

    def __post_init__(self) -> None:
        check_choice("radius", self.radius, get_args(Radius))
        check_number("rho", self.rho, 0.0)
        check_count("steps", self.steps, 1)


def radii_up_to(rho: float, points: int) -> list[float]:
    """`points` equally spaced radii, the last of which is `rho`."""
    return [rho * (i + 1) / points for i in range(points)]


def rises(
    model: nn.Module,
    loss: Callable[[], Tensor],
    rhos: Sequence[float],
    *,
    radius: Radius,
    steps: int,
    layers: str = "all",
) -> list[float]:
    """The largest rise of the loss inside the ball of each radius; NaN for a model that diverged."""
    if not has_finite_weights(model):
        return [math.nan] * len(rhos)
    return sharpness_over(model, loss, rhos, radius=radius, steps=steps, layers=layers)


def run(trained: TrainedModels, options: SharpnessOptions) -> list[Result]:
    """The rise inside balls of a quarter, a half, three quarters and all of `rho`."""
    rhos = radii_up_to(options.rho, options.POINTS)
    results: list[Result] = []
    for model, split in zip(trained.models, trained.splits, strict=True):
        loss = LossOn(model.eval(), trained.data, split.train)
        values = rises(model, loss, rhos, radius=options.radius, steps=options.steps, layers=options.layers)
        results.append({"radius": options.radius, "rhos": rhos, "rises": [rounded(value) for value in values]})
    return results


MEASURE = MeasureSpec(
    name="sharpness",
    options=SharpnessOptions,
    run=run,
    levels=frozenset({"node", "graph"}),
    smoke_options={"steps": 10},
)
