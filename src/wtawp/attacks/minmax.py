"""The Min-Max topology attack (Xu et al. 2019): flips against a model that goes on learning while they move.

max over flips of min over weights of the loss, for poisoning: PGD's steps on the flips take turns with steps of
training on the relaxed graph.
"""

import copy
import math

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.attacks.gradient import BlackBoxVictim, Traced, attacked_by_gradient
from wtawp.attacks.pgd import ascend, checked_step_size, round_by_sampling
from wtawp.attacks.relaxed import Loss, Relaxed, Target, target_of
from wtawp.base import rng
from wtawp.graphs.flips import EdgeFlips, budget_of
from wtawp.models.evaluation import evaluating


def minmax(
    data: Data,
    victim: nn.Module,
    *,
    budget: float | int,
    nodes: Tensor,
    labels: Tensor,
    seed: int,
    train: Tensor | None = None,
    steps: int = 200,
    lr: float = 0.01,
    weight_decay: float = 5e-4,
    loss: Loss = "ce",
    samples: int = 20,
    step_size: float | None = None,
) -> EdgeFlips:
    """Flips that raise the loss on `nodes` of a victim that learns `labels` [n] on `train` (None: on the same nodes).

    Each step is one of Adam on a copy of the victim's weights, starting from those it comes with, against the
    cross-entropy on the relaxed graph, without dropout; then one of `pgd` on the flips. The final draw is judged with
    the last weights, and the seed decides it alone.
    """
    count, size = budget_of(data, budget), int(data.num_nodes)
    step_size = checked_step_size(steps, loss, samples, step_size)
    if not (0 < lr < math.inf and 0 <= weight_decay < math.inf):
        raise ValueError(f"lr must be positive and weight_decay >= 0, got {lr} and {weight_decay}")
    victim = copy.deepcopy(victim)
    with evaluating(victim):
        attacked = attacked_by_gradient(target_of(data, [nodes], [labels], loss), [victim])
        lessons = target_of(data, [nodes if train is None else train], [labels], "ce")
        if not attacked.weights:
            raise ValueError(f"{type(victim).__name__} has no weights that can learn; pgd attacks models as they are")
        optimizer = torch.optim.Adam(attacked.weights, lr=lr, weight_decay=weight_decay)
        flips = attacked.target.nothing()
        for t in range(steps):
            _learn(attacked, lessons, flips, optimizer)
            flips = ascend(attacked, flips, step_size / math.sqrt(t + 1), count, is_first=t == 0)
        (codes,) = round_by_sampling(attacked, flips, count, samples, [rng("attack", "minmax", seed)])
    origin = {"attack": "minmax", "budget": budget, "seed": seed, "steps": steps, "loss": loss, "samples": samples}
    origin |= {"step_size": step_size, "lr": lr, "weight_decay": weight_decay}
    provenance = tuple((name, str(value)) for name, value in origin.items())
    return EdgeFlips.of(torch.stack([codes // size, codes % size]), size, provenance)


def _learn(
    attacked: Traced | BlackBoxVictim, lessons: Target, flips: Relaxed, optimizer: torch.optim.Optimizer
) -> None:
    """One step of training; afterwards the weights are constants again."""
    for weight in attacked.weights:
        weight.requires_grad_()
    with torch.enable_grad():
        value = lessons.losses(attacked.logits(flips)[0]).sum()
        grads = torch.autograd.grad(value, attacked.weights, allow_unused=True)
    for weight, grad in zip(attacked.weights, grads, strict=True):
        weight.requires_grad_(False)
        weight.grad = grad
    optimizer.step()
    optimizer.zero_grad()
