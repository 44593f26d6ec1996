"""Refuse a plan before anything is trained: data that are not there, options that no model, attack or measure takes."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch_geometric.data import Data

from wtawp.base import DataError, WtawpError
from wtawp.certificates import Noise, noisy_training
from wtawp.certificates.noise import Augment
from wtawp.core import select
from wtawp.experiments.execution.building import build_model, data_of, split_of
from wtawp.experiments.measures.shared.registry import check_measure, measure_spec
from wtawp.experiments.spec import Plan, PlanError, Run, Setting
from wtawp.graphs import fetch_dataset, is_collection
from wtawp.models.inputs import arguments_of, check_kind


def check_plan(plan: Plan) -> None:
    """Refuse a plan that cannot be run.

    Args:
        plan: The plan.

    Raises:
        PlanError: If a setting cannot be trained or measured; it names the setting and the reason.
    """
    checked: set[tuple[object, ...]] = set()

    def once(check: Callable[[], None], *about: object) -> None:
        if about not in checked:
            check()
            checked.add(about)

    for setting in dict.fromkeys(cell.setting for cell in plan.cells):
        try:
            _check_setting(setting, once)
        except (WtawpError, ValueError, TypeError) as error:
            raise PlanError(f"{plan.name}: {setting} cannot be trained: {error}") from error


def _check_setting(setting: Setting, once: Callable[..., None]) -> None:
    if not Path(setting.dataset).suffix:
        fetch_dataset(setting.dataset)
    data = data_of(setting, 0)
    split = split_of(data, 0)
    model = build_model(Run(setting, 0, 0), data)
    _check_level(setting, model, data)
    if setting.awp is not None and not setting.awp.is_plain:
        select(model, setting.awp.layers)
    if (augment := noise_augmentation(setting)) is not None:
        augment(data, 0)
    surrogate = setting.surrogate
    for owner in (setting,) if surrogate is None else (setting, surrogate):
        for wanted in owner.measures:

            def check(owner: Setting = owner, wanted: object = wanted) -> None:
                check_measure(wanted, build_model(Run(owner, 0, 0), data), data, split)  # type: ignore[arg-type]

            once(check, owner.dataset, owner.model, owner.options, wanted)

    @torch.no_grad()
    def run_forward() -> None:
        model.eval()(*arguments_of(data))  # a model may need features that the graph does not have

    once(run_forward, setting.dataset, setting.model, setting.options)


def _check_level(setting: Setting, model: nn.Module, data: Data) -> None:
    """The model must classify what the data are, nodes or graphs, and so must everything that is asked of it."""
    check_kind(model, data)
    if is_collection(data):
        for_nodes = [m.name for m in setting.measures if "graph" not in measure_spec(m.name).levels]
        for_nodes += [name for name in ("noise", "poison") if getattr(setting, name) is not None]
        if for_nodes:
            raise DataError(f"{setting.dataset} is a list of graphs, and {for_nodes[0]} is for the nodes of one graph")
    elif setting.batch_size is not None:
        raise DataError(f"batch_size counts graphs, and {setting.dataset} is one graph; leave it out")


def noise_augmentation(setting: Setting) -> Augment | None:
    """Noise in training: a function of the epoch alone, so that it does not depend on which runs train together.

    Args:
        setting: The setting.

    Returns:
        What `fit_many` takes as `augment`; None if the setting has no noise.

    Raises:
        PlanError: If the noise is described by anything but "noise" with its options.
    """
    if setting.noise is None:
        return None
    if setting.noise.name != "noise":
        raise PlanError(f"noise must be a measure called noise, got {setting.noise.name!r}")
    options = dict(setting.noise.options)
    return noisy_training(**{str(options.pop("on")): Noise(**options)}, seed=0)  # type: ignore[arg-type]
