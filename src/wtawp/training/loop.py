"""Train classifiers of nodes, or of graphs, in the paper's protocol: one with `fit`, many at once with `fit_many`."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from torch_geometric.data import Data

from wtawp.core import AwpConfig, VanishingMembersMonitor
from wtawp.graphs import Split, batched, is_collection, is_memory_mapped
from wtawp.models.capabilities import StackAware, StackAwareOnGraphs
from wtawp.training.engine import train_stack
from wtawp.training.options import Schedule, SelectOn

Augment = Callable[[Data, int], Data]


@dataclass(frozen=True)
class Fit:
    """What a training run measured. The weights of the selected epoch are in the model that was trained.

    Attributes:
        epoch: The selected epoch, counted from 0.
        accuracy: Accuracy at the selected epoch, between 0 and 1, on "train", "val" and "test".
        loss: Mean cross-entropy at the selected epoch, without dropout, on "train", "val" and "test".
        history: For each quantity one number per epoch: "train_loss", "gap" (how much the perturbation raises the
            loss), "gradient_norm", "perturbed_norm" (of the gradient at the perturbed weights), "weight_norm",
            "val_loss" and "val_accuracy".
    """

    epoch: int
    accuracy: dict[str, float]
    loss: dict[str, float]
    history: dict[str, list[float]]


def fit(
    model: nn.Module,
    data: Data | Sequence[Data],
    split: Split,
    *,
    seed: int,
    awp: AwpConfig | None = None,
    epochs: int = 200,
    lr: float = 0.01,
    weight_decay: float = 5e-4,
    patience: int | None = None,
    select_on: SelectOn = "either",
    tf32: bool = False,
    augment: Augment | None = None,
    observe: Callable[[nn.Module, int], None] | None = None,
) -> Fit:
    """Train one model full batch with Adam, and select the last epoch that improved on the validation set.

    The caller's random state is left as it was. A `VanishingGradientWarning` is given if the gradient at the perturbed
    weights vanishes. The defaults are those of the paper.

    Args:
        model: A module called as `model(x, edge_index)`, or as `model(x, edge_index, batch)` to classify graphs. It is
            trained on its own device and holds the weights of the selected epoch afterwards.
        data: One graph, whose nodes are classified, or several graphs (a list, or PyG's `Batch`), which are then the
            samples themselves.
        split: The training, validation and test nodes, or graphs.
        seed: Determines the dropout masks.
        awp: How the weights are perturbed; None is plain training.
        epochs: Number of epochs, at least 1.
        lr: Learning rate of Adam.
        weight_decay: Weight decay of Adam.
        patience: Number of epochs without improvement after which training stops; None trains all epochs.
        select_on: What must improve on the validation set for an epoch to be selected: "loss", "accuracy", or "either"
            of them, which is the rule of the released code. "last" selects the last epoch.
        tf32: Whether a GPU may multiply matrices in TF32, which is faster and less precise.
        augment: Called as `augment(data, epoch)` before each epoch; it returns the graph that the training pass uses.
            The model has its current weights then.
        observe: Called as `observe(model, epoch)` after each epoch, when the model has the weights of that epoch.

    Returns:
        The selected epoch, its accuracies and losses, and the history of the training.

    Raises:
        ValueError: If an option is outside its allowed values or the model has no parameters.
        DataError: If the model classifies nodes and `data` holds several graphs, or the other way round.

    Example:
        >>> from wtawp import AwpConfig, fit, load, rng, stratified
        >>> from wtawp.models import GCN
        >>> data = load("wine")
        >>> model, split = GCN(13, 3, generator=rng("init")), stratified(data.y, seed=0)
        >>> result = fit(model, data, split, seed=0, awp=AwpConfig(rho=0.5, lam=0.5), epochs=3)
    """
    observe_members = None if observe is None else lambda models, epoch: observe(models[0], epoch)
    return fit_many(
        [model], data, split, seeds=[seed], awp=awp, epochs=epochs, lr=lr, weight_decay=weight_decay,
        patience=patience, select_on=select_on, tf32=tf32, augment=augment, observe=observe_members,
    )[0]  # fmt: skip


def fit_many(
    models: Sequence[nn.Module],
    data: Data | Sequence[Data],
    splits: Split | Sequence[Split],
    *,
    seeds: Sequence[int],
    awp: AwpConfig | None = None,
    epochs: int = 200,
    lr: float = 0.01,
    weight_decay: float = 5e-4,
    patience: int | None = None,
    select_on: SelectOn = "either",
    tf32: bool = False,
    augment: Augment | None = None,
    observe: Callable[[list[nn.Module], int], None] | None = None,
) -> list[Fit]:
    """Train several models of one architecture at once. Each ends as it would if `fit` trained it alone.

    On a CPU the models of one split are trained as one stack, so that only the receptive field of its nodes is
    computed. On a GPU all models are one stack over the whole graph; only a classifier of graphs that is not from this
    package is trained split by split there too, because its batch norms must see the training graphs alone. A module
    that `torch.func.vmap` cannot map is trained one member after another, with a warning. A module that uses torch's
    own dropout is trained in the stack, but its masks then differ from those of a single run.

    If the gradient at the perturbed weights vanishes, one `VanishingGradientWarning` says for how many models and
    describes the first.

    Args:
        models: Modules of one architecture on one device, called as `model(x, edge_index)`, or as
            `model(x, edge_index, batch)` to classify graphs. Each holds the weights of its selected epoch afterwards.
        data: One graph, whose nodes are classified, or several graphs (a list, or PyG's `Batch`), which are then the
            samples themselves.
        splits: The training, validation and test nodes, or graphs: one split for all models, or one for each.
        seeds: One seed for each model. It determines the model's dropout masks, whatever it is trained with.
        awp: How the weights are perturbed; None is plain training.
        epochs: Number of epochs, at least 1.
        lr: Learning rate of Adam.
        weight_decay: Weight decay of Adam.
        patience: Number of epochs without improvement after which a model stops; None trains all epochs. A stack ends
            when all of its models have stopped.
        select_on: What must improve on the validation set for an epoch to be selected: "loss", "accuracy", or "either"
            of them, which is the rule of the released code. "last" selects the last epoch.
        tf32: Whether a GPU may multiply matrices in TF32, which is faster and less precise.
        augment: Called as `augment(data, epoch)` before each epoch; it returns the graph that the training pass uses.
            The models have their current weights then.
        observe: Called as `observe(models, epoch)` after each epoch, with the models of one stack, which have the
            weights of that epoch.

    Returns:
        One result for each model, in the order of `models`.

    Raises:
        ValueError: If the numbers of models, splits and seeds differ, an option is outside its allowed values, the
            models have no parameters, or models in one stack have different architectures or splits of different sizes.
        DataError: If the models classify nodes and `data` holds several graphs, or the other way round.

    Example:
        >>> from wtawp import fit_many, load, rng, stratified
        >>> from wtawp.models import GCN
        >>> data = load("wine")
        >>> models = [GCN(13, 3, generator=rng("init", i)) for i in range(2)]
        >>> first, second = fit_many(models, data, stratified(data.y, seed=0), seeds=[0, 1], epochs=3)
    """
    split_of = [splits] * len(models) if isinstance(splits, Split) else list(splits)
    if not len(models) == len(split_of) == len(seeds):
        raise ValueError(
            f"each model needs a split and a seed, got {len(models)} models, {len(split_of)} splits, {len(seeds)} seeds"
        )
    schedule = Schedule(epochs=epochs, lr=lr, weight_decay=weight_decay, patience=patience, select_on=select_on)
    if awp is not None and not isinstance(awp, AwpConfig):
        raise ValueError(f"awp takes the options of the method, AwpConfig(rho=..., lam=...), got {type(awp).__name__}")
    device = next((p.device for p in models[0].parameters()), None)
    if device is None:
        raise ValueError(f"{type(models[0]).__name__} has no parameters to train")
    graph = _on_device(batched(data), models[0], device)
    is_shared = not is_collection(graph) or isinstance(models[0], StackAwareOnGraphs)
    monitor = None if awp is None or awp.is_plain else VanishingMembersMonitor(seeds, awp)
    results: dict[int, Fit] = {}
    with _matmul_precision(tf32):
        for stack in _stacks(split_of, together=device.type == "cuda" and is_shared):
            run = train_stack(
                [models[i] for i in stack], graph, [split_of[i] for i in stack], seeds=[seeds[i] for i in stack],
                awp=awp, schedule=schedule, augment=augment, observe=observe, monitor=monitor, positions=stack,
            )  # fmt: skip
            for member, i in enumerate(stack):
                history = {name: column[:, member].tolist() for name, column in run.history.items()}
                accuracy = {name: float(v[member]) for name, v in run.accuracy.items()}
                loss = {name: float(v[member]) for name, v in run.loss.items()}
                results[i] = Fit(int(run.epoch[member]), accuracy, loss, history)
    if monitor is not None:
        monitor.warn()
    return [results[i] for i in range(len(models))]


def _on_device(data: Data, model: nn.Module, device: torch.device) -> Data:
    """The graph where the model is. Memory-mapped features stay on disk if the model reads only some of their rows."""
    stays = isinstance(model, StackAware) and model.reads_rows and is_memory_mapped(data.x)
    graph = copy.copy(data)  # Data.to moves the caller's tensors otherwise
    moved = [name for name, _ in graph if name != "x"] if stays else []  # none named: all
    return graph.to(device, *moved)


def _stacks(splits: list[Split], *, together: bool) -> list[list[int]]:
    """The positions of the models that are trained in each stack: all, or those of one split."""
    if together:
        return [list(range(len(splits)))]
    groups: dict[int, list[int]] = {}
    for i, split in enumerate(splits):
        groups.setdefault(id(split), []).append(i)
    return list(groups.values())


@contextmanager
def _matmul_precision(tf32: bool) -> Iterator[None]:
    """Set the precision of matrix products on a GPU, and restore it at the end."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
