"""Refuse a plan before anything is trained: missing data, options that no model, attack or measure accepts."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch_geometric.data import Data

from wtawp.base import DataError, WtawpError
from wtawp.certificates import Noise, noisy_training
from wtawp.certificates.noise import Augment
from wtawp.core import select
from wtawp.experiments.execution.building import build_model, data_of, default_split, split_of
from wtawp.experiments.measures.shared.registry import check_measure, measure_spec
from wtawp.experiments.spec import MeasureRequest, Plan, PlanError, Run, Setting
from wtawp.graphs import fetch_dataset, is_collection
from wtawp.models.calls import arguments_of, check_initialized, checked_call, explain_failure, is_out_of_memory
from wtawp.models.inputs import check_kind
from wtawp.training.checks import check_graph, targets_of


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
            f"{setting.dataset} has masks, but the plan does not say whether to use them; add "
            'split=SplitRule(kind="masks") or split=SplitRule(kind="random")'
        )
    split = split_of(setting, data, 0)
    _check_targets(setting, data)
    model = build_model(Run(setting, 0, 0), data)
    check_initialized(model)
    _check_level(setting, model, data)
    subject = (setting.dataset, setting.features, setting.model, repr(setting.options))  # 1 is not true
    once(lambda: _check_forward(setting, model, data), *subject)
    if setting.awp is not None and not setting.awp.is_plain:
        select(model, setting.awp.layers)
    if (augment := noise_augmentation(setting)) is not None:
        augment(data, 0)
    surrogate = setting.surrogate
    for owner in (setting,) if surrogate is None else (setting, surrogate):
        for measure in owner.measures:

            def check(owner: Setting = owner, measure: MeasureRequest = measure) -> None:
                check_measure(measure, build_model(Run(owner, 0, 0), data), data, split)

            once(check, owner.dataset, owner.model, repr(owner.options), measure)


def _check_targets(setting: Setting, data: Data) -> None:
    """Refuse targets that are not whole numbers, one for each node or graph."""
    y = targets_of(data)
    if y.is_floating_point():
        raise DataError(
            f"the targets y of {setting.dataset} must be class numbers of a whole-number type, got {y.dtype}; write"
            " data.y = data.y.long()"
        )


@torch.no_grad()
def _check_forward(setting: Setting, model: nn.Module, data: Data) -> None:
    """Refuse a graph that is not valid, and a model that fails, or does not return a number for each class."""
    check_graph(data, model, is_adapted=False)
    arguments = arguments_of(model, data)
    model.eval()
    try:
        output = checked_call(model, arguments, len(data.y))
    except WtawpError:
        raise
    except Exception as error:  # of the user's code, which may raise anything
        if isinstance(error, MemoryError) or is_out_of_memory(error):
            raise
        raise explain_failure(error, model, arguments) from error
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
        PlanError: If the noise of the setting is a request of another name than "noise".
    """
    if setting.noise is None:
        return None
    if setting.noise.name != "noise":
        raise PlanError(f"Setting.noise takes what noise_of(certificate) returns, got {setting.noise.name!r}")
    options = dict(setting.noise.options)
    return noisy_training(**{str(options.pop("on")): Noise(**options)}, seed=0)  # type: ignore[arg-type]
