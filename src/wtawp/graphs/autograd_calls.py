"""Calls of autograd functions without the overhead that torch adds to each of them.

`torch.autograd.Function.apply` binds the arguments to the signature of `forward`, to fill in defaults and keyword
arguments. That takes some 20 microseconds, a tenth of a step of a small model, and does nothing for functions whose
arguments are all given by position.
"""

from typing import Any

import torch
from torch._C import _are_functorch_transforms_active
from torch._functorch.utils import unwrap_dead_wrappers


def call_function(function: type[torch.autograd.Function], *inputs: Any) -> Any:
    """Call an autograd function that has `setup_context`, as `function.apply(*inputs)` does.

    Args:
        function: The function.
        *inputs: All arguments of its `forward`, by position.

    Returns:
        What `forward` returns, connected to the autograd graph.
    """
    if _are_functorch_transforms_active() or torch.compiler.is_compiling():
        return function.apply(*inputs)  # type: ignore[no-untyped-call]
    return super(torch.autograd.Function, function).apply(*unwrap_dead_wrappers(inputs))  # type: ignore[misc]
