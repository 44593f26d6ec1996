"""What attacks require of a victim, of nodes and of labels."""

import inspect

import torch
from torch import Tensor, nn

from wtawp.base import AttackError


def refuse_nan(gradient: Tensor) -> None:
    """Refuse a gradient with entries that are NaN or infinite."""
    if not bool(torch.isfinite(gradient).all()):
        raise AttackError("the victim's gradient with respect to edges is NaN or infinite")


def refuse_without_weights(victim: nn.Module, attack: str) -> None:
    """Refuse a victim whose third argument is not `edge_weight`: others, such as `edge_attr`, mean something else."""
    parameters = list(inspect.signature(victim.forward).parameters.values())
    is_named = "edge_weight" in [p.name for p in parameters[:3]]
    if not is_named and inspect.Parameter.VAR_POSITIONAL not in [p.kind for p in parameters]:
        raise AttackError(
            f"{type(victim).__name__} takes no edge_weight, and {attack} differentiates by it;"
            " it must be called as victim(x, edge_index, edge_weight)"
        )


def checked_nodes(nodes: Tensor, size: int, name: str = "nodes") -> Tensor:  # -> [k] int64
    """Nodes as indices, from indices or a mask of all nodes; `name` is that of the argument, for errors."""
    if nodes.dtype == torch.bool and nodes.shape == (size,):
        nodes = nodes.nonzero()[:, 0]
    if nodes.dim() != 1 or nodes.dtype != torch.int64 or len(nodes) == 0:
        got = f"{nodes.dtype} {list(nodes.shape)}"
        raise ValueError(f"{name} must be one or more nodes, as indices or as a mask of all {size}, got {got}")
    if int(nodes.min()) < 0 or int(nodes.max()) >= size:
        raise ValueError(f"{name} must lie in 0 to {size - 1}, got {int(nodes.min())} to {int(nodes.max())}")
    return nodes


def checked_labels(labels: Tensor, size: int) -> Tensor:  # -> [n] int64
    """The labels of all nodes as int64."""
    if labels.shape != (size,) or labels.is_floating_point():
        got = f"{labels.dtype} {list(labels.shape)}"
        raise ValueError(f"labels must be whole numbers, one for each node, [{size}]; got {got}")
    return labels.long()
