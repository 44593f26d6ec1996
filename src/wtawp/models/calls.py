"""How any module, ours or a user's, is called on a graph, and what it must return.

Modules are called as `model(x, edge_index)`, and as `model(x, edge_index, batch)` on collections of graphs. Weights of
edges are the third argument of those that take them. Everything else is written as an adapter, `forward(model, data)`.
"""

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric.data import Data, HeteroData

from wtawp.base import DataError, find_stack_level
from wtawp.graphs.collection import is_collection

Forward = Callable[[Any, Any], Tensor]  # a module and a graph -> one row for each node, or for each graph

EDGE_INPUTS = ("edge_weight", "edge_attr", "edge_type")
WEIGHT_NAMES = ("edge_weight", "edge_weights", "weight", "weights", "w")  # of the third argument of `forward`


def takes_edge_weight(model: nn.Module) -> bool:
    """Whether the third argument of a module is the weights of edges. Others, such as `edge_attr`, mean something else.

    Args:
        model: Any module.

    Returns:
        True if it is called `edge_weight`, or another of `WEIGHT_NAMES`. PyG's models that accept weights and ignore
        them, such as its GraphSAGE, do not count.
    """
    if getattr(model, "supports_edge_weight", True) is False:
        return False
    names = [p.name for p in _positional(model)]
    return len(names) > 2 and names[2] in WEIGHT_NAMES


def arguments_of(model: nn.Module, data: Data) -> tuple[object, ...]:
    """List the arguments with which a module computes the rows of a whole graph.

    Args:
        model: Any module.
        data: The graph, or a collection of graphs as one batch.

    Returns:
        Features and edges; for a collection also the graph that each node belongs to; and the weights of the edges if
        the graph has them and the module takes them. `edge_attr` and `edge_type` are added if the module requires them.

    Raises:
        DataError: If the module cannot be called so, or there is not one weight for each edge.
    """
    if is_collection(data):
        arguments: tuple[object, ...] = (data.x, data.edge_index, data.batch)
    elif data.get("edge_weight") is not None and takes_edge_weight(model):
        arguments = (data.x, data.edge_index, _edge_input(data, "edge_weight"))
    else:
        required = [p.name for p in _positional(model)[2:] if p.default is inspect.Parameter.empty]
        given = [name for name in required if name in EDGE_INPUTS and data.get(name) is not None]
        arguments = (data.x, data.edge_index, *(_edge_input(data, name) for name in given if given == required))
    _check_signature(model, arguments, data)
    return arguments


def warn_of_unused_edge_inputs(model: nn.Module, data: Data | Sequence[Data]) -> None:
    """Warn if a graph has weights, attributes or types of edges that a module is not called with.

    Args:
        model: Any module.
        data: The graph, or several graphs to classify, of which modules see features and edges alone.
    """
    if isinstance(data, Data):
        present = [name for name in EDGE_INPUTS if data.get(name) is not None]
        used = () if not present or is_collection(data) else arguments_of(model, data)[2:]
        unused = [name for name in present if not any(data[name] is argument for argument in used)]
    else:
        unused = [name for name in EDGE_INPUTS if any(graph.get(name) is not None for graph in data)]
    if unused:
        warnings.warn(
            f"the graph has {' and '.join(unused)}, which {type(model).__name__} is not called with; remove it from the"
            " graph if that is intended, else call the model with it: by forward=lambda model, data: ... in fit and"
            " evaluate of one graph, otherwise in a loop of your own",
            stacklevel=find_stack_level(),
        )


def warn_of_dropped_inputs(data: Data | Sequence[Data]) -> None:
    """Warn if graphs to classify have tensors that an adapter does not find, since only some are put together.

    Args:
        data: The graphs, as a list or as one batch.
    """
    graphs = [data] if isinstance(data, Data) else data
    kept = ("x", "edge_index", "y", "batch", "ptr")
    dropped = dict.fromkeys(
        name for graph in graphs for name, value in graph if isinstance(value, Tensor) and name not in kept
    )
    if dropped:
        warnings.warn(
            f"forward= is called with x, edge_index, y and batch of the graphs; {', '.join(dropped)} would be missing"
            " there. Remove it from the graphs if that is intended, else train in a loop of your own",
            stacklevel=find_stack_level(),
        )


def check_initialized(model: nn.Module) -> None:
    """Refuse a module with lazy layers that have no weights yet.

    Args:
        model: Any module.

    Raises:
        DataError: If a parameter has no shape.
    """
    lazy = [name for name, p in [*model.named_parameters(), *model.named_buffers()] if is_lazy(p)]
    if lazy:
        raise DataError(
            f"{', '.join(lazy[:3])} of {type(model).__name__} has no shape yet (a lazy layer); call the model once on"
            " the graph, under torch.no_grad(), before it is trained or evaluated"
        )


