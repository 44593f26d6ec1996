"""The layers of a model, and which of their parameters are weight matrices."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized


@dataclass(frozen=True)
class Layer:
    """A layer of a model: the first module on the way down that holds parameters itself or passes messages.

    Attributes:
        name: Name of the module in the model; empty for the model itself.
        module: The module.
        matrices: Names in the model of the parameters that words such as "all-but-last" select: those named `*weight`
            with two or more dimensions that do not belong to a normalization. Of a weight that is computed from other
            parameters (`torch.nn.utils.parametrize`, as weight norm and spectral norm), the largest of those. Recurrent
            layers have none, because their parameters have other names.
    """

    name: str
    module: nn.Module
    matrices: tuple[str, ...]


def find_layers(model: nn.Module) -> list[Layer]:
    """Find the layers of a model that hold a parameter with two or more dimensions outside of normalizations.

    Args:
        model: The model. Wrappers such as `DataParallel` and `torch.compile` are looked through.

    Returns:
        The layers in the order in which they are registered, each once. A shared parameter has its first name.

    Example:
        >>> [layer.matrices for layer in find_layers(nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GRU(8, 3)))]
        [('0.weight',), ()]
    """
    parameter_names = {p: n for n, p in model.named_parameters()}
    module_names = {m: n for n, m in model.named_modules()}
    root = unwrapped(model)
    modules = list(dict.fromkeys(_outermost(root))) or [root]  # a bare nn.Linear is its own layer
    inside = {part for module in modules for part in list(module.modules())[1:]}  # registered twice: GINConv(self.mlp)
    layers = []
    for module in modules:
        if module in inside:
            continue
        named = _named_parameters(module)
        matrices = tuple(parameter_names[p] for name, p in named if name.endswith("weight") and p.dim() >= 2)
        if any(p.dim() >= 2 for _, p in named):
            layers.append(Layer(module_names[module], module, matrices))
    return layers


def unwrapped(model: nn.Module) -> nn.Module:
    """Look through wrappers such as `DataParallel`, `AveragedModel` and what `torch.compile` returns.

    Args:
        model: The model, wrapped or not.

    Returns:
        The module inside. A module is a wrapper if another one, its attribute `module` or `_orig_mod`, has all its
        parameters and is no layer that passes messages; other models may use these names for a part of them.

    Example:
        >>> type(unwrapped(nn.DataParallel(nn.Sequential(nn.Linear(2, 1))))).__name__
        'Sequential'
    """
    while True:
        inner = getattr(model, "module", getattr(model, "_orig_mod", None))
        if not isinstance(inner, nn.Module) or hasattr(inner, "propagate"):
            return model
        if set(model.parameters()) != set(inner.parameters()):
            return model
        model = inner


def _outermost(module: nn.Module) -> Iterator[nn.Module]:
    """The first modules on the way down that hold parameters themselves or pass messages (have `propagate`)."""
    for child in module.children():
        has_own = next(child.parameters(recurse=False), None) is not None or is_parametrized(child)
        if has_own or hasattr(child, "propagate"):
            yield child
        else:
            yield from _outermost(child)


def _named_parameters(layer: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The parameters of a layer with their own names, without those of normalizations."""
    owners = [m for m in layer.modules() if not re.search(r"Norm(\dd)?$", type(m).__name__)]
    return [pair for m in owners for pair in (*m.named_parameters(recurse=False), *_parametrized(m))]


def _parametrized(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """For each weight that is computed from parameters: its name, and the largest of these, which has its shape."""
    if is_parametrized(module):
        for name, sources in module.parametrizations.items():  # type: ignore[union-attr, operator]
            if originals := list(sources.parameters(recurse=False)):
                yield name, max(originals, key=Tensor.numel)
    if isinstance(direction := getattr(module, "weight_v", None), nn.Parameter) and hasattr(module, "weight_g"):
        yield "weight", direction  # the older torch.nn.utils.weight_norm
    if isinstance(original := getattr(module, "weight_orig", None), nn.Parameter):
        yield "weight", original  # the older torch.nn.utils.spectral_norm, and pruning
