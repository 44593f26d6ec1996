"""Every attack behind one function, by name."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.attacks.dice import dice
from wtawp.attacks.metattack import metattack, self_training_labels
from wtawp.attacks.minmax import minmax
from wtawp.attacks.pgd import pgd
from wtawp.attacks.prbcd import grbcd, prbcd
from wtawp.attacks.random_flips import random_flips
from wtawp.graphs.flips import EdgeFlips
from wtawp.models.evaluation import evaluating, refuse_cached

BY_GRADIENT: dict[str, Callable[..., EdgeFlips]] = {"pgd": pgd, "minmax": minmax, "prbcd": prbcd, "grbcd": grbcd}
METHODS = ("random", "dice", *BY_GRADIENT, "metattack")


def attack(
    data: Data,
    victim: nn.Module,
    *,
    budget: float | int,
    nodes: Tensor,
    method: str = "pgd",
    labels: Tensor | None = None,
    seed: int = 0,
    **options: Any,
) -> EdgeFlips:
    """Edge flips within a budget that mislead `victim` on `nodes` (indices or a mask) against `labels` (`data.y`).

    `method` is one of METHODS; `options` are those of the function of that name. For "metattack" `nodes` are the
    training nodes: the labels of all others are what the victim predicts. "random" and "dice" look at no victim.
    """
    labels = data.y if labels is None else labels
    refuse_cached(victim)
    if method in BY_GRADIENT:
        return BY_GRADIENT[method](data, victim, budget=budget, nodes=nodes, labels=labels, seed=seed, **options)
    if method == "random":
        return random_flips(data, budget=budget, seed=seed, **options)
    if method == "dice":
        return dice(data, budget=budget, labels=labels, seed=seed, **options)
    if method == "metattack":
        with evaluating(victim), torch.no_grad():
            guessed = self_training_labels(victim(data.x, data.edge_index), labels, nodes)
        return metattack(data, budget=budget, train=nodes, labels=guessed, seed=seed, **options)
    raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
