"""What attacks require of a victim, of nodes and of labels."""

import inspect

import numpy as np
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
    has_odd_features = not isinstance(data.x, Tensor) or not data.x.is_floating_point()
    if not isinstance(victim, StackAware) or has_odd_features:
        if isinstance(victim, StackAware):
            refuse_without_features(data)
        with evaluating(victim), torch.no_grad():
            logits = checked_call(victim, (data.x, data.edge_index), data.num_nodes)
        if logits.dim() != 2:
            raise DataError(f"the victim must return a row of logits for each node, [n, c], got {list(logits.shape)}")


def as_label_tensor(labels: object) -> Tensor:
    """Labels as a tensor, whatever they are held in; their shape and values are not checked."""
    if labels is None:
        raise DataError("the graph has no labels y; pass labels=, one whole number for each node")
    if isinstance(labels, Tensor):
        return labels
    try:
        return torch.tensor(np.asarray(labels))  # a copy: an array may be read-only
    except (TypeError, ValueError, RuntimeError) as error:  # texts, or lists of different lengths
        raise DataError(f"labels must be a tensor, an array or a list of whole numbers; {error}") from error


def checked_labels(labels: object, size: int) -> Tensor:  # -> [n] int64
    """The labels of all nodes as int64."""
    known = as_label_tensor(labels)
    if known.shape != (size,) or known.is_floating_point() or known.is_complex():
        got = f"{known.dtype} {list(known.shape)}"
        raise ValueError(f"labels must be whole numbers, one for each node, [{size}]; got {got}")
    return known.long()


def refuse_without_features(data: Data) -> None:
    """Refuse a graph without features."""
    if data.x is None:
        raise DataError("the graph has no features x; give each node its own (x = torch.eye(num_nodes)) or a 1")


def checked_dtype(data: Data, victim: nn.Module | None) -> torch.dtype:
    """The type of numbers to attack in: that of floating features, else that of the victim's weights."""
    refuse_without_features(data)
    dtype: torch.dtype = data.x.dtype
    if dtype.is_floating_point:
        return dtype
    if isinstance(victim, StackAware):
        raise DataError(
            f"{type(victim).__name__} takes floating-point features, and data.x is {dtype}; write data.x ="
            " data.x.float()"
        )
    weights = () if victim is None else victim.parameters()
    return next((p.dtype for p in weights if p.is_floating_point()), torch.get_default_dtype())


def refuse_whole_features(data: Data, what: str) -> None:
    """Refuse features that are not floating-point numbers, where something computes with them; `what` does."""
    if data.x is None or data.x.dim() != 2 or not data.x.is_floating_point():
        got = "none" if data.x is None else f"{data.x.dtype} {list(data.x.shape)}"
        raise DataError(f"{what} needs features data.x, floats of shape [n, d] (an identity will do), got {got}")
