"""Read the leaves of a loss from its autograd graph, and detect graphs that a step could not handle correctly."""

import gc
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

with torch.inference_mode(False), torch.enable_grad():  # whoever imports this may have switched them
    _ACCUMULATE = type(torch.ones(1, requires_grad=True).view(1).grad_fn.next_functions[0][0])  # type: ignore[union-attr]


def nodes_of(*outputs: Tensor) -> list[Node]:
    """The nodes of the graph of a loss that autograd shows; reentrant checkpointing hides those inside of it.

    Args:
        *outputs: The loss, or several outputs.

    Returns:
        Every node once; none if the loss is a leaf itself.
    """
    return nodes_above(dict.fromkeys(output.grad_fn for output in outputs if output.grad_fn is not None))


def nodes_above(nodes: Iterable[Node]) -> list[Node]:
    """Nodes of a graph, and all from whose outputs they compute.

    Args:
        nodes: Some nodes, each once.

    Returns:
        Every node once.
    """
    nodes = list(nodes)
    seen = set(nodes)
    for node in nodes:  # the list grows while it is read
        if type(node) is not _ACCUMULATE:
            for parent, _ in node.next_functions:
                if parent is not None and parent not in seen:
                    seen.add(parent)
                    nodes.append(parent)
    return nodes


def leaves_of(loss: Tensor) -> list[Tensor]:
    """The leaves whose `.grad` the backward pass fills: those of the graph, not of a model.

    Every pass asks for them, so this is a walk of its own, which is faster than `nodes_of`.

    Args:
        loss: The loss.

    Returns:
        The leaves, so that a parameter outside the model, such as a learned temperature, is included.
    """
    if loss.grad_fn is None:
        return [loss]
    nodes, seen, leaves = [loss.grad_fn], {loss.grad_fn}, []
    for node in nodes:  # the list grows while it is read
        for parent, _ in node.next_functions:
            if parent is not None and parent not in seen:
                seen.add(parent)
                if type(parent) is _ACCUMULATE:
                    leaves.append(parent.variable)  # type: ignore[attr-defined]
                else:
                    nodes.append(parent)
    return leaves


def is_leaf(node: Node) -> bool:
    """Whether a node adds to the `.grad` of a leaf.

    Args:
        node: A node of a graph.

    Returns:
        False for nodes that compute something.
    """
    return type(node) is _ACCUMULATE


def accumulating_leaves(nodes: list[Node]) -> list[Tensor]:
    """The leaves into whose `.grad` nodes of a graph add.

    Args:
        nodes: The nodes of a graph.

    Returns:
        The leaves.
    """
    return [node.variable for node in nodes if type(node) is _ACCUMULATE]  # type: ignore[attr-defined]


def has_reentrant_checkpoints(nodes: list[Node]) -> bool:
    """Whether the graph has parts that reentrant checkpointing computes again, with leaves that nobody can see before.

    Args:
        nodes: The nodes of a graph.

    Returns:
        True if there is such a part.
    """
    return any(node.name() == "CheckpointFunctionBackward" for node in nodes)


def all_leaves() -> list[Tensor]:
    """All leaves of this process that can have a gradient, found by the garbage collector, which takes milliseconds.

    Returns:
        Every plain tensor and parameter that requires a gradient and was not computed.
    """
    tensors = [o for o in gc.get_objects() if type(o) in (Tensor, nn.Parameter)]  # isinstance would run users' code
    return [t for t in tensors if t.requires_grad and t.is_leaf]


def computes_in_float16(nodes: list[Node]) -> bool:
    """Whether gradients pass through float16, where small ones underflow unless the loss is scaled.

    Args:
        nodes: The nodes of a graph.

    Returns:
        True if any gradient of the graph is a float16 tensor.
    """
    return any(getattr(meta, "dtype", None) == torch.float16 for node in nodes for meta in node._input_metadata)


def has_static_graph(nodes: list[Node]) -> bool:
    """Whether the graph comes from a `DistributedDataParallel` with `static_graph=True`.

    Args:
        nodes: The nodes of a graph.

    Returns:
        True if one of them is the node with which such a model marks its output.
    """
    sinks = (node for node in nodes if node.name() == "_DDPSinkBackward")
    return any(getattr(_wrapper_of(sink), "static_graph", False) for sink in sinks)


def _wrapper_of(sink: Any) -> Any:
    """The `DistributedDataParallel` that a node of its output belongs to."""
    return sink.ddp_weakref() if callable(getattr(sink, "ddp_weakref", None)) else None


def is_scaled_by_grad_scaler(loss: Tensor) -> bool:
    """Whether a loss was returned by `GradScaler.scale`.

    Args:
        loss: The loss.

    Returns:
        True if its last operation multiplied it by the scale of a living `GradScaler`.
    """
    node = loss.grad_fn
    if node is None or node.name() != "MulBackward0":
        return False
    factors = [getattr(node, f"_saved_{side}", None) for side in ("self", "other")]
    candidates = [f for f in factors if isinstance(f, Tensor) and f.dtype == torch.float32 and not f.requires_grad]
    if not candidates:
        return False
    kind = torch.amp.GradScaler
    scalers = [o for o in gc.get_objects() if issubclass(type(o), kind)]  # isinstance would run users' __class__
    scales = [s._scale for s in scalers if s._scale is not None]
    return any(f.data_ptr() == scale.data_ptr() for f in candidates for scale in scales)
