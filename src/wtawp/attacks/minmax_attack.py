"""The Min-Max topology attack (Xu et al. 2019): flips against a model that goes on learning while they move.

max over flips of min over weights of the loss, for poisoning: PGD's steps on the flips take turns with steps of
training on the relaxed graph.
"""

import copy
import math

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.attacks.gradient import BlackBoxVictim, FactoredVictims, attacked_by_gradient
from wtawp.attacks.losses import Loss
from wtawp.attacks.pgd_attack import ascent_step, checked_step_size, round_by_sampling
from wtawp.attacks.relaxed import RelaxedFlips, Target, target_of
from wtawp.base import checked_seed, report_progress, rng
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
    """Find flips that raise the loss of a victim that goes on learning while the flips change.

    Each step is one step of Adam on a copy of the victim's weights, against the cross-entropy on the relaxed graph and
    without dropout, and then one step of `pgd` on the flips.

    Args:
        data: The graph.
        victim: The model, called as `victim(x, edge_index, edge_weight)`. A copy of it is trained, starting from the
            weights that it has; the model itself is not changed.
        budget: The number of flips allowed: undirected edges (int) or a share of the graph's edges (float).
        nodes: The nodes whose loss is to rise, as indices or a mask.
        labels: The labels of all nodes, [n].
        seed: The seed of the final draws.
        train: The nodes that the victim is trained on, as indices or a mask. None: `nodes`.
        steps: The number of steps.
        lr: The learning rate of Adam.
        weight_decay: The weight decay of Adam.
        loss: The loss that the flips raise, as for `pgd`.
        samples: The number of sets of flips drawn at the end; the best one for the last weights is returned.
        step_size: Step t on the flips is `step_size` / sqrt(t + 1) times the gradient. None: as for `pgd`.

    Returns:
        The flips.

    Raises:
        ValueError: If the victim has no weights that can learn, or nodes, labels or options are not what they must be.
        AttackError: If the victim ignores the graph, its outputs are not finite, or no flip raises the loss.

    Example:
        >>> from wtawp.graphs import citation
        >>> from wtawp.models import GCN
        >>> data, victim = citation(seed=0, num_nodes=60, num_words=20), GCN(20, 7, generator=rng("victim"))
        >>> len(minmax(data, victim, budget=5, nodes=torch.arange(10), labels=data.y, seed=0, steps=3))
        5
    """
    seed = checked_seed(seed)
    count, size = budget_of(data, budget), int(data.num_nodes)
    step_size = checked_step_size(steps, loss, samples, step_size)
    if not (0 < lr < math.inf and 0 <= weight_decay < math.inf):
        raise ValueError(f"lr must be positive and weight_decay >= 0, got {lr} and {weight_decay}")
    victim = copy.deepcopy(victim)
    with evaluating(victim):
        attacked = attacked_by_gradient(target_of(data, [nodes], [labels], loss, victim=victim), [victim])
        training_target = target_of(data, [nodes if train is None else train], [labels], "ce", victim=victim)
        if not attacked.weights:
            raise ValueError(
                f"{type(victim).__name__} has no weights that can learn; use pgd, which attacks models as they are"
            )
        optimizer = torch.optim.Adam(attacked.weights, lr=lr, weight_decay=weight_decay)
        flips = attacked.target.no_flips()
        for t in range(steps):
            _learn(attacked, training_target, flips, optimizer)
            flips = ascent_step(attacked, flips, step_size / math.sqrt(t + 1), count, is_first=t == 0)
            report_progress((t + 1) / steps)
        (codes,) = round_by_sampling(attacked, flips, count, samples, [rng("attack", "minmax", seed)])
    origin = {"attack": "minmax", "budget": budget, "seed": seed, "steps": steps, "loss": loss, "samples": samples}
    origin |= {"step_size": step_size, "lr": lr, "weight_decay": weight_decay}
    provenance = tuple((name, str(value)) for name, value in origin.items())
    return EdgeFlips.of(torch.stack([codes // size, codes % size]), size, provenance)


def _learn(
    attacked: FactoredVictims | BlackBoxVictim,
    training_target: Target,
    flips: RelaxedFlips,
    optimizer: torch.optim.Optimizer,
) -> None:
    """One step of training; afterwards the weights are constants again."""
    for weight in attacked.weights:
        weight.requires_grad_()
    with torch.enable_grad():
        value = training_target.losses(attacked.logits(flips)[0]).sum()
        grads = torch.autograd.grad(value, attacked.weights, allow_unused=True)
    for weight, grad in zip(attacked.weights, grads, strict=True):
        weight.requires_grad_(False)
        weight.grad = grad
    optimizer.step()
    optimizer.zero_grad()
