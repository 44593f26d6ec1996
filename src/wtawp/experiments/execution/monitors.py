"""What is recorded of models while they train, beside losses: one monitor for each model of a stack."""

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
    """Is called with a model after each epoch, and collects curves."""

    history: dict[str, list[float]]

    def __call__(self, model: nn.Module, epoch: int) -> None: ...


_MONITORS: dict[str, Callable[[Setting, Data, Split], Monitor]] = {
    "saturation": lambda setting, data, split: SaturationMonitor(data, split.train, setting.awp),
    "sharpness": lambda _, data, split: SharpnessMonitor(data, split.train, rhos=RADII),
}
CURVES = frozenset(("history", *_MONITORS))  # values of `Setting.keep` that ask for curves


def monitors_of(setting: Setting, data: Data, splits: list[Split], device: str) -> list[list[Monitor]]:
    """For each kind of monitor that the setting asks for, one monitor for each model."""
    on_device = copy.copy(data).to(device)
    kinds = [make for name, make in _MONITORS.items() if name in setting.keep]
    return [[make(setting, on_device, split) for split in splits] for make in kinds]


def observer(monitors: list[list[Monitor]]) -> Callable[[list[nn.Module], int], None] | None:
    """The callback for `fit_many` that calls every monitor; None if there are none."""

    def observe(models: list[nn.Module], epoch: int) -> None:
        for of_a_kind in monitors:
            for monitor, model in zip(of_a_kind, models, strict=True):
                monitor(model, epoch)

    return observe if monitors else None
