"""Train one node classifier in the paper's protocol (sec:training setup)."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.base import fenced_rng
from wtawp.core import WTAWP, AwpConfig
from wtawp.graphs import Split

PLAIN = AwpConfig(rho=0.0, lam=0.0)


@dataclass(frozen=True)
class Fit:
    """What a training run measured. The selected epoch's weights are in the model that was passed in."""

    epoch: int  # the selected one
    accuracy: dict[str, float]  # on "train", "val", "test", at the selected epoch
    loss: dict[str, float]  # likewise, without dropout
    history: dict[str, list[float]]  # "train_loss" (of the training step), "val_loss", "val_accuracy", per epoch


def fit(
    model: nn.Module,
    data: Data,
    split: Split,
    *,
    seed: int,
    awp: AwpConfig | None = None,
    epochs: int = 200,
    lr: float = 0.01,
    weight_decay: float = 5e-4,
    augment: Callable[[Data, int], Data] | None = None,
    observe: Callable[[nn.Module, int], None] | None = None,
) -> Fit:
    """Train `model` full batch with Adam and keep the last epoch that improved validation loss or accuracy.

    Any module called as `model(x, edge_index)` will do. `awp` says how weights are perturbed; None trains plainly.
    `augment(data, epoch)` may change what the training pass sees; `observe(model, epoch)` is called after each epoch.
    Dropout follows from `seed` alone, and the caller's random state is left as it was.
    """
    if epochs < 1:
        raise ValueError(f"epochs must be >= 1, got {epochs}")
    device = next(model.parameters()).device
    data = data.to(device)
    perturbation = WTAWP(model, **vars(awp or PLAIN))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay)
    history: dict[str, list[float]] = {"train_loss": [], "val_loss": [], "val_accuracy": []}
    best_loss, best_accuracy, selected, state = float("inf"), -1.0, 0, model.state_dict()

    with fenced_rng("dropout", seed):
        for epoch in range(epochs):
            seen = data if augment is None else augment(data, epoch)
            model.train()
            optimizer.zero_grad()
            train_loss = perturbation.backward(partial(_train_loss, model, seen, split.train))
            optimizer.step()
            loss, accuracy = evaluate(model, data, split.val)
            for name, value in (("train_loss", float(train_loss)), ("val_loss", loss), ("val_accuracy", accuracy)):
                history[name].append(value)
            if loss < best_loss or accuracy > best_accuracy:
                selected, state = epoch, copy.deepcopy(model.state_dict())
            best_loss, best_accuracy = min(best_loss, loss), max(best_accuracy, accuracy)
            if observe is not None:
                observe(model, epoch)

    model.load_state_dict(state)
    parts = {name: evaluate(model, data, getattr(split, name)) for name in ("train", "val", "test")}
    return Fit(
        epoch=selected,
        accuracy={name: accuracy for name, (_, accuracy) in parts.items()},
        loss={name: loss for name, (loss, _) in parts.items()},
        history=history,
    )


@torch.no_grad()
def evaluate(model: nn.Module, data: Data, nodes: Tensor) -> tuple[float, float]:
    """Loss and accuracy on `nodes`, without dropout; leaves the model in evaluation mode."""
    model.eval()
    logits = model(data.x, data.edge_index)
    return float(_loss(logits, data.y, nodes)), float((logits[nodes].argmax(1) == data.y[nodes]).float().mean())


def _train_loss(model: nn.Module, data: Data, nodes: Tensor) -> Tensor:
    return _loss(model(data.x, data.edge_index), data.y, nodes)


def _loss(logits: Tensor, y: Tensor, nodes: Tensor) -> Tensor:  # [n, c], [n], [k] -> []
    return F.cross_entropy(logits[nodes], y[nodes])
