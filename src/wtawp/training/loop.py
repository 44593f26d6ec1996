"""Train models on nodes, graphs, or pairs of nodes, in the paper's protocol: one with `fit`, many with `fit_many`."""

import copy
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch_geometric.data import Data, HeteroData

from wtawp.base import DataError, checked_seed, find_stack_level
from wtawp.core import AwpConfig, VanishingMembersMonitor
from wtawp.graphs import Split, batched, is_collection, is_memory_mapped
from wtawp.models.calls import Forward, check_initialized, warn_of_dropped_inputs, warn_of_unused_edge_inputs
from wtawp.models.capabilities import StackAware, StackAwareOnGraphs
from wtawp.models.evaluation import without_cached_graphs
from wtawp.models.inputs import check_kind, constant_features
from wtawp.models.norms import has_batch_norm
from wtawp.models.settings import settings_of
from wtawp.training.checkpoint import Checkpoint
from wtawp.training.checks import (
    Samples,
    check_data,
    check_functions,
    check_graph,
    check_perturbation,
    checked_split,
    device_of_trained,
    refuse_trainable,
    splits_of,
    targets_of,
    warn_of_slow_training,
)
from wtawp.training.identity import describe_training
from wtawp.training.objective import LossFunction, MetricFunction, Objective
from wtawp.training.optimizers import OptimizerFactory, SchedulerFactory, build_optimizer
from wtawp.training.options import Average, FitSelectOn, Schedule
from wtawp.training.passes import needs_samples_without_edges
from wtawp.training.stack_loop import Augment, train_stack
from wtawp.training.stack_training import StackRun, StackTraining
from wtawp.training.subsets import Decoder, check_links

LR, WEIGHT_DECAY = 0.01, 5e-4  # of the paper's Adam
SAVE_EVERY = 10  # epochs between two saves of a checkpoint


@dataclass(frozen=True)
class Fit:
    """What a training run measured. The weights of the selected epoch are in the model that was trained.

    Attributes:
        epoch: The selected epoch, counted from 0.
        scores: The metric at the selected epoch, on "train", "val" and "test": the accuracy, between 0 and 1, unless
            another metric was chosen.
        loss: The loss at the selected epoch, without dropout, on "train", "val" and "test": the mean cross-entropy
            unless another loss was chosen.
        history: For each quantity one number per epoch: "train_loss", "gap" (how much the perturbation raises the
            loss), "gradient_norm", "perturbed_norm" (of the gradient at the perturbed weights), "weight_norm",
            "val_loss", and "val_accuracy", or "val_score" if another metric was chosen; and with lam="auto" "lam"
            and "rho". If the perturbation needs no gradient at the weights themselves, as momentum-SAM with lam=1,
            "train_loss" is measured at the perturbed weights, and there are no "gap" and "gradient_norm".
        metric: Name of the metric.
    """

    epoch: int
    scores: dict[str, float]
    loss: dict[str, float]
    history: dict[str, list[float]] = field(repr=False)
    metric: str = "accuracy"

    @property
    def accuracy(self) -> dict[str, float]:
        """Accuracy at the selected epoch, between 0 and 1, on "train", "val" and "test"."""
        if self.metric != "accuracy":
            raise AttributeError(
                f"this training measured {self.metric} and not the accuracy; its values are in `scores`"
            )
        return self.scores


