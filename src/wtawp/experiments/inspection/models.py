"""The models that a command inspects: trained without and with WT-AWP, or read from a checkpoint."""

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

Check = Callable[[nn.Module, Data], None]  # raises an error for a model that cannot be inspected


@dataclass(frozen=True)
class InspectedModels:
    """Models with their graph and split.

    Attributes:
        models: The models, in evaluation mode, by their names in tables.
        data: Their graph, on their device.
        split: Their split.
        sources: A description of how each model was made.
        methods: How the weights of each model were perturbed in training; None for plain training, and no
            entry for a model that was read from a file.
    """

    models: dict[str, nn.Module]
    data: Data
    split: Split
    sources: dict[str, str] = field(default_factory=dict)
    methods: dict[str, AwpConfig | None] = field(default_factory=dict)

    def losses(self) -> dict[str, LossOn]:
        """The training loss of each model, as a function of its weights.

        Returns:
            The losses by the names of the models.
        """
        return {name: LossOn(model, self.data, self.split.train) for name, model in self.models.items()}

    def finite_losses(self) -> dict[str, float]:
        """The training loss of each model at its weights.

        Returns:
            The losses by the names of the models.

        Raises:
            AnalysisError: If a loss is not finite.
        """
        with torch.no_grad():
            values = {name: float(loss()) for name, loss in self.losses().items()}
        for name, loss in values.items():
            if not math.isfinite(loss):
                raise AnalysisError(f"the training loss of {name} is {loss}; there is no landscape around it")
        return values


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
        AnalysisError: If weights cannot be read, or belong to another architecture.
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
    for number, name in enumerate(to_train):

        def report(share: float, what: str, number: int = number, name: str = name) -> None:
            if progress is not None:
                progress((number + share) / len(to_train), f"{name}, {what}")

        models[name], data, split = train_model(runs[name], device=device, progress=report)
    for model in models.values():
        model.eval()
    sources = {name: _source(run, files.get(name)) for name, run in runs.items()}
    methods = {name: run.setting.awp for name, run in runs.items() if name not in files}
    return InspectedModels(models, data, split, sources, methods)


def _source(run: Run, file: Path | None) -> str:
    """A description of how a model was made."""
    if file is None:
        return f"{run.setting}; split {run.split}, initialisation {run.init}"
    return f"{run.setting.model} on {run.setting.dataset} with the weights of {file.name}; split {run.split}"


def are_distributions(model: nn.Module) -> bool:
    """Whether the weights of a model are distributions, which cannot be perturbed.

    Args:
        model: The model.

    Returns:
        True if any of its modules says so.
    """
    return any(getattr(module, "weights_are_distributions", False) for module in model.modules())


def refuse_collections(_: nn.Module, data: Data) -> None:
    """Refuse a list of graphs: smoothness is measured by the nodes and edges of one graph.

    Args:
        _: The model, which is not used.
        data: The graph, or all graphs as one batch.

    Raises:
        AnalysisError: If there are several graphs.
    """
    if is_collection(data):
        raise AnalysisError("smoothness is measured by the nodes and edges of one graph; these are graphs to classify")


def refuse_distributions(model: nn.Module, _: Data) -> None:
    """Refuse a model whose weights cannot be perturbed.

    Args:
        model: The model.
        _: Its data, which are not used.

    Raises:
        AnalysisError: If its weights are distributions.
    """
    if are_distributions(model):
        raise AnalysisError(
            f"the weights of {type(model).__name__} are distributions and cannot be perturbed; what works for it are "
            "random lines and planes (`wtawp landscape`) and the Hessian (`wtawp sharpness`)"
        )
