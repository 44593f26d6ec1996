"""Digests of tensors, plain values and functions, by which another process recognises them."""

import functools
import hashlib
import types
from collections.abc import Mapping


def digest_of(value: object) -> str:
    """Compute a digest of tensors and plain values, in dicts, lists and tuples.

    Args:
        value: The value.

    Returns:
        Sixteen hexadecimal digits. Equal values have equal digests, in every process and on every device.

    Raises:
        TypeError: If there is anything other than tensors and plain values.

    Example:
        >>> import torch
        >>> digest_of({"a": torch.ones(2)}) == digest_of({"a": torch.ones(2)}) != digest_of({"a": torch.ones(3)})
        True
    """
    content = hashlib.sha256()
    _update(content, value)
    return content.hexdigest()[:16]


def describe_function(function: object) -> str:
    """Describe a function so that another process recognises it.

    Args:
        function: A function, a method, a `functools.partial`, a callable object, or None.

    Returns:
        Its name and a digest of its code and of the plain values in its closure, defaults and attributes.
    """
    if function is None:
        return "None"
    if isinstance(function, functools.partial):
        inside = [describe_function(function.func), _plain(function.args), _plain(function.keywords)]
        return f"partial {inside[0]} {digest_of(inside)}"
    if isinstance(function, types.MethodType):
        return f"{describe_function(function.__func__)} of {describe_function(function.__self__)}"
    if isinstance(function, types.FunctionType):
        names = function.__code__.co_freevars
        closure = {n: _content_of(cell) for n, cell in zip(names, function.__closure__ or (), strict=True)}
        plain = _plain([closure, function.__defaults__, function.__kwdefaults__])
        return f"{function.__module__}.{function.__qualname__} {digest_of([_code(function.__code__), plain])}"
    if isinstance(function, type | types.BuiltinFunctionType):
        return f"{function.__module__}.{function.__qualname__}"
    kind = type(function)
    return f"{kind.__module__}.{kind.__qualname__} {digest_of(_plain(getattr(function, '__dict__', {})))}"


def _content_of(cell: types.CellType) -> object:
    """What a closure has stored under a name; the name may be unassigned."""
    try:
        content: object = cell.cell_contents
    except ValueError:
        return "unassigned"
    return content


def _code(code: types.CodeType) -> list[object]:
    """The instructions, names and constants of a function, without line numbers and file names."""
    constants = [_code(c) if isinstance(c, types.CodeType) else _plain(c) for c in code.co_consts]
    return [code.co_code, list(code.co_names), list(code.co_varnames), list(code.co_freevars), constants]


def _plain(value: object) -> object:
    """The value if it is plain or a tensor; functions by their description, other objects by their kind."""
    from torch import Tensor

    if value is None or isinstance(value, str | bytes | int | float | bool | complex | Tensor):
        return value
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, types.FunctionType):  # without its closure, which may hold the function itself
        return [value.__module__, value.__qualname__, _code(value.__code__)]
    if isinstance(value, types.MethodType | types.BuiltinFunctionType | functools.partial | type):
        return describe_function(value)
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _update(content: "hashlib._Hash", value: object) -> None:
    """Add a value to a digest; what is added begins with its kind and size, so that no two values are confused."""
    import torch
    from torch import Tensor

    if isinstance(value, Tensor):
        content.update(f"tensor {value.dtype} {list(value.shape)} ".encode())
        dense = value.detach().cpu().contiguous().reshape(-1)
        real = torch.view_as_real(dense.resolve_conj()) if dense.is_complex() else dense
        content.update(real.reshape(-1).view(torch.uint8).numpy().data)
    elif isinstance(value, Mapping):
        content.update(f"mapping {len(value)} ".encode())
        for key, item in value.items():
            _update(content, key)
            _update(content, item)
    elif isinstance(value, list | tuple):
        content.update(f"sequence {len(value)} ".encode())
        for item in value:
            _update(content, item)
    elif value is None or isinstance(value, str | bytes | int | float | bool | complex | torch.dtype | torch.device):
        text = repr(value)
        content.update(f"{type(value).__name__} {len(text)} {text} ".encode())
    else:
        raise TypeError(f"there is no digest of {type(value).__name__}")