def fit(
    model: nn.Module,
    data: Data | HeteroData | Sequence[Data],
    split: Split | None = None,
    *,
    seed: int,
    awp: AwpConfig | None = None,
    epochs: int = 200,
    lr: float | None = None,
    weight_decay: float | None = None,
    patience: int | None = None,
    select_on: FitSelectOn = "either",
    average: Average | None = None,
    tf32: bool = False,
    augment: Augment | None = None,
    observe: Callable[[nn.Module, int], None] | None = None,
    split_index: int | None = None,
    optimizer: OptimizerFactory | None = None,
    scheduler: SchedulerFactory | None = None,
    loss: LossFunction | None = None,
    metric: MetricFunction | None = None,
    lower_is_better: bool = False,
    decoder: Decoder | None = None,
    forward: Forward | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = None,
) -> Fit:
    """Train one model full batch, and select the last epoch that improved on the validation set.

    The caller's random state is left as it was. A `VanishingGradientWarning` is given if the gradient at the perturbed
    weights vanishes. The defaults are those of the paper: Adam, cross-entropy and accuracy.

    Args:
        model: A module called as `model(x, edge_index)`, as `model(x, edge_index, edge_weight)` if the graph has
            weights and the module takes them, or as `model(x, edge_index, batch)` to classify graphs. It is trained on
            its own device and afterwards holds the weights of the selected epoch and is in evaluation mode.
        data: One graph, whose nodes are classified, or several graphs (a list, or PyG's `Batch`), which are then the
            samples themselves. A `HeteroData` needs `forward`; the nodes of the one type that has `y` are classified.
        split: The training, validation and test nodes, graphs, or pairs of nodes. None uses the masks `train_mask`,
            `val_mask` and `test_mask` of the graph.
        seed: Determines the dropout masks.
        awp: How the weights are perturbed; None is plain training. `AwpConfig(rho=1.0, lam="auto")` needs no tuning.
        epochs: Number of epochs, at least 1.
        lr: Learning rate of Adam; None is 0.01.
        weight_decay: Weight decay of Adam; None is 5e-4.
        patience: Number of epochs without improvement after which training stops, at least 1; None trains all epochs.
        select_on: What must improve on the validation set for an epoch to be selected: "loss", "accuracy", "metric" (if
            the metric is not the accuracy), or "either" of loss and metric, which is the rule of the released code.
            "last" selects the last epoch.
        average: Measures and keeps an average of the weights over epochs in place of those of an epoch: a number is the
            decay of an exponential moving average, "swa" is the equal mean of the last quarter of the epochs, one of
            which is then selected.
        tf32: Whether a GPU may multiply matrices in TF32, which is faster and less precise.
        augment: Called as `augment(data, epoch)` before each epoch; it returns the graph that the training pass uses.
            The model has its current weights then.
        observe: Called as `observe(model, epoch)` after each epoch, when the model has the weights of that epoch,
            or their average.
        split_index: Number of the split, if `split` is None and the masks describe several splits.
        optimizer: Builds another optimizer from a list of parameters, which are those of the model that require
            gradients, in its order: `lambda parameters: torch.optim.SGD(parameters, lr=0.1)`. It takes the place of
            `lr` and `weight_decay`.
        scheduler: Builds a scheduler from an optimizer: `lambda optimizer: CosineAnnealingLR(optimizer, 200)`. It is
            stepped once after each epoch; ReduceLROnPlateau is given the validation loss.
        loss: Called as `loss(output, target)` with the rows of some samples, returns a scalar tensor, such as
            `F.mse_loss`. Targets are `data.y`, of any shape [n, ...]. None is the mean cross-entropy.
        metric: Called likewise, returns one number. None is the accuracy.
        lower_is_better: Whether a lower metric is better.
        decoder: Makes this a link prediction: samples are then the pairs of nodes in `data.edge_label_index` [2, p],
            targets are `data.edge_label`, and the output is `decoder(first, second)` of the rows that the model returns
            for both ends, such as `dot_product`. `edge_index` must not contain the links to be predicted.
        forward: Called as `forward(model, data)` in place of the model, for models that are called otherwise or return
            more than one tensor: `lambda model, data: model(data.x, data.edge_index, data.edge_attr)[0]`. It returns
            one row for each node, or for each graph of the batch that it is given.
        checkpoint: A file in which the training is saved. If it exists, the same training is continued from it, with
            the same bits on a CPU; a finished one is returned without training again.
        checkpoint_every: Number of epochs between two saves, at least 1; None is 10. The end of the training is always
            saved.

    Returns:
        The selected epoch, its scores and losses, and the history of the training.

    Raises:
        ValueError: If the seed is not a whole number, an option is outside its allowed values or contradicts another
            one, the optimizer cannot be used, or the model has no parameters.
        DataError: If the model classifies nodes and `data` holds several graphs, or the other way round, or it cannot
            be called with the graph, or does not return one tensor; if there is neither a split nor masks, or a part of
            the split is empty, overlaps another one, or lacks a class; if features are not finite; or if the targets
            do not fit the loss and the metric.
        CheckpointError: If the file is damaged, or belongs to another training.

    Example:
        >>> from wtawp import AwpConfig, fit, load, rng, stratified
        >>> from wtawp.models import GCN
        >>> data = load("wine")
        >>> model, split = GCN(13, 3, generator=rng("init")), stratified(data.y, seed=0)
        >>> result = fit(model, data, split, seed=0, awp=AwpConfig(rho=0.5, lam=0.5), epochs=3)
    """
    seed = checked_seed(seed)
    check_functions(observe=observe)
    observe_members = None if observe is None else lambda models, epoch: observe(models[0], epoch)
    return fit_many(
        [model], data, split, seeds=[seed], awp=awp, epochs=epochs, lr=lr, weight_decay=weight_decay,
        patience=patience, select_on=select_on, average=average, tf32=tf32, augment=augment, observe=observe_members,
        split_index=split_index, optimizer=optimizer, scheduler=scheduler, loss=loss, metric=metric,
        lower_is_better=lower_is_better, decoder=decoder, forward=forward, checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
    )[0]  # fmt: skip


