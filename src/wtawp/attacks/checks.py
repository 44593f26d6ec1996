"""What attacks require of a victim, of nodes and of labels."""

import inspect

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.base import AttackError, DataError
from wtawp.graphs.collection import is_collection
from wtawp.models.calls import check_initialized, checked_call, takes_edge_weight
from wtawp.models.capabilities import StackAware
from wtawp.models.evaluation import evaluating, refuse_cached


def refuse_nan(gradient: Tensor, by: str = "edges") -> None:
    """Refuse a gradient with entries that are NaN or infinite; `by` is what the victim was differentiated by."""
    if not bool(torch.isfinite(gradient).all()):
        raise AttackError(f"the victim's gradient with respect to {by} is NaN or infinite")


def refuse_without_weights(victim: nn.Module, attack: str) -> None:
    """Refuse a victim whose third argument is not the weights of edges: others, such as `edge_attr`, are not."""
    kinds = [p.kind for p in inspect.signature(victim.forward).parameters.values()]
    if not takes_edge_weight(victim) and inspect.Parameter.VAR_POSITIONAL not in kinds:
        raise AttackError(
            f"{type(victim).__name__} takes no edge_weight, and {attack} differentiates by it;"
            " it must be called as victim(x, edge_index, edge_weight). Put a module around it that is, or find the"
            " flips on a GCN and apply them"
        )


def check_graph(data: object) -> None:
    """Refuse what is not one graph without weights, whose edges can be flipped."""
    if not isinstance(data, Data) or is_collection(data):
        raise DataError(f"attacks flip edges of one homogeneous graph, a PyG Data, got {type(data).__name__}")
    if data.get("edge_weight") is not None:
        raise DataError(
            "attacks add edges and remove them, and know no weights of edges; attack a copy of the graph without"
            " edge_weight, and train the victim on that"
        )


def check_victim(victim: object, data: Data, attack: str, *, is_callable_enough: bool = False) -> None:
    """Refuse a victim that does not return one row of logits for each node, before anything is attacked.

    With `is_callable_enough`, for attacks that use predictions alone, what is callable but not a module passes: the
    attack checks what it returns.
    """
    if is_callable_enough and callable(victim) and not isinstance(victim, nn.Module):
        return
    if not isinstance(victim, nn.Module):
        raise AttackError(f"the attack {attack!r} needs a victim, a torch.nn.Module, got {type(victim).__name__}")
    refuse_cached(victim)
    check_initialized(victim)
    if not isinstance(victim, StackAware):
        with evaluating(victim), torch.no_grad():
            logits = checked_call(victim, (data.x, data.edge_index), data.num_nodes)
        if logits.dim() != 2:
            raise DataError(f"the victim must return a row of logits for each node, [n, c], got {list(logits.shape)}")


def checked_labels(labels: Tensor, size: int) -> Tensor:  # -> [n] int64
    """The labels of all nodes as int64."""
    if labels.shape != (size,) or labels.is_floating_point():
        got = f"{labels.dtype} {list(labels.shape)}"
        raise ValueError(f"labels must be whole numbers, one for each node, [{size}]; got {got}")
    return labels.long()
