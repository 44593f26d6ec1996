"""Which parameters are perturbed, theta^(awp) of Eq. 9: chosen by a word over layers, or by globs over names.

The words "all-but-last", "first" and "last" depend on the order of the layers. Before any forward pass it is the order
in which they are registered. The first step reads it from the autograd graph of the loss, see `wtawp.core.layer_order`.
"""

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from fnmatch import fnmatchcase
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from wtawp.base import NotPerturbableError, find_stack_level
from wtawp.core.autograd_graph import accumulating_leaves, nodes_of
from wtawp.core.config import LAYER_WORDS, Layers
from wtawp.core.layer_order import LayerCalls, tensors_in
from wtawp.core.layers import Layer, find_layers, unwrapped

Result = TypeVar("Result")
Order = Literal["registered", "read", "unreadable"]
_ORDERS: dict[Order, str] = {
    "registered": "layers in the order of registration, until the first step reads it from the forward pass",
    "read": "layers in the order of the forward pass",
    "unreadable": "layers in the order of registration, because the forward pass does not show that of all of them",
}


def select(
    model: nn.Module, layers: Layers = "all-but-last", *, outputs: Callable[[], object] | None = None
) -> tuple[str, ...]:
    """Select the parameters to perturb, theta^(awp) of Eq. 9, by a word over layers or by globs over parameter names.

    A layer is the first module on the way down from the root that holds parameters itself or passes messages (has a
    method `propagate`). Inside the layers, a word selects the parameters named `*weight` that have two or more
    dimensions and do not belong to a normalization; a layer without any is skipped. Of a weight that is computed from
    other parameters (`torch.nn.utils.parametrize`, as weight norm and spectral norm), it selects the largest of those.
    Globs select all that they match. Frozen parameters count as layers but are never selected. A shared parameter is
    selected if any of its layers is, once, under its first name.

    The last layer is the one whose output no other layer uses; relations or heads side by side are one layer. This is
    read from a forward pass. Without one, the order in which the layers are registered takes its place.

    Args:
        model: The module whose parameters are perturbed. Wrappers such as `DataParallel` are looked through.
        layers: One of the words "all", "all-but-last", "first" and "last", or one or several glob patterns.
        outputs: Runs one forward pass and returns the loss, or any outputs from which the loss is computed; it is
            called only if the order of layers matters. None goes by the order of registration.

    Returns:
        The names of the selected parameters, in the order of `model.named_parameters()`. With `outputs`, the words
        that depend on the order leave out layers that the outputs do not depend on.

    Raises:
        ValueError: If the model has no parameters, if some have no shape yet (lazy modules), or if `layers` selects
            nothing, or only frozen parameters.
        NotPerturbableError: If the weights of a module are distributions, as in RGCN.

    Example:
        >>> select(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
        ('0.weight',)
    """
    selection = Selection(model, layers)
    if outputs is not None and selection.order is not None:
        with torch.enable_grad():
            nodes = nodes_of(*tensors_in(selection.recording(outputs)()))
        selection.read_order(nodes)
        selection.settle(set(accumulating_leaves(nodes)), dict(model.named_parameters()))
        selection.refuse_frozen()
    return selection.trainable_names


