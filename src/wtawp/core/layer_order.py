"""The order of layers, read from the autograd graph of one forward pass.

A layer comes before another one if its output is used to compute the output of the other. So relations of a
heterogeneous model and heads of a model that work side by side have no order among them, and a skip connection around
a layer does not make the layer before it a last one.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.utils.hooks import RemovableHandle

Result = TypeVar("Result")


class LayerCalls:
    """Records which nodes of the autograd graph are outputs of which layers, during one call of a function.

    Args:
        modules: The layers; in the results they are numbered by their positions.

    Example:
        >>> from wtawp.core.autograd_graph import nodes_of
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
        >>> calls = LayerCalls(list(model))
        >>> loss = calls.recording(lambda: model(torch.ones(1, 2)).sum())()
        >>> calls.read_order(nodes_of(loss))
        {0: {1}, 1: set()}
    """

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self._modules, self._is_done = modules, False
        self._outputs: list[tuple[int, Node]] = []
        self._frozen: set[int] = set()  # layers outside the graph, because nothing in them is trained
        self._is_recording = False

    def recording(self, function: Callable[[], Result]) -> Callable[[], Result]:
        """Make a function that does the same and records its first call, in which compiled models run as written.

        Args:
            function: Runs forward passes.

        Returns:
            The new function. Its later calls record nothing.
        """

        def recorded() -> Result:
            if self._is_done:
                return function()
            self._is_done = True
            handles: list[RemovableHandle] = []
            self._is_recording = True
            try:
                for number, module in enumerate(self._modules):
                    if not isinstance(module, torch.jit.ScriptModule):  # its submodules call no hooks
                        handles.append(module.register_forward_hook(partial(self._record, number)))
                with _without_compiled_code():
                    return function()
            except BaseException:
                self._outputs = []  # they keep the graph in memory
                raise
            finally:
                self._is_recording = False  # first: an interrupt may leave a hook behind, which does nothing then
                for handle in handles:
                    handle.remove()

        return recorded

    def read_order(self, nodes: Sequence[Node]) -> dict[int, set[int]]:
        """Find out which layers come after which, and forget the recorded nodes.

        A layer that is called several times comes before another one if any of its calls does. If each of two layers
        comes before the other, as in a recurrent model, the one that is called last comes after. A frozen layer whose
        output is not part of the graph, because no layer before it is trained, comes before those in the graph.

        Args:
            nodes: The nodes of the graph of a loss, or of several outputs.

        Returns:
            Number of each layer that was used -> numbers of the layers that come after it.
        """
        outputs, self._outputs = self._outputs, []
        in_graph = set(nodes)
        outputs = [(number, node) for number, node in outputs if node in in_graph]
        later = _layers_towards_the_loss(nodes, outputs)
        after: dict[int, set[int]] = defaultdict(set)
        for number, node in outputs:
            after[number] |= later[node] - {number}
        last_call = {number: i for i, (number, _) in enumerate(outputs)}
        order = {n: {m for m in after[n] if n not in after[m] or last_call[n] < last_call[m]} for n in last_call}
        return {n: set(order) for n in self._frozen - order.keys()} | order

    def _record(self, number: int, module: nn.Module, arguments: object, output: object) -> None:  # noqa: ARG002
        """Record the output of a layer, as a forward hook."""
        if not self._is_recording:
            return
        if nodes := [t.grad_fn for t in tensors_in(output) if t.grad_fn is not None]:
            self._outputs += [(number, node) for node in nodes]
        elif torch.is_grad_enabled() and not any(p.requires_grad for p in module.parameters()):
            self._frozen.add(number)


def tensors_in(output: object) -> Iterator[Tensor]:
    """Find the tensors in what a module returned.

    Args:
        output: A tensor, or tuples, lists and dicts of such outputs; anything else is left out.

    Returns:
        The tensors.

    Example:
        >>> len(list(tensors_in({"logits": torch.ones(2), "state": (torch.ones(1), None)})))
        2
    """
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, tuple | list | Mapping):
        for part in output.values() if isinstance(output, Mapping) else output:
            yield from tensors_in(part)


def _without_compiled_code() -> AbstractContextManager[object]:
    """Run compiled models as they are written: compiled code calls no layers, and hooks would compile it twice."""
    if "torch._dynamo" not in sys.modules:  # importing it takes seconds, and without it nothing is compiled
        return nullcontext()
    stance: AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return stance


def _layers_towards_the_loss(nodes: Sequence[Node], outputs: Sequence[tuple[int, Node]]) -> dict[Node, set[int]]:
    """For each node the layers whose outputs lie between it and the loss on any path."""
    made_by: dict[Node, set[int]] = defaultdict(set)
    for number, node in outputs:
        made_by[node].add(number)
    uses_left = Counter(parent for node in nodes for parent, _ in node.next_functions)
    later: dict[Node, set[int]] = {node: set() for node in nodes}
    ready = [node for node in nodes if not uses_left[node]]
    while ready:  # a node is ready when all nodes between it and the loss were handled
        node = ready.pop()
        from_here = later[node] | made_by.get(node, set())
        for parent, _ in node.next_functions:
            if parent is None:
                continue
            later[parent] |= from_here
            uses_left[parent] -= 1
            if uses_left[parent] == 0:
                ready.append(parent)
    return later
