"""The landscape of the training loss along random directions through the weights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor, nn

from wtawp.analysis import LossOn, loss_along_random_directions, num_non_finite
from wtawp.analysis.landscape import Scale
from wtawp.experiments.measures.shared.interface import MeasureSpec, Result, TrainedModels, rounded
from wtawp.experiments.measures.shared.option_checks import check_choice, check_count, check_number


@dataclass(frozen=True, kw_only=True)
class LandscapeOptions:
    """Options of the measure.

    Attributes:
        scale: The length of a direction: "unit", or that of each "layer" or "filter".
        reach: The largest distance from the weights, in lengths of the direction.
        points: Distances at which the loss is evaluated.
        directions: Random directions, the same ones for all models.
    """

    scale: Scale = "layer"
    reach: float = 1.0
    points: int = 21
    directions: int = 10

    def __post_init__(self) -> None:
        check_choice("scale", self.scale, get_args(Scale))
        check_number("reach", self.reach, 0.0)
        check_count("points", self.points, 2)
        check_count("directions", self.directions, 1)


def losses_along_lines(
    model: nn.Module, loss: Callable[[], Tensor], distances: Sequence[float], *, directions: int, scale: Scale
) -> Tensor:  # -> [directions, distances]
    """The loss at each distance along each of the random directions."""
    return loss_along_random_directions(model, loss, distances, seed=0, num_directions=directions, scale=scale)


def run(trained: TrainedModels, options: LandscapeOptions) -> list[Result]:
    """Mean and quartiles over the directions, at each distance."""
    distances = torch.linspace(-options.reach, options.reach, options.points).tolist()
    results: list[Result] = []
    for model, split in zip(trained.models, trained.splits, strict=True):
        loss = LossOn(model.eval(), trained.data, split.train)
        lines = losses_along_lines(model, loss, distances, directions=options.directions, scale=options.scale)
        quartiles = torch.quantile(lines, torch.tensor([0.25, 0.75], dtype=lines.dtype), dim=0)
        curves = {"mean": lines.mean(0), "low": quartiles[0], "high": quartiles[1]}
        with torch.no_grad():
            loss_at_weights = rounded(loss())
        results.append({
            "scale": options.scale, "distances": distances, "loss": loss_at_weights, "gaps": num_non_finite(lines),
            **{name: [rounded(value) for value in curve] for name, curve in curves.items()},
        })  # fmt: skip
    return results


MEASURE = MeasureSpec(
    name="landscape",
    options=LandscapeOptions,
    run=run,
    levels=frozenset({"node", "graph"}),
    smoke_options={"directions": 2},
)
