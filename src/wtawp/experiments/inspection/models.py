"""The models that a command inspects: trained here, without and with WT-AWP, or read from a checkpoint."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn
from torch_geometric.data import Data

from wtawp.analysis import LossOn
from wtawp.base import AnalysisError
from wtawp.core import AwpConfig
from wtawp.experiments.execution.training import train_model, untrained_model
from wtawp.experiments.inspection.checkpoints import load_weights
from wtawp.experiments.spec import Run
from wtawp.graphs import Split, is_collection

Check = Callable[[nn.Module, Data], None]


@dataclass(frozen=True)
class InspectedModels:
    """Models by the names they have in tables, with their graph and split.

    Attributes:
        models: The models, in evaluation mode, by name.
        data: Their graph, on their device.
        split: Their split.
        sources: How each model was made, in words.
        methods: How the weights of each model were perturbed in training; None for plain training, and no entry for a
            model that was read from a file.
    """

    models: dict[str, nn.Module]
    data: Data
    split: Split
    sources: dict[str, str] = field(default_factory=dict)
    methods: dict[str, AwpConfig | None] = field(default_factory=dict)

    def losses(self) -> dict[str, LossOn]:
        """The training loss of each model, as a function of its weights."""
        return {name: LossOn(model, self.data, self.split.train) for name, model in self.models.items()}

    def finite_losses(self) -> dict[str, float]:
        """The training losses as numbers; raises AnalysisError for one that is not finite."""
        with torch.no_grad():
            here = {name: float(loss()) for name, loss in self.losses().items()}
        for name, loss in here.items():
            if not math.isfinite(loss):
                raise AnalysisError(f"the training loss of {name} is {loss}; there is no landscape around it")
        return here


def load_or_train(
    runs: Mapping[str, Run],
    *,
    weights: Mapping[str, Path] | None = None,
    device: str = "cpu",
    check: Check | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> InspectedModels:
    """Train each run, or load its weights.

    Args:
        runs: The runs by the names of their models in tables.
        weights: Files of weights (state dicts, read without pickles) for some of the names; these are not trained.
        device: "cpu" or "cuda".
        check: Called with every untrained model and its data, to refuse what cannot be inspected before training.
        progress: Called with the share that is done, and a description.

    Returns:
        The models with their data and split.

    Raises:
        PlanError: If a run cannot be trained.
        AnalysisError: If weights cannot be read, or are those of another architecture.
    """
    files = weights or {}
    models: dict[str, nn.Module] = {}
    for name, run in runs.items():
        models[name], data, split = untrained_model(run, device=device)
        if check is not None:
            check(models[name], data)
        if name in files:
            load_weights(models[name], files[name])
    to_train = [name for name in runs if name not in files]
    for place, name in enumerate(to_train):

        def report(share: float, what: str, place: int = place, name: str = name) -> None:
            if progress is not None:
                progress((place + share) / len(to_train), f"{name}, {what}")

        models[name], data, split = train_model(runs[name], device=device, progress=report)
    for model in models.values():
        model.eval()
    sources = {name: _source(run, files.get(name)) for name, run in runs.items()}
    methods = {name: run.setting.awp for name, run in runs.items() if name not in files}
    return InspectedModels(models, data, split, sources, methods)


def _source(run: Run, file: Path | None) -> str:
    if file is None:
        return f"{run.setting}; split {run.split}, initialisation {run.init}"
    return f"{run.setting.model} on {run.setting.dataset} with the weights of {file.name}; split {run.split}"


def are_distributions(model: nn.Module) -> bool:
    """Whether the weights of a model are distributions, which cannot be perturbed."""
    return any(getattr(module, "weights_are_distributions", False) for module in model.modules())


def refuse_collections(_: nn.Module, data: Data) -> None:
    """Raise AnalysisError for graphs to classify: smoothness is measured by the nodes and edges of one graph."""
    if is_collection(data):
        raise AnalysisError("smoothness is measured by the nodes and edges of one graph; these are graphs to classify")


def refuse_distributions(model: nn.Module, _: Data) -> None:
    """Raise AnalysisError for weights that cannot be perturbed."""
    if are_distributions(model):
        raise AnalysisError(
            f"the weights of {type(model).__name__} are distributions and cannot be perturbed; what works for it are "
            "random lines and planes (`wtawp landscape`) and the Hessian (`wtawp sharpness`)"
        )
