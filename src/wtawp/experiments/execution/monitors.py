"""Monitors that record curves of models while they are trained: one monitor for each model of a stack."""

import copy
from collections.abc import Callable
from typing import Protocol

from torch import nn
from torch_geometric.data import Data

from wtawp.analysis import SaturationMonitor, SharpnessMonitor
from wtawp.core import Radius
from wtawp.experiments.spec import Setting
from wtawp.graphs import Split

RADII: dict[Radius, float] = {"layer": 0.1, "adaptive": 2.0}  # of the balls in which sharpness is measured


class Monitor(Protocol):
    """Is called with a model after each epoch, and collects curves.

    Attributes:
        history: The curves by name, with one value for each epoch.
    """

    history: dict[str, list[float]]

    def __call__(self, model: nn.Module, epoch: int) -> None:
        """Record the model after an epoch."""
        ...


_MONITORS: dict[str, Callable[[Setting, Data, Split], Monitor]] = {
    "saturation": lambda setting, data, split: SaturationMonitor(data, split.train, setting.awp),
    "sharpness": lambda _, data, split: SharpnessMonitor(data, split.train, rhos=RADII),
}
CURVES = frozenset(("history", *_MONITORS))  # values of `Setting.keep` that ask for curves


def monitors_of(setting: Setting, data: Data, splits: list[Split], device: str) -> list[list[Monitor]]:
    """Make the monitors that a setting asks for in `keep`.

    Args:
        setting: The setting.
        data: The graph.
        splits: The split of each model.
        device: "cpu" or "cuda", the device of the models.

    Returns:
        For each kind of monitor, one monitor for each model.
    """
    on_device = copy.copy(data).to(device)
    kinds = [make for name, make in _MONITORS.items() if name in setting.keep]
    return [[make(setting, on_device, split) for split in splits] for make in kinds]


def observer(monitors: list[list[Monitor]]) -> Callable[[list[nn.Module], int], None] | None:
    """Make the argument `observe` of `fit_many`, which calls every monitor.

    Args:
        monitors: The monitors that `monitors_of` made.

    Returns:
        A function of the models and the epoch; None if there are no monitors.
    """

    def observe(models: list[nn.Module], epoch: int) -> None:
        for kind in monitors:
            for monitor, model in zip(kind, models, strict=True):
                monitor(model, epoch)

    return observe if monitors else None