class Selection:
    """The parameters that a step perturbs. The order of the layers is registered at first, and read in a step.

    Args:
        model: The module whose parameters are perturbed.
        layers: A word or globs, see `select`; None selects nothing, of any model.

    Attributes:
        names: The selected parameters, in the order of `model.named_parameters()`, including frozen ones.
        order: Where the order of the layers comes from; None if the choice does not depend on it.

    Raises:
        ValueError: If `layers` cannot be selected, see `select`.
        NotPerturbableError: If the weights of a module are distributions.

    Example:
        >>> Selection(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3)), "all-but-last").excluded_layers
        ('1.weight',)
    """

    def __init__(self, model: nn.Module, layers: Layers | None) -> None:
        self._model, self._layers_given = model, layers
        self._after: dict[int, set[int]] = {}  # layer -> those that come after it, of the layers in the graphs so far
        self._newly_used: set[int] = set()  # layers that had a gradient in a step without being in `_after`
        self._calls: LayerCalls | None = None  # what is being recorded
        self._order_now: dict[int, set[int]] | None = None  # what was read from it
        parameters = {} if layers is None else _check(model)
        self._word = layers if isinstance(layers, str) and layers in LAYER_WORDS else None
        self._layers = [] if self._word is None else find_layers(model)
        self.order: Order | None = None if self._word in (None, "all") else "registered"
        self.names: tuple[str, ...] = ()
        if layers is not None:
            matching = _by_globs(parameters, layers) if self._word is None else self._by_registration()
            self.names = self._ordered(matching)
            self.refuse_frozen()
        self._known = frozenset(name for name, _ in model.named_parameters(remove_duplicate=False))
        if self._word is not None:
            self._warn_of_weights_without_layer()

    def _warn_of_weights_without_layer(self) -> None:
        """Warn of weight matrices that the model holds itself beside its layers: no word selects them."""
        root = unwrapped(self._model)
        own = [n for n, p in root.named_parameters(recurse=False) if n.endswith("weight") and p.dim() >= 2]
        if own and all(layer.module is not root for layer in self._layers):
            warnings.warn(
                f"{own} belong to {type(root).__name__} itself and to no layer inside of it, so layers={self._word!r}"
                " neither perturbs them nor counts them as the first or last layer; to perturb them, pass names or"
                " globs, layers=[...]",
                stacklevel=find_stack_level(),
            )

    def warn_of_new_parameters(self, named: Mapping[str, Tensor]) -> None:
        """Warn, once for each change, of parameters that the model did not have when this was built.

        Args:
            named: The parameters that are trained, by name.
        """
        if self._layers_given is None or named.keys() <= self._known:
            return
        new = sorted(named.keys() - self._known)
        self._known |= named.keys()
        warnings.warn(
            f"the model has parameters that it did not have when WTAWP was built, and they are not perturbed: {new};"
            " build WTAWP anew after changing the model",
            stacklevel=find_stack_level(),
        )

    @property
    def trainable_names(self) -> tuple[str, ...]:
        """The selected parameters that are not frozen now."""
        return tuple(n for n, p in self._model.named_parameters() if p.requires_grad and n in self.names)

    @property
    def excluded_layers(self) -> tuple[str, ...]:
        """The trainable weight matrices that the word leaves out, of layers that are used as far as that is known."""
        used = self._matrices(self._after if self.order == "read" else range(len(self._layers)))
        return tuple(
            n for n, p in self._model.named_parameters() if p.requires_grad and n in used and n not in self.names
        )

    @property
    def other_parameters(self) -> tuple[str, ...]:
        """All other parameters: biases, normalizations, vectors, recurrent and unused layers, and frozen ones."""
        others = {*self.trainable_names, *self.excluded_layers}
        return tuple(n for n, _ in self._model.named_parameters() if n not in others)

    def refuse_frozen(self) -> None:
        """Check that something can be perturbed.

        Raises:
            ValueError: If all selected parameters are frozen.
        """
        if not self.trainable_names:
            raise ValueError(
                f"layers={self._layers_given!r} choose only frozen parameters, {sorted(self.names)}; unfreeze or choose"
                " others"
            )

    def describe_others(self) -> list[str]:
        """Say what is not perturbed, and where the order of the layers comes from.

        Returns:
            Some lines; none if nothing is perturbed.
        """
        by_any = "" if self._word is None else " by any word for layers (biases, norms, frozen or unused)"
        lists = (" by this choice of layers", self.excluded_layers), (by_any, self.other_parameters)
        lines = [f"not perturbed{by}: {', '.join(names)}" for by, names in lists if names] if self.names else []
        return lines if self.order is None else [*lines, _ORDERS[self.order]]

    @property
    def is_recording(self) -> bool:
        """Whether calls of the layers were recorded, whose order is not read yet."""
        return self._calls is not None

    def recording(self, closure: Callable[[], Result]) -> Callable[[], Result]:
        """Let the calls of the layers be recorded, if their order is to be read from the next forward pass.

        Args:
            closure: Runs the forward pass.

        Returns:
            A function that does the same, whose first call is recorded; or the closure itself.
        """
        self._calls = self._order_now = None
        if not callable(closure) or not (self.order == "registered" or self._newly_used):
            return closure
        self._calls = LayerCalls([layer.module for layer in self._layers])
        return self._calls.recording(closure)

    def read_order(self, nodes: Sequence[Node]) -> None:
        """Read the order of the layers from the forward pass that was recorded, before `settle`.

        Args:
            nodes: The nodes of the graph of the loss.
        """
        calls, self._calls = self._calls, None
        self._order_now = None if calls is None else calls.read_order(nodes)

    def settle(self, used: AbstractSet[Tensor] | Mapping[Tensor, object], named: Mapping[str, Tensor]) -> None:
        """Select by the order that was read, if it is new; warn if that differs from the order of registration.

        Args:
            used: The parameters that the loss depends on.
            named: The parameters by name.

        Raises:
            ValueError: If no parameter remains, or only frozen ones.
        """
        if self.order in (None, "unreadable"):
            return
        now, self._order_now = self._order_now, None
        if now is None and len(self._after) == len(self._layers):
            return
        for i, after in (now or {}).items():
            self._after[i] = self._after.get(i, set()) | after
        unseen = [i for i in range(len(self._layers)) if i not in self._after]
        missing = {i for i in unseen if any(named.get(n) in used for n in self._layers[i].matrices)}
        if now is None:
            self._newly_used |= missing
            return
        self._newly_used -= self._after.keys()
        if missing:
            self._keep_registered()
        elif self._matrices(self._after):  # otherwise the loss uses none of the layers
            self._choose()

    def _choose(self) -> None:
        """Select by the order of the forward pass."""
        chosen = self._matrices(self._by_graph())
        if chosen:
            before = self.names
            self.order, self.names = "read", self._ordered(chosen)
            if self.names != before and self._differs():
                self._warn("the former counts")
        elif len(self._after) < len(self._layers):  # the other layers may be used in another step
            self.names = self._ordered(self._by_registration() - self._matrices(self._after))
        else:
            raise ValueError(
                f"layers={self._word!r}: the {self._end} layer is {self._describe(self._at_the_end())} in the forward"
                f" pass, where layers side by side are one, and that leaves no matrix named '*weight'; use layers='all'"
                f" or globs over {[n for n, _ in self._model.named_parameters()]}"
            )

    def _keep_registered(self) -> None:
        """Select by the order of registration, because the layers in the graph are not all that are used."""
        self.order, self.names = "unreadable", self._ordered(self._by_registration())
        if self._differs():
            self._warn("the forward pass does not show all layers, so that the latter counts")

    def _warn(self, consequence: str) -> None:
        """Warn that the two orders differ."""
        registered = [i for i, layer in enumerate(self._layers) if layer.matrices]
        warnings.warn(
            f"layers={self._word!r}: the {self._end} layer is {self._describe(self._at_the_end())} in the forward"
            f" pass, but {self._describe([registered[0 if self._end == 'first' else -1]])} in the order of"
            f" registration; {consequence}: {list(self.names)} are perturbed. To decide yourself, pass names or globs,"
            " layers=[...]",
            stacklevel=find_stack_level(),
        )

    @property
    def _end(self) -> str:
        """Which end of the order the word is about."""
        return "first" if self._word == "first" else "last"

    def _at_the_end(self) -> set[int]:
        """The first or last layers of the forward pass."""
        if self._word == "first":
            return self._after.keys() - set().union(*self._after.values())
        return {i for i, after in self._after.items() if not after}

    def _by_graph(self) -> set[int]:
        """The layers that the word names in the forward pass."""
        at_the_end = self._at_the_end()
        return self._after.keys() - at_the_end if self._word == "all-but-last" else at_the_end

    def _differs(self) -> bool:
        """Whether the two orders choose different weights of the layers in the graph."""
        return self._matrices(self._by_graph()) != self._by_registration() & self._matrices(self._after)

    def _by_registration(self) -> set[str]:
        """The weight matrices of the layers that the word names in the order of registration."""
        with_matrices = [layer.matrices for layer in self._layers if layer.matrices]
        names = [n for n, _ in self._model.named_parameters()]
        if not with_matrices:
            raise ValueError(
                f"layers={self._word!r}: no layer has a matrix named '*weight'; choose among {names} with globs"
            )
        if self._word == "all-but-last" and len(with_matrices) == 1:
            raise ValueError(
                f"one layer, {list(with_matrices[0])}, has no 'all-but-last'; use layers='all' or globs over {names}"
            )
        parts = {
            "all": with_matrices,
            "all-but-last": with_matrices[:-1],
            "first": with_matrices[:1],
            "last": with_matrices[-1:],
        }
        return {name for matrices in parts[str(self._word)] for name in matrices}

    def _matrices(self, numbers: Iterable[int]) -> set[str]:
        """The weight matrices of some layers."""
        return {name for i in numbers for name in self._layers[i].matrices}

    def _describe(self, numbers: Iterable[int]) -> str:
        """The names of some layers."""
        return ", ".join(_name(self._layers[i]) for i in sorted(numbers)) or "none"

    def _ordered(self, names: Collection[str]) -> tuple[str, ...]:
        """The names in the order of the model."""
        return tuple(n for n, _ in self._model.named_parameters() if n in names)