def fit_many(
    models: Sequence[nn.Module],
    data: Data | HeteroData | Sequence[Data],
    splits: Split | Sequence[Split] | None = None,
    *,
    seeds: Sequence[int],
    awp: AwpConfig | None = None,
    epochs: int = 200,
    lr: float | None = None,
    weight_decay: float | None = None,
    patience: int | None = None,
    select_on: FitSelectOn = "either",
    average: Average | None = None,
    tf32: bool = False,
    augment: Augment | None = None,
    observe: Callable[[list[nn.Module], int], None] | None = None,
    split_index: int | None = None,
    optimizer: OptimizerFactory | None = None,
    scheduler: SchedulerFactory | None = None,
    loss: LossFunction | None = None,
    metric: MetricFunction | None = None,
    lower_is_better: bool = False,
    decoder: Decoder | None = None,
    forward: Forward | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = None,
) -> list[Fit]:
    """Train several models of one architecture at once. Each ends as it would if `fit` trained it alone.

    On a CPU the models of one split are trained as one stack, so that only the receptive field of its nodes is
    computed. On a GPU all models are one stack over the whole graph; only a classifier of graphs that is not from this
    package, or has a batch norm, is trained split by split there too, because batch norms must see the training graphs
    alone, and so is a link prediction. A module that `torch.func.vmap` cannot map is trained one member after another,
    with a warning. A module that draws from torch's generators in its forward pass, as `nn.Dropout` does, is trained so
    too, without a warning: each member draws from a random state of its own, so that its masks are those of `fit`. What
    numpy, Python's `random`, or a generator that the module keeps draw is not restored, and differs from `fit`.

    If the gradient at the perturbed weights vanishes, one `VanishingGradientWarning` says for how many models and
    describes the first.

    Args:
        models: Modules of one architecture on one device, called as `model(x, edge_index)`, or as
            `model(x, edge_index, batch)` to classify graphs. Afterwards each holds the weights of its selected epoch
            and is in evaluation mode.
        data: As in `fit`.
        splits: The training, validation and test nodes, graphs, or pairs of nodes: one split for all models, or one for
            each. None uses the masks `train_mask`, `val_mask` and `test_mask` of the graph for all models.
        seeds: One seed for each model. It determines the model's dropout masks, whatever it is trained with.
        awp: As in `fit`.
        epochs: As in `fit`.
        lr: As in `fit`.
        weight_decay: As in `fit`.
        patience: Number of epochs without improvement after which a model stops, at least 1; None trains all epochs. A
            stack ends when all of its models have stopped.
        select_on: As in `fit`.
        average: As in `fit`.
        tf32: As in `fit`.
        augment: As in `fit`, once for all models of a stack, which have their current weights then. It should draw from
            a generator that the epoch seeds, `rng("edges", epoch)`: torch's global one is at another place in `fit`.
        observe: Called as `observe(models, epoch)` after each epoch, with the models of one stack, which have the
            weights of that epoch, or their averages.
        split_index: Number of the split, if `splits` is None and the masks describe several splits.
        optimizer: Builds another optimizer, as in `fit`. It is called once for each model, with the parameters of that
            model, so that every optimizer is right here which is right in `fit`.
        scheduler: Builds the scheduler of one optimizer, as in `fit`, likewise.
        loss: The loss of one model, as in `fit`. It is called for one model after another.
        metric: The metric of one model, as in `fit`, likewise.
        lower_is_better: As in `fit`.
        decoder: As in `fit`.
        forward: As in `fit`.
        checkpoint: A file in which the training is saved, as in `fit`. If there are several stacks, each has a file of
            its own: "runs.pt" becomes "runs-0.pt", "runs-1.pt" and so on.
        checkpoint_every: As in `fit`.

    Returns:
        One result for each model, in the order of `models`.

    Raises:
        ValueError: If the numbers of models, splits and seeds differ, an option is outside its allowed values or
            contradicts another one, an optimizer cannot be used, the models have no parameters, or models in one stack
            have different architectures or splits of different sizes.
        DataError: If models, graphs, splits and targets do not fit together, as in `fit`.
        CheckpointError: If the file is damaged, or belongs to another training.

    Example:
        >>> from wtawp import fit_many, load, rng, stratified
        >>> from wtawp.models import GCN
        >>> data = load("wine")
        >>> models = [GCN(13, 3, generator=rng("init", i)) for i in range(2)]
        >>> first, second = fit_many(models, data, stratified(data.y, seed=0), seeds=[0, 1], epochs=3)
    """
    seeds = _checked_seeds(models, seeds)
    for model in models:
        check_data(model, data, forward, "fit")
        check_initialized(model)
    chosen = splits_of(data, splits, split_index, is_of_pairs=decoder is not None)
    split_of = [chosen] * len(models) if isinstance(chosen, Split) else chosen
    _check_numbers(models, split_of, seeds)
    _check_options(awp, lr, weight_decay, optimizer, metric, select_on)
    check_functions(loss=loss, metric=metric, scheduler=scheduler, augment=augment, observe=observe, decoder=decoder,
                    forward=forward)  # fmt: skip
    refuse_trainable(loss=loss, metric=metric)
    _check_checkpoint(checkpoint, checkpoint_every)
    schedule = Schedule(
        epochs=epochs,
        lr=LR if lr is None else lr,
        weight_decay=WEIGHT_DECAY if weight_decay is None else weight_decay,
        patience=patience,
        select_on=select_on,
        average=average,
    )
    if awp is not None and optimizer is None:
        warn_of_slow_training(awp, schedule.lr)
    if awp is not None and not awp.is_plain and awp.start >= epochs:
        raise ValueError(f"start={awp.start} leaves no perturbed epoch of {epochs}; choose a smaller one")
    kinds = [tuple(settings_of(model).items()) for model in models]
    of_each_kind = [models[kinds.index(kind)] for kind in dict.fromkeys(kinds)]
    graph = _checked_graph(data, of_each_kind, forward, any_target=loss is not None)
    objective = Objective(loss=loss, metric=metric, lower_is_better=lower_is_better)
    split_of, objective = _check_samples(graph, split_of, objective, decoder)
    if forward is None and not isinstance(data, HeteroData):
        for model in of_each_kind:
            warn_of_unused_edge_inputs(model, data)
    if forward is not None and _is_of_graphs(graph) and not isinstance(data, HeteroData):
        warn_of_dropped_inputs(data)
    is_monitored = awp is not None and not awp.is_plain and not awp.is_auto and awp.needs_natural_gradient
    monitor = VanishingMembersMonitor(seeds, awp) if is_monitored else None
    make_optimizer = partial(
        build_optimizer, lr=schedule.lr, weight_decay=schedule.weight_decay, optimizer=optimizer, scheduler=scheduler
    )
    functions = {"augment": augment, "code of optimizer": optimizer, "code of scheduler": scheduler}
    results: dict[int, Fit] = {}
    share_graph = [_is_one_stack(model, graph, is_of_pairs=decoder is not None) for model in of_each_kind]
    stacks = _stacks(split_of, kinds, together=all(share_graph))
    is_one_graph = augment is None and not _is_of_graphs(graph) and not needs_samples_without_edges(awp)
    caches = without_cached_graphs(models, is_one_graph=is_one_graph)
    features = constant_features() if augment is None else nullcontext()
    with torch.enable_grad(), _matmul_precision(tf32), caches, features:
        for number, stack in enumerate(stacks):
            own_seeds = [seeds[i] for i in stack]
            training = StackTraining(
                [models[i] for i in stack], graph, [split_of[i] for i in stack], seeds=own_seeds, awp=awp,
                schedule=schedule, objective=objective, decoder=decoder, forward=forward, make_optimizer=make_optimizer,
            )  # fmt: skip
            saved = None
            if checkpoint is not None:
                path = Path(checkpoint) if len(stacks) == 1 else _numbered(Path(checkpoint), number)
                identity = _identity(training, own_seeds, functions, tf32=tf32)
                saved = Checkpoint(path, SAVE_EVERY if checkpoint_every is None else checkpoint_every, identity)
            run = train_stack(
                training, seeds=own_seeds, augment=augment, observe=observe, monitor=monitor, positions=stack,
                checkpoint=saved,
            )  # fmt: skip
            results.update({i: _result(run, member, objective) for member, i in enumerate(stack)})
            del training  # before the next stack is built
    for model in models:
        model.eval()
    if monitor is not None:
        monitor.warn()
    warn_of_nan([results[i] for i in range(len(models))], select_on)
    return [results[i] for i in range(len(models))]


