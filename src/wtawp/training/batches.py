"""Train on minibatches, of graphs or of the nodes of one graph, with the public `WTAWP.backward` alone."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.base import DataError, checked_seed, isolated_rng, report_progress
from wtawp.core import WTAWP, AwpConfig
from wtawp.graphs import NeighbourLists, Split, batched, is_collection
from wtawp.models.calls import check_initialized, warn_of_unused_edge_inputs
from wtawp.models.capabilities import StackAwareOnGraphs
from wtawp.models.inputs import check_kind
from wtawp.training.batch_tasks import PARTS, Criterion, GraphTask, NodeTask, Task, TaskContext
from wtawp.training.best_weights import BestWeights
from wtawp.training.checks import (
    Samples,
    check_data,
    check_features,
    check_functions,
    check_perturbation,
    checked_split,
    device_of_trained,
    refuse_trainable,
    splits_of,
    warn_of_slow_training,
)
from wtawp.training.loop import Fit, warn_of_nan
from wtawp.training.objective import Objective
from wtawp.training.options import FitSelectOn, Schedule, is_count


def fit_batches(
    model: nn.Module,
    data: Data | Sequence[Data],
    split: Split | None = None,
    *,
    seed: int,
    batch_size: int | None = None,
    fanouts: Sequence[int] | None = None,
    loader: Iterable[Data] | None = None,
    neighbours: NeighbourLists | None = None,
    num_workers: int = 0,
    accumulate: int = 1,
    awp: AwpConfig | None = None,
    epochs: int = 200,
    lr: float = 0.01,
    weight_decay: float = 5e-4,
    select_on: FitSelectOn = "either",
    loss: Criterion | None = None,
    metric: Criterion | None = None,
) -> Fit:
    """Train a classifier of graphs, or of nodes, on shuffled minibatches with Adam, and select an epoch as `fit` does.

    Each batch has its own perturbation, computed from its own gradient. Buffers, such as batch-norm statistics, are
    updated once by each batch.

    Nodes are trained on sampled neighbourhoods. A GCN uses the degrees of the whole graph there (see `GcnWeights`), so
    that batches with all neighbours give the outputs and gradients of the whole graph. Validation and test use all
    neighbours, computed by `compute_logits`.

    Args:
        model: A module called as `model(x, edge_index, batch)` for graphs, or as `model(x, edge_index)` for nodes. It
            is trained on its own device. Afterwards it holds the weights of the selected epoch and is in evaluation
            mode.
        data: Several graphs, which are the samples; or one graph, whose nodes are the samples. One graph stays on the
            CPU, and its features may be a NumPy array that is mapped from disk.
        split: The training, validation and test samples: positions in the list of graphs, or nodes. None uses the masks
            `train_mask`, `val_mask` and `test_mask` of one graph.
        seed: Determines the order of the batches, the sampled neighbours and the dropout masks.
        batch_size: Number of graphs, or training nodes, in a batch; the last batch of an epoch may be smaller. Needed
            unless there is a loader.
        fanouts: For nodes, the largest number of neighbours of a node that are sampled in each hop, the hop next to
            the training nodes first; -1 takes all. One number for each layer of the model.
        loader: For nodes, batches from elsewhere in place of `batch_size` and `fanouts`: an iterable of `Data` such as
            PyG's `NeighborLoader` or `RandomNodeLoader`, of which each iteration is an epoch. Batches must have `n_id`
            or `train_mask`, and the loss is that of the training nodes in them. Without `n_id` they are taken as
            graphs of their own, on which a GCN computes degrees. `fanouts` are then needed only to say how far a
            module that is neither ours nor one of PyG's models reaches.
        neighbours: For nodes, the neighbour lists of the graph, if they are built already; `data` then needs no
            `edge_index`. None builds them.
        num_workers: For nodes, number of processes that prepare batches; 0 prepares them in this process. The result
            is the same.
        accumulate: Number of batches whose gradients are averaged for one step of the optimizer; the last step of an
            epoch may have fewer.
        awp: How the weights are perturbed; None is plain training.
        epochs: Number of epochs, at least 1.
        lr: Learning rate of Adam.
        weight_decay: Weight decay of Adam.
        select_on: What must improve on the validation set for an epoch to be selected: "loss", "accuracy", "metric" (if
            the metric is not the accuracy), or "either" of loss and metric, which is the rule of the released code.
            "last" selects the last epoch.
        loss: Function of logits [k, c] and the labels of k samples that returns a scalar to minimise; None is the
            mean cross-entropy.
        metric: Function of logits and labels that returns a scalar, higher for better models, which then takes the
            place of the accuracy; None is the accuracy.

    Returns:
        The selected epoch, its scores and losses, and a history of "train_loss" (the mean over the batches of an
        epoch), "val_loss", and "val_accuracy", or "val_score" if another metric was chosen, and with lam="auto" "lam"
        and "rho".

    Raises:
        ValueError: If `epochs`, `batch_size` or `accumulate` is below 1, the model has no parameters, an option of
            nodes is given for graphs, or there are neither fan-outs nor a loader for nodes.
        DataError: If models, graphs, splits and targets do not fit together, as in `fit`, or a batch has no training
            nodes that are known.
        WtawpError: If the outputs of the model on parts of a graph are not those on the whole graph.

    Example:
        >>> from wtawp import load, rng, stratified
        >>> from wtawp.models import GCN
        >>> data = load("wine")
        >>> model, split = GCN(13, 3, generator=rng("init")), stratified(data.y, seed=0)
        >>> result = fit_batches(model, data, split, seed=0, batch_size=8, fanouts=(5, 5), epochs=2)
    """
    seed = checked_seed(seed)
    schedule = Schedule(epochs=epochs, lr=lr, weight_decay=weight_decay, patience=None, select_on=select_on)
    _check_count("accumulate", accumulate)
    if loader is None:
        _check_count("batch_size", batch_size)
    if fanouts is not None and not hasattr(fanouts, "__len__"):
        raise ValueError(f"fanouts must hold a number for each layer, such as (10, 10), got {fanouts!r}")
    if isinstance(loader, Iterator) and type(loader).__module__ in ("builtins", "itertools"):  # others may begin anew
        raise ValueError(
            f"loader is read once an epoch, and {type(loader).__name__} is an iterator, which is empty after the first"
            " one; pass what it iterates over, such as a DataLoader"
        )
    check_perturbation(awp)
    if metric is not None and select_on == "accuracy":
        raise ValueError('select_on="accuracy" needs the accuracy, but metric= was passed; write select_on="metric"')
    check_functions(loss=loss, metric=metric)
    refuse_trainable(loss=loss, metric=metric)
    check_data(model, data, None, "fit_batches")
    check_initialized(model)
    device = device_of_trained(model)
    if awp is not None:
        warn_of_slow_training(awp, schedule.lr)
    split, objective = _check_samples(data, split, Objective(loss=loss, metric=metric), model)
    context = TaskContext(seed, device, objective)
    of_nodes = {"fanouts": fanouts, "loader": loader, "neighbours": neighbours, "num_workers": num_workers or None}
    task: Task
    if not isinstance(data, Data) or is_collection(data) or isinstance(model, StackAwareOnGraphs):
        given = [name for name, value in of_nodes.items() if value is not None]
        if given:
            raise ValueError(f"{', '.join(given)}: for batches of nodes of one graph, and these are graphs")
        task = GraphTask(model, data, split, context, batch_size=batch_size or 1)
    else:
        if fanouts is None and loader is None:
            raise ValueError("one graph is trained in batches of nodes: pass fanouts=(10, 10), one number for a layer")
        task = NodeTask(model, data, split, context, batch_size=batch_size or 1, fanouts=fanouts, loader=loader,
                        neighbours=neighbours, num_workers=num_workers)  # fmt: skip
    if not isinstance(data, Data) or isinstance(data.edge_index, Tensor):
        warn_of_unused_edge_inputs(model, data)
    with isolated_rng("torch dropout", seed):
        result = _train(model, task, schedule, awp, accumulate, device)
    model.eval()
    warn_of_nan([result], select_on)
    return result if metric is None else _renamed(result, getattr(metric, "__name__", "metric"))


def _check_samples(
    data: Data | Sequence[Data], split: Split | None, objective: Objective, model: nn.Module
) -> tuple[Split, Objective]:
    """Check features, targets and split. Returns the split as indices, and the objective with the number of classes."""
    chosen = splits_of(data, split, None)
    if not isinstance(chosen, Split):
        raise DataError(f"fit_batches trains one model and takes one split, got {len(chosen)}")
    whole = batched(data, any_target=not objective.has_classes)
    check_kind(model, whole)
    graphs = [data] if isinstance(data, Data) else data
    for graph in graphs:
        if isinstance(graph.x, Tensor):
            check_features(graph.x, model)
    y = whole.y
    y = torch.from_numpy(np.asarray(y)) if isinstance(y, np.ndarray) else y
    objective.check_targets(y)
    samples: Samples = "graphs" if is_collection(whole) else "nodes"
    checked = checked_split(chosen, y, has_classes=objective.has_classes, samples=samples)
    if not len(checked.test):
        raise DataError("training in batches measures a test part, and this split has none; train it with fit")
    if objective.has_classes:
        everyone = torch.cat([checked.train, checked.val, checked.test]).to(y.device)
        objective = replace(objective, num_classes=int(y[everyone].max()) + 1)
    return checked, objective


def _check_count(name: str, value: object) -> None:
    """Refuse what is not a whole number from 1 on."""
    if not is_count(value):
        raise ValueError(f"{name} must be a whole number >= 1, got {value!r}")


def _renamed(result: Fit, metric: str) -> Fit:
    """The result with the name of the metric that took the place of the accuracy."""
    history = {"val_score" if name == "val_accuracy" else name: values for name, values in result.history.items()}
    return replace(result, history=history, metric=metric)


def _train(
    model: nn.Module, task: Task, schedule: Schedule, awp: AwpConfig | None, accumulate: int, device: torch.device
) -> Fit:
    """Train for all epochs, and write the weights of the selected one into the model."""
    method = WTAWP(model, **vars(awp)) if awp is not None else WTAWP(model, rho=0.0, lam=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=schedule.lr, weight_decay=schedule.weight_decay)
    # Views of the parameters and buffers, so that they follow the training.
    theta, buffers = ({n: t.detach()[None] for n, t in named} for named in _state_of(model))
    optimizer.zero_grad()  # gradients of the caller do not count
    best = BestWeights(theta, buffers, 1, device, schedule.select_on)
    history: dict[str, list[float]] = {"train_loss": [], "val_loss": [], "val_accuracy": []}
    for epoch in range(schedule.epochs):
        train_loss = _one_epoch(model, task, method, optimizer, accumulate)
        measured = task.scores(["train", "val"] if method.config.is_auto else ["val"])
        val_loss, val_accuracy = measured["val"]
        now, loss, score = (torch.tensor(v, device=device) for v in (epoch, [val_loss], [val_accuracy]))
        buffers.update({n: b.detach()[None] for n, b in model.named_buffers()})  # a forward pass may replace them
        best.update(now, loss, score, None)
        if method.config.is_auto:
            history.setdefault("lam", []).append(method.lam)
            history.setdefault("rho", []).append(method.rho)
            method.observe(train_loss=measured["train"][0], val_loss=val_loss)
        for name, value in (("train_loss", train_loss), ("val_loss", val_loss), ("val_accuracy", val_accuracy)):
            history[name].append(value)
        report_progress((epoch + 1) / schedule.epochs)
    with torch.no_grad():
        for named, kept in zip(_state_of(model), (best.best, best.best_buffers), strict=True):
            for name, t in named:
                t.copy_(kept[name][0])
    scores = task.scores(PARTS)
    losses, accuracies = ({name: pair[i] for name, pair in scores.items()} for i in (0, 1))
    return Fit(int(best.epoch), accuracies, losses, history)


def _one_epoch(model: nn.Module, task: Task, awp: WTAWP, optimizer: torch.optim.Optimizer, accumulate: int) -> float:
    """Train for one epoch; returns the mean loss over the batches."""
    model.train()
    losses: list[Tensor] = []
    num_accumulated = 0
    for batch in task.batches:
        closure = task.closure(batch)
        if closure is None:
            continue
        losses.append(awp.backward(closure))
        num_accumulated += 1
        if num_accumulated == accumulate:
            _step(model, optimizer, num_accumulated)
            num_accumulated = 0
    if not losses:
        raise DataError("no batch of this epoch has a training node; check the loader and the split")
    if num_accumulated:
        _step(model, optimizer, num_accumulated)
    return float(torch.stack(losses).mean())


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, num_accumulated: int) -> None:
    """Step along the mean of the accumulated gradients.

    The gradients are averaged, not the losses: projection onto a ball depends on the scale of the loss.
    """
    for p in model.parameters():
        if p.grad is not None and num_accumulated > 1:
            p.grad.div_(num_accumulated)
    optimizer.step()
    optimizer.zero_grad()


def _state_of(model: nn.Module) -> tuple[list[tuple[str, Tensor]], list[tuple[str, Tensor]]]:
    """The parameters and the buffers of a model, with their names."""
    return list(model.named_parameters()), list(model.named_buffers())
