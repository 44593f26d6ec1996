"""Train a classifier of graphs on minibatches, with PyG's loader and the public `WTAWP.backward` alone."""

import copy
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from wtawp.base import isolated_rng, rng
from wtawp.core import WTAWP, AwpConfig
from wtawp.graphs import Split, batched, select_graphs
from wtawp.models.inputs import arguments_of, check_kind
from wtawp.training.engine import Selection
from wtawp.training.evaluation import evaluate
from wtawp.training.loop import Fit
from wtawp.training.options import SelectOn


def fit_batches(
    model: nn.Module,
    graphs: Sequence[Data],
    split: Split,
    *,
    seed: int,
    batch_size: int,
    accumulate: int = 1,
    awp: AwpConfig | None = None,
    epochs: int = 200,
    lr: float = 0.01,
    weight_decay: float = 5e-4,
    select_on: SelectOn = "either",
) -> Fit:
    """Train a classifier of graphs on shuffled minibatches with Adam, and select an epoch as `fit` does.

    Each batch has its own perturbation, computed from its own gradient. Buffers, such as batch-norm statistics, are
    updated once by each batch.

    Args:
        model: A module called as `model(x, edge_index, batch)`. It is trained on its own device and holds the weights
            of the selected epoch afterwards.
        graphs: The graphs, which are the samples.
        split: The training, validation and test graphs, as positions in `graphs`.
        seed: Determines the order of the batches and the dropout masks.
        batch_size: Number of graphs in a batch; the last batch of an epoch may be smaller.
        accumulate: Number of batches whose gradients are averaged for one step of the optimizer; the last step of an
            epoch may have fewer.
        awp: How the weights are perturbed; None is plain training.
        epochs: Number of epochs, at least 1.
        lr: Learning rate of Adam.
        weight_decay: Weight decay of Adam.
        select_on: What must improve on the validation set for an epoch to be selected: "loss", "accuracy", or "either"
            of them, which is the rule of the released code. "last" selects the last epoch.

    Returns:
        The selected epoch, its accuracies and losses, and a history of "train_loss" (the mean over the batches of an
        epoch), "val_loss" and "val_accuracy".

    Raises:
        ValueError: If `epochs`, `batch_size` or `accumulate` is below 1, or the model has no parameters.
        DataError: If the model classifies nodes, or `graphs` is a single graph.
    """
    for name, number in (("epochs", epochs), ("batch_size", batch_size), ("accumulate", accumulate)):
        if number < 1:
            raise ValueError(f"{name} must be >= 1, got {number}")
    device = next((p.device for p in model.parameters()), None)
    if device is None:
        raise ValueError(f"{type(model).__name__} has no parameters to train")
    all_graphs = copy.copy(batched(graphs)).to(device)
    check_kind(model, all_graphs)
    part_of = {name: select_graphs(all_graphs, getattr(split, name).to(device)) for name in ("train", "val", "test")}
    rows = {name: torch.arange(len(part.y), device=device) for name, part in part_of.items()}
    loader = DataLoader(
        [graphs[i] for i in split.train.tolist()], batch_size, shuffle=True, generator=rng("batches", seed)
    )
    method = WTAWP(model, **vars(awp)) if awp is not None else WTAWP(model, rho=0.0, lam=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay)
    # Views of the parameters and buffers, so that they follow the training.
    theta, buffers = ({n: t.detach()[None] for n, t in named} for named in _state_of(model))
    best = Selection(theta, buffers, 1, device, select_on)
    history: dict[str, list[float]] = {"train_loss": [], "val_loss": [], "val_accuracy": []}
    with isolated_rng("torch dropout", seed):
        for epoch in range(epochs):
            train_loss = _one_epoch(model, loader, method, optimizer, accumulate, device)
            val_loss, val_accuracy = evaluate(model, part_of["val"], rows["val"])
            now, loss, accuracy = (torch.tensor(v, device=device) for v in (epoch, [val_loss], [val_accuracy]))
            best.update(now, loss, accuracy, None)
            for name, value in zip(history, (train_loss, val_loss, val_accuracy), strict=True):
                history[name].append(value)
    with torch.no_grad():
        for named, kept in zip(_state_of(model), (best.best, best.best_buffers), strict=True):
            for name, t in named:
                t.copy_(kept[name][0])
    scores = {name: evaluate(model, part, rows[name]) for name, part in part_of.items()}
    losses, accuracies = ({name: pair[i] for name, pair in scores.items()} for i in (0, 1))
    return Fit(int(best.epoch), accuracies, losses, history)


def _one_epoch(
    model: nn.Module, loader: DataLoader, awp: WTAWP, optimizer: torch.optim.Adam, accumulate: int, device: torch.device
) -> float:
    """Train for one epoch; returns the mean loss over the batches."""
    model.train()
    losses = []
    for number, batch in enumerate(loader):
        batch = batch.to(device)
        losses.append(awp.backward(partial(_loss, model, batch)))
        num_accumulated = number % accumulate + 1
        if num_accumulated < accumulate and number + 1 < len(loader):
            continue
        for p in model.parameters():
            # The gradients are averaged, not the losses: projection onto a ball depends on the scale of the loss.
            if p.grad is not None and num_accumulated > 1:
                p.grad.div_(num_accumulated)
        optimizer.step()
        optimizer.zero_grad()
    return float(torch.stack(losses).mean())


def _loss(model: nn.Module, batch: Data) -> Tensor:
    """The mean cross-entropy over the graphs of a batch."""
    return F.cross_entropy(model(*arguments_of(batch)), batch.y)


def _state_of(model: nn.Module) -> tuple[list[tuple[str, Tensor]], list[tuple[str, Tensor]]]:
    """The parameters and the buffers of a model, with their names."""
    return list(model.named_parameters()), list(model.named_buffers())