def _checked_seeds(models: Sequence[nn.Module], seeds: Sequence[int]) -> list[int]:
    """Check that there are different models in a list, and return their seeds as numbers."""
    if isinstance(models, nn.Module) or not isinstance(models, Sequence):
        raise ValueError(f"models must be a list of modules, got {type(models).__name__}; for one model call fit")
    if not models:
        raise ValueError("fit_many needs one model or more, got none")
    if len({id(model) for model in models}) < len(models):
        raise ValueError("fit_many trains each model once, and the same model is in the list several times; build each")
    if not hasattr(seeds, "__len__"):
        raise ValueError(f"seeds must hold a number for each model, such as range({len(models)}), got {seeds!r}")
    return [checked_seed(seed, f"seeds[{i}]") for i, seed in enumerate(seeds)]


def _check_numbers(models: Sequence[nn.Module], splits: Sequence[Split], seeds: Sequence[int]) -> None:
    """Check that each model has a split and a seed."""
    if not len(models) == len(splits) == len(seeds):
        raise ValueError(
            f"each model needs a split and a seed, got {len(models)} models, {len(splits)} splits, {len(seeds)} seeds"
        )


def _check_checkpoint(checkpoint: str | Path | None, every: int | None) -> None:
    """Check the options of a checkpoint."""
    if checkpoint is None and every is not None:
        raise ValueError(f"checkpoint_every={every} needs checkpoint=, the file in which the training is saved")
    if checkpoint is not None and not isinstance(checkpoint, str | os.PathLike):
        raise ValueError(f'checkpoint must be the path of a file, such as "run.pt", got {checkpoint!r}')


