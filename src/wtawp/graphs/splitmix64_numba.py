"""The loop of `splitmix64`, compiled."""

import numba
import numpy as np

Array = np.ndarray
u = np.uint64


@numba.njit(nogil=True, cache=True)
def splitmix64(keys: Array, out: Array) -> None:
    """Write the finaliser of SplitMix64 of each key to `out`, both [k] int64."""
    for i in range(len(keys)):
        key = u(keys[i])
        key = (key ^ (key >> u(30))) * u(0xBF58476D1CE4E5B9)
        key = (key ^ (key >> u(27))) * u(0x94D049BB133111EB)
        out[i] = np.int64(key ^ (key >> u(31)))
