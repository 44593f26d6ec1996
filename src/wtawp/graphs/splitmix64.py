"""The finaliser of the generator SplitMix64: numbers without visible pattern, from counters, keys and positions.

Masks of dropout, the noise of certificates and the sampling of neighbours use it, so that a draw needs none of those
before it.
"""

from importlib.util import find_spec

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

HAS_NUMBA = find_spec("numba") is not None

if HAS_NUMBA:
    from wtawp.graphs import splitmix64_numba


def splitmix64(keys: Tensor) -> Tensor:  # [...] int64 -> [...] int64
    """Map 64-bit integers one to one to integers without visible pattern, on any device."""
    if keys.device.type == "cpu" and HAS_NUMBA and not is_functorch_wrapped_tensor(keys):
        out = torch.empty_like(keys, memory_format=torch.contiguous_format)
        splitmix64_numba.splitmix64(keys.reshape(-1).numpy(), out.view(-1).numpy())
        return out
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        keys = (keys ^ _shifted(keys, shift)) * factor
    return keys ^ _shifted(keys, 31)


def _shifted(keys: Tensor, shift: int) -> Tensor:
    """Shift right and fill with zeros; torch's own shift fills with the sign."""
    return (keys >> shift) & ((1 << (64 - shift)) - 1)