def _checked_graph(
    data: Data | HeteroData | Sequence[Data], models: Sequence[nn.Module], forward: Forward | None, *, any_target: bool
) -> Data | HeteroData:
    """The graph, or several graphs as one batch, where the models are; checked against what each model takes."""
    graph = data if isinstance(data, HeteroData) else batched(data, any_target=any_target)
    graph = _on_device(graph, models[0], device_of_trained(models[0]))
    for model in models if isinstance(graph, Data) else ():
        if forward is None:
            check_kind(model, graph)
        check_graph(graph, model, is_adapted=forward is not None)
    return graph


def _is_of_graphs(graph: Data | HeteroData) -> bool:
    """Whether the samples are the graphs of a batch."""
    return isinstance(graph, Data) and is_collection(graph)


def _on_device(data: Data | HeteroData, model: nn.Module, device: torch.device) -> Data | HeteroData:
    """The graph where the model is. Memory-mapped features stay on disk if the model reads only some of their rows."""
    graph = copy.copy(data)  # Data.to moves the caller's tensors otherwise
    if isinstance(graph, Data) and isinstance(graph.x, torch.Tensor) and graph.x.requires_grad:
        graph.x = graph.x.detach()  # only weights are trained
    if isinstance(graph, HeteroData):
        return graph.to(device)
    stays = isinstance(model, StackAware) and model.reads_rows and is_memory_mapped(data.x)
    moved = [name for name, _ in graph if name != "x"] if stays else []  # none named: all
    return graph.to(device, *moved)


