"""What attacks that differentiate by edge weights ask of a victim."""

import inspect

import torch
from torch import Tensor, nn

from wtawp.base import AttackError


def refuse_nan(gradient: Tensor) -> None:
    """A gradient must be of numbers."""
    if not bool(torch.isfinite(gradient).all()):
        raise AttackError("the victim's gradient with respect to edges is NaN or infinite")


def refuse_without_weights(victim: nn.Module, attack: str) -> None:
    """The victim must take a third argument, `edge_weight`: others, such as `edge_attr`, mean something else."""
    taken = list(inspect.signature(victim.forward).parameters.values())
    is_named = "edge_weight" in [p.name for p in taken[:3]]
    if not is_named and inspect.Parameter.VAR_POSITIONAL not in [p.kind for p in taken]:
        raise AttackError(
            f"{type(victim).__name__} takes no edge_weight, and {attack} differentiates by it;"
            " it must be called as victim(x, edge_index, edge_weight)"
        )
