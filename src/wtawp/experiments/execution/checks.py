"""Refuse a plan before anything is trained: missing data, options that no model, attack or measure accepts."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.base import DataError, WtawpError
from wtawp.certificates import Noise, noisy_training
from wtawp.certificates.noise import Augment
from wtawp.core import select
from wtawp.experiments.execution.building import build_model, data_of, default_split, split_of
from wtawp.experiments.measures.shared.registry import check_measure, measure_spec
from wtawp.experiments.spec import Measure, Plan, PlanError, Run, Setting
from wtawp.graphs import fetch_dataset, is_collection
from wtawp.models.calls import arguments_of, check_initialized, checked_output
from wtawp.models.inputs import check_kind


def check_plan(plan: Plan) -> None:
    """Refuse a plan that cannot be run.

    Args:
        plan: The plan.

    Raises:
        PlanError: If a setting cannot be trained or measured; it says the reason, then which setting of which plan.
    """
    checked: set[tuple[object, ...]] = set()

    def once(check: Callable[[], None], *subject: object) -> None:
        if subject not in checked:
            check()
            checked.add(subject)

    num_splits: dict[Setting, int] = {}
    for cell in plan.cells:
        num_splits[cell.setting] = max(cell.splits, num_splits.get(cell.setting, 0))
    for setting, number in num_splits.items():
        try:
            _check_setting(setting, once)
            if not setting.split_rule.is_random:
                split_of(setting, data_of(setting, 0), number - 1)
        except (WtawpError, ValueError, TypeError, ImportError) as error:
            raise PlanError(f"{error} [{plan.name}: {setting}]") from error


def _check_setting(setting: Setting, once: Callable[..., None]) -> None:
    """Raise an error if a setting cannot be trained; `once` skips checks that another setting has passed."""
    if not Path(setting.dataset).suffix:
        fetch_dataset(setting.dataset)
    data = data_of(setting, 0)
    if setting.split is None and default_split(setting.dataset).kind == "masks":
        raise DataError(
            f"{setting.dataset} has masks, and nobody chose between them and random splits; add "
            'split=SplitRule(kind="masks") or split=SplitRule(kind="random")'
        )
    split = split_of(setting, data, 0)
    model = build_model(Run(setting, 0, 0), data)
    check_initialized(model)
    _check_level(setting, model, data)
    if setting.awp is not None and not setting.awp.is_plain:
        select(model, setting.awp.layers)
    if (augment := noise_augmentation(setting)) is not None:
        augment(data, 0)
    surrogate = setting.surrogate
    for owner in (setting,) if surrogate is None else (setting, surrogate):
        for measure in owner.measures:

            def check(owner: Setting = owner, measure: Measure = measure) -> None:
                check_measure(measure, build_model(Run(owner, 0, 0), data), data, split)

            once(check, owner.dataset, owner.model, owner.options, measure)

    @torch.no_grad()
    def run_forward() -> None:
        output = model.eval()(*arguments_of(model, data))  # fails if the model needs features that the graph lacks
        _check_width(checked_output(output, model, len(data.y)), setting, data)

    once(run_forward, setting.dataset, setting.model, setting.options)


def _check_width(output: Tensor, setting: Setting, data: Data) -> None:
    """Refuse an output that is not a row of one number for each class, which could be trained to no purpose."""
    size, num_classes = len(data.y), int(data.y.max()) + 1
    if output.shape != (size, num_classes):
        raise DataError(
            f"{setting.model} must return a number for each of the {num_classes} classes of {setting.dataset},"
            f" [{size}, {num_classes}], got shape {list(output.shape)}; its constructor is given the number of classes"
            " as its second argument, or as out_channels or num_classes"
        )


def _check_level(setting: Setting, model: nn.Module, data: Data) -> None:
    """Refuse a model, a measure or an option that is for nodes if the data are graphs, and the reverse."""
    check_kind(model, data)
    if is_collection(data) and setting.inductive:
        raise DataError(
            f"{setting.dataset} is a list of graphs, of which those for testing are never trained on anyway"
        )
    if is_collection(data):
        for_nodes = [m.name for m in setting.measures if "graph" not in measure_spec(m.name).levels]
        for_nodes += [name for name in ("noise", "poison") if getattr(setting, name) is not None]
        if for_nodes:
            raise DataError(f"{setting.dataset} is a list of graphs, and {for_nodes[0]} is for the nodes of one graph")
    elif setting.batch_size is not None:
        raise DataError(f"batch_size counts graphs, and {setting.dataset} is one graph; leave it out")


def noise_augmentation(setting: Setting) -> Augment | None:
    """Make the noise of a setting; it depends on the epoch alone, and not on which runs are trained together.

    Args:
        setting: The setting.

    Returns:
        The argument `augment` of `fit` and `fit_many`; None if the setting has no noise.

    Raises:
        PlanError: If the noise of the setting is a measure of another name than "noise".
    """
    if setting.noise is None:
        return None
    if setting.noise.name != "noise":
        raise PlanError(f"noise must be a measure named noise, got {setting.noise.name!r}")
    options = dict(setting.noise.options)
    return noisy_training(**{str(options.pop("on")): Noise(**options)}, seed=0)  # type: ignore[arg-type]