def _check_samples(
    graph: Data | HeteroData, splits: list[Split], objective: Objective, decoder: Decoder | None
) -> tuple[list[Split], Objective]:
    """Check targets and splits. Returns the splits as indices, and the objective with the number of classes.

    Labels of a small integer type become int64 in `graph`, which cross-entropy needs.
    """
    if decoder is None:
        y = targets_of(graph)
    elif isinstance(graph, HeteroData):
        raise DataError("links of a heterogeneous graph are not trained by fit; see docs/own_loop.md")
    else:
        check_links(graph, splits, decoder)
        y = graph.edge_label
    objective.check_targets(y)
    has_classes = objective.has_classes
    if has_classes and y.dtype != torch.int64:
        y = y.long()
        store = graph if isinstance(graph, Data) else next(s for s in graph.node_stores if "y" in s)
        store["y" if decoder is None else "edge_label"] = y
    samples: Samples = "pairs" if decoder is not None else "graphs" if _is_of_graphs(graph) else "nodes"
    checked = {id(s): checked_split(s, y, has_classes=has_classes and decoder is None, samples=samples) for s in splits}
    parts = [part for split in checked.values() for part in (split.train, split.val, split.test) if len(part)]
    num_classes = max(int(y[part.to(y.device)].max()) for part in parts) + 1 if has_classes else 0
    return [checked[id(split)] for split in splits], replace(objective, num_classes=num_classes)


def warn_of_nan(results: Sequence[Fit], select_on: FitSelectOn) -> None:
    """Warn if a training loss was not finite, or if no epoch could be selected: such a training has learned nothing.

    Args:
        results: What trainings have measured.
        select_on: What had to improve for an epoch to be selected.
    """
    num_unselected = sum(not _could_select(result.history, select_on) for result in results)
    if num_unselected:
        warnings.warn(
            f"the validation part of {num_unselected} of {len(results)} models has never given a number by which an"
            f' epoch could be selected (select_on="{select_on}"), so that they have their initial weights; check the'
            " model, the loss and the metric on the validation samples",
            stacklevel=find_stack_level(),
        )
    first = [next((i for i, v in enumerate(r.history["train_loss"]) if not math.isfinite(v)), None) for r in results]
    epochs = [epoch for epoch in first if epoch is not None]
    if epochs:
        warnings.warn(
            f"the training loss of {len(epochs)} of {len(results)} models is NaN or infinite, from epoch {min(epochs)}"
            " on; lower the learning rate or rho, and check the model and the loss",
            stacklevel=find_stack_level(),
        )


