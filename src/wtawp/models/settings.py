"""What distinguishes models of one architecture besides their weights: the options that their modules keep."""

import types

import torch
from torch import nn

from wtawp.base import describe_function, digest_of

_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
_OURS = frozenset(("torch", "torch_geometric", "wtawp"))  # packages whose code is known by their versions


def settings_of(model: nn.Module) -> dict[str, str]:
    """Describe what a model computes with, besides parameters and buffers.

    Args:
        model: The model.

    Returns:
        Name -> text: the class of each module, with a digest of the `forward` of users' classes; numbers, words and
        functions that modules keep as attributes, but for caches; and which parameters are frozen. Models of equal
        settings and weights compute the same.

    Example:
        >>> settings_of(nn.Dropout(0.3))
        {'class': 'torch.nn.modules.dropout.Dropout', 'p': '0.3', 'inplace': 'False'}
    """
    settings: dict[str, str] = {}
    for path, module in model.named_modules():
        prefix = f"{path}." if path else ""
        settings[f"{prefix}class"] = _class_of(module)
        for name, value in vars(module).items():
            if name not in _OF_EVERY_MODULE and not name.startswith("_cached") and _is_setting(value):
                settings[f"{prefix}{name}"] = _text_of(value)
    settings.update({f"frozen {name}": "True" for name, p in model.named_parameters() if not p.requires_grad})
    return settings


def difference_of(one: nn.Module, other: nn.Module) -> str:
    """Say in what the settings of two models differ.

    Args:
        one: A model.
        other: Another model.

    Returns:
        Name and values of the first difference, as in "alpha (0.1 and 0.9)"; empty if there is none.
    """
    first, second = settings_of(one), settings_of(other)
    for name in {**first, **second}:
        if first.get(name) != second.get(name):
            return f"{name} ({first.get(name, 'nothing')} and {second.get(name, 'nothing')})"
    return ""


def _class_of(module: nn.Module) -> str:
    """The class of a module."""
    kind = type(module)
    text = f"{kind.__module__}.{kind.__qualname__}"
    if kind.__module__.split(".")[0] in _OURS or not isinstance(kind.forward, types.FunctionType):
        return text
    return f"{text} {digest_of(describe_function(kind.forward))}"


def _is_setting(value: object) -> bool:
    """Whether an attribute is an option, and not a tensor, a cache or another object."""
    if isinstance(value, list | tuple):
        return all(map(_is_setting, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_setting(item) for key, item in value.items())
    plain = str | int | float | bool | complex | torch.dtype | types.FunctionType | types.BuiltinFunctionType | type
    return isinstance(value, plain)


def _text_of(value: object) -> str:
    """An option as text."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text_of, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_text_of(item)}' for key, item in value.items())}}}"
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType | type):
        return describe_function(value)
    return repr(value)
