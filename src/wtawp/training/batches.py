"""Train a classifier of graphs on minibatches: PyG's loader, the public `WTAWP.backward`, and nothing else."""

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
from wtawp.training.engine import Selection, SelectOn
from wtawp.training.fit import Fit, evaluate


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
    """Train `model`, called as `model(x, edge_index, batch)`, on shuffled batches of graphs; otherwise as `fit`.

    Each batch has its own perturbation, from its own gradient; buffers (batch norms) see each batch once. `accumulate`
    takes the mean of so many batches' gradients for one step of the optimiser (the last step of an epoch may have
    fewer). The history holds the mean training loss of each epoch's batches, and loss and accuracy on validation.
    """
    for name, number in (("epochs", epochs), ("batch_size", batch_size), ("accumulate", accumulate)):
        if number < 1:
            raise ValueError(f"{name} must be >= 1, got {number}")
    device = next((p.device for p in model.parameters()), None)
    if device is None:
        raise ValueError(f"{type(model).__name__} has no parameters to train")
    whole = copy.copy(batched(graphs)).to(device)
    check_kind(model, whole)
    parts = {name: select_graphs(whole, getattr(split, name).to(device)) for name in ("train", "val", "test")}
    rows = {name: torch.arange(len(part.y), device=device) for name, part in parts.items()}
    loader = DataLoader(
        [graphs[i] for i in split.train.tolist()], batch_size, shuffle=True, generator=rng("batches", seed)
    )
    perturbed = WTAWP(model, **vars(awp)) if awp is not None else WTAWP(model, rho=0.0, lam=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay)
    theta, buffers = ({n: t.detach()[None] for n, t in named} for named in _state_of(model))  # views: they move along
    best = Selection(theta, buffers, 1, device, select_on)
    history: dict[str, list[float]] = {"train_loss": [], "val_loss": [], "val_accuracy": []}
    with isolated_rng("torch dropout", seed):
        for epoch in range(epochs):
            train_loss = _one_epoch(model, loader, perturbed, optimizer, accumulate, device)
            val_loss, val_accuracy = evaluate(model, parts["val"], rows["val"])
            now, loss, accuracy = (torch.tensor(v, device=device) for v in (epoch, [val_loss], [val_accuracy]))
            best.keep_if_better(now, loss, accuracy, None)
            for name, value in zip(history, (train_loss, val_loss, val_accuracy), strict=True):
                history[name].append(value)
    with torch.no_grad():
        for named, kept in zip(_state_of(model), (best.best, best.best_buffers), strict=True):
            for name, t in named:
                t.copy_(kept[name][0])
    found = {name: evaluate(model, part, rows[name]) for name, part in parts.items()}
    losses, accuracies = ({name: pair[i] for name, pair in found.items()} for i in (0, 1))
    return Fit(int(best.epoch), accuracies, losses, history)


def _one_epoch(
    model: nn.Module, loader: DataLoader, awp: WTAWP, optimizer: torch.optim.Adam, accumulate: int, device: torch.device
) -> float:
    """The mean loss over the batches."""
    model.train()
    losses = []
    for number, batch in enumerate(loader):
        batch = batch.to(device)
        losses.append(awp.backward(partial(_loss, model, batch)))
        gathered = number % accumulate + 1
        if gathered < accumulate and number + 1 < len(loader):
            continue
        for p in model.parameters():
            if p.grad is not None and gathered > 1:  # the gradients, not the losses: a ball's projection knows lengths
                p.grad.div_(gathered)
        optimizer.step()
        optimizer.zero_grad()
    return float(torch.stack(losses).mean())


def _loss(model: nn.Module, batch: Data) -> Tensor:
    return F.cross_entropy(model(*arguments_of(batch)), batch.y)


def _state_of(model: nn.Module) -> tuple[list[tuple[str, Tensor]], list[tuple[str, Tensor]]]:
    return list(model.named_parameters()), list(model.named_buffers())