def _name(layer: Layer) -> str:
    """The name of a layer in the model, and its class."""
    return f"{layer.name or 'the model'} ({type(layer.module).__name__})"


def _check(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters of a model by name; raises if they cannot be perturbed."""
    parameters = dict(model.named_parameters())
    if not parameters:
        raise ValueError(f"{type(model).__name__} has no parameters to perturb; pass the module that holds the weights")
    for name, module in model.named_modules():
        if getattr(module, "weights_are_distributions", False):
            owner = f"{name or 'the model'} ({type(module).__name__})"
            raise NotPerturbableError(f"weights of {owner} are distributions and cannot be perturbed; use lam=0")
    lazy = [n for n, p in parameters.items() if nn.parameter.is_lazy(p)]
    if lazy:
        raise ValueError(f"{lazy} have no shape yet; run the model once on some input, then build the perturbation")
    return parameters


def _by_globs(parameters: Mapping[str, Tensor], layers: Layers) -> set[str]:
    """The parameters that match any of the glob patterns; each pattern must match at least one."""
    globs = (layers,) if isinstance(layers, str) else tuple(layers)
    unmatched = tuple(g for g in globs if not any(fnmatchcase(n, g) for n in parameters))
    if unmatched or not globs:
        raise ValueError(f"layers={unmatched or globs} match none of {list(parameters)}; the words are {LAYER_WORDS}")
    return {n for n in parameters if any(fnmatchcase(n, g) for g in globs)}
