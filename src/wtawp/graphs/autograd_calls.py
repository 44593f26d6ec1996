"""Calls of autograd functions without the overhead that torch adds to each of them, and in float32 under autocast.

`torch.autograd.Function.apply` binds the arguments to the signature of `forward`, to fill in defaults and keyword
arguments. That takes some 20 microseconds, a tenth of a step of a small model, and does nothing for functions whose
arguments are all given by position.

Under `torch.autocast` some inputs come in half precision, which compiled loops cannot read, and derivatives would mix
types: these functions compute in float32 there, as torch's own sparse products do.
"""

from typing import Any

import torch
from torch._C import _are_functorch_transforms_active
from torch._functorch.utils import unwrap_dead_wrappers


def call_function(function: type[torch.autograd.Function], *inputs: Any) -> Any:
    """Call an autograd function that has `setup_context`, as `function.apply(*inputs)` does.

    Args:
        function: The function.
        *inputs: All arguments of its `forward`, by position; the first one is a tensor.

    Returns:
        What `forward` returns, connected to the autograd graph.
    """
    device = inputs[0].device.type
    if torch.is_autocast_enabled(device):
        with torch.autocast(device, enabled=False):
            return call_function(function, *(t.float() if _is_half(t) else t for t in inputs))
    if _are_functorch_transforms_active() or torch.compiler.is_compiling():
        return function.apply(*inputs)  # type: ignore[no-untyped-call]
    return super(torch.autograd.Function, function).apply(*unwrap_dead_wrappers(inputs))  # type: ignore[misc]


def _is_half(value: object) -> bool:
    """Whether a value is a tensor in half precision."""
    return isinstance(value, torch.Tensor) and value.dtype in (torch.bfloat16, torch.float16)