def checked_output(output: object, model: nn.Module, size: int | None = None) -> Tensor:
    """Refuse what is not one tensor with a row for each sample.

    Args:
        output: What a module, or an adapter, returned.
        model: The module, for the message.
        size: Number of rows that are expected; None for any.

    Returns:
        The same tensor.

    Raises:
        DataError: If the output is something else, such as a tuple or a dict of tensors.
    """
    name = type(model).__name__
    if not isinstance(output, Tensor):
        index = "[0]" if isinstance(output, tuple | list) else '["name"]' if isinstance(output, dict) else ""
        raise DataError(
            f"{name} must return one tensor with a row for each sample, got {type(output).__name__}; choose the tensor"
            f" in a module around {name}, or in fit and evaluate with forward=lambda model, data: model(data.x,"
            f" data.edge_index){index}"
        )
    if output.dim() == 0 or (size is not None and len(output) != size):
        raise DataError(f"{name} must return one row for each of {size} samples, got shape {list(output.shape)}")
    return output


def checked_call(model: nn.Module, arguments: tuple[object, ...], size: int | None = None) -> Tensor:
    """Call a module, and explain what is wrong if it fails or does not return one tensor.

    Args:
        model: Any module.
        arguments: Its positional arguments.
        size: Number of rows that are expected; None for any.

    Returns:
        What the module returned.

    Raises:
        DataError: If the module raises an error that its input can cause, or returns something else.
    """
    try:
        output = model(*arguments)
    except (RuntimeError, IndexError, TypeError) as error:
        if is_out_of_memory(error):
            raise
        raise explain_failure(error, model, arguments) from error
    return checked_output(output, model, size)


class Adapted(nn.Module):
    """A module that is called through a function of the module and the graph.

    Args:
        model: The module.
        call: Called as `call(model, data)`, returns one row for each sample.
    """

    def __init__(self, model: nn.Module, call: Forward) -> None:
        super().__init__()
        self.model, self.call = model, call

    def forward(self, data: Data | HeteroData) -> Tensor:
        """Call the function with the module and the graph."""
        return self.call(self.model, data)


def explain_failure(error: Exception, model: nn.Module, arguments: tuple[object, ...]) -> DataError:
    """Describe an exception of a module in terms of what it was called with.

    Args:
        error: What the module raised.
        model: The module.
        arguments: Its positional arguments.

    Returns:
        The error to raise instead.
    """
    given = ", ".join(
        f"{a.dtype} of shape {list(a.shape)}" if isinstance(a, Tensor) else type(a).__name__ for a in arguments
    )
    weights = {p.dtype for p in model.parameters() if p.is_floating_point()}
    types = ", ".join(sorted(str(t) for t in weights)) or "no floating point numbers"
    hint = "; put a module around it that is called as model(x, edge_index)" if isinstance(error, TypeError) else ""
    return DataError(
        f"{type(model).__name__}, whose weights are {types}, fails when it is called with ({given}): {error}{hint}"
    )


def is_out_of_memory(error: Exception) -> bool:
    """Whether an exception says that memory is exhausted, which is not the fault of the input.

    Args:
        error: Any exception.

    Returns:
        True for the errors of the CPU's and the GPU's allocators.
    """
    of_the_cpu = ("can't allocate memory", "not enough memory")  # on Linux, and elsewhere
    return isinstance(error, torch.OutOfMemoryError) or any(text in str(error) for text in of_the_cpu)


def _positional(model: nn.Module) -> list[inspect.Parameter]:
    """The parameters of `forward` that have a name and a position."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p for p in inspect.signature(model.forward).parameters.values() if p.kind in kinds]


def _edge_input(data: Data, name: str) -> Tensor:
    """Weights, attributes or types of all edges."""
    values: Tensor = data[name]
    if len(values) != data.edge_index.shape[1]:
        raise DataError(
            f"the graph has {len(values)} rows of {name} for {data.edge_index.shape[1]} edges; if its edges were"
            f" changed, as by an attack, {name} must be changed too, or removed"
        )
    return values


def _check_signature(model: nn.Module, arguments: tuple[object, ...], data: Data) -> None:
    """Refuse a module that cannot be called with so many arguments, and say how to adapt it or what the graph lacks."""
    try:
        inspect.signature(model.forward).bind(*arguments)
    except TypeError as error:
        passed = ["x", "edge_index", "batch"][: 3 if is_collection(data) else 2]
        taken = _positional(model)
        names = [p.name for p in taken]
        required = [_attribute(p.name) for p in taken[len(passed) :] if p.default is inspect.Parameter.empty]
        absent = [name for name in required if name in EDGE_INPUTS and data.get(name) is None]
        if absent and absent == required and not is_collection(data):
            advice = f"The graph has no {' and no '.join(absent)}: set data.{absent[0]}, with one row for each edge"
        else:
            own = [passed[i] if i < len(passed) and n not in passed else _attribute(n) for i, n in enumerate(names)]
            adapter = "model(data)" if len(names) == 1 else f"model({', '.join(f'data.{n}' for n in own)})"
            missing = f", after setting data.{' and data.'.join(absent)}, which the graph lacks" if absent else ""
            advice = f"Pass forward=lambda model, data: {adapter}{missing}, or put a module around it"
        raise DataError(
            f"{type(model).__name__} is called as model({', '.join(passed)}), but its forward takes"
            f" ({', '.join(names)}): {error}. {advice}"
        ) from None


def _attribute(name: str) -> str:
    """The attribute of a graph that a parameter of `forward` means."""
    return "edge_weight" if name in WEIGHT_NAMES else name