def _could_select(history: Mapping[str, list[float]], select_on: FitSelectOn) -> bool:
    """Whether any epoch of a training had a validation loss or score that can be better than none."""
    if select_on == "last":
        return True
    has_loss = any(loss < math.inf for loss in history["val_loss"])
    scores = history["val_accuracy"] if "val_accuracy" in history else history["val_score"]
    has_score = any(math.isfinite(score) for score in scores)
    return {"loss": has_loss, "either": has_loss or has_score}.get(select_on, has_score)


def _check_options(
    awp: object,
    lr: float | None,
    weight_decay: float | None,
    optimizer: OptimizerFactory | None,
    metric: MetricFunction | None,
    select_on: FitSelectOn,
) -> None:
    """Refuse options of a wrong kind, and those that contradict each other."""
    check_perturbation(awp)
    for name, value in (("lr", lr), ("weight_decay", weight_decay)):
        if optimizer is not None and value is not None:
            raise ValueError(f"{name}={value} is an option of Adam, but optimizer= was passed too; set it there")
    if metric is not None and select_on == "accuracy":
        raise ValueError('select_on="accuracy" needs the accuracy, but metric= was passed; write select_on="metric"')


def _identity(
    training: StackTraining, seeds: list[int], functions: Mapping[str, object], *, tf32: bool
) -> dict[str, str]:
    """What identifies the training of a stack before its first epoch."""
    schedule, objective = training.schedule, training.objective
    options = {"awp": _described(training.awp), "epochs": schedule.epochs, "patience": schedule.patience,
               "select_on": schedule.select_on, "tf32": tf32, "lower_is_better": objective.lower_is_better,
               **({} if schedule.average is None else {"average": schedule.average}),
               **training.optimizer.describe()}  # fmt: skip
    functions = {"loss": objective.loss, "metric": objective.metric, "decoder": training.decoder, **functions}
    if training.forward is not None:
        functions["forward"] = training.forward
    return describe_training(
        training.ensemble.models, training.data, training.splits, seeds=seeds, options=options, functions=functions
    )


def _result(run: StackRun, member: int, objective: Objective) -> Fit:
    """The result of one member of a stack."""
    metric = "accuracy" if objective.metric is None else getattr(objective.metric, "__name__", "metric")
    column_of = {"val_score": "val_accuracy"} if objective.metric is None else {}
    history = {column_of.get(name, name): column[:, member].tolist() for name, column in run.history.items()}
    scores = {name: float(v[member]) for name, v in run.scores.items()}
    loss = {name: float(v[member]) for name, v in run.loss.items()}
    return Fit(int(run.epoch[member]), scores, loss, history, metric)


def _described(awp: AwpConfig | None) -> str:
    """The options by which a training is identified, among them the version of the rule of lam="auto"."""
    return "None" if awp is None else f"AwpConfig({', '.join(f'{name}={v!r}' for name, v in awp.content.items())})"


def _numbered(path: Path, number: int) -> Path:
    """The file of one stack of several."""
    return path.with_name(f"{path.stem}-{number}{path.suffix}")


def _is_one_stack(model: nn.Module, graph: Data | HeteroData, *, is_of_pairs: bool) -> bool:
    """Whether models of different splits are trained in one stack: on a GPU, if all splits can share one graph."""
    is_local = isinstance(model, StackAwareOnGraphs) and not has_batch_norm(model)
    is_shared = not is_of_pairs and (is_local or not _is_of_graphs(graph))
    return is_shared and device_of_trained(model).type == "cuda"


def _stacks(splits: list[Split], kinds: Sequence[object], *, together: bool) -> list[list[int]]:
    """The positions of the models that are trained in each stack: all of one kind, or those of one split among them."""
    groups: dict[object, list[int]] = {}
    for i, (split, kind) in enumerate(zip(splits, kinds, strict=True)):
        groups.setdefault((kind, None if together else id(split)), []).append(i)
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
