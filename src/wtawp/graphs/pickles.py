"""Pickles of published data sets, read without running anything they say.

Only the constructors that those files really name are admitted: NumPy's arrays and dtypes, scipy's CSR matrix,
`defaultdict` and `list`. The matrix becomes a bare record, whose arrays are checked before scipy sees them.
"""

import io
import pickle
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from wtawp.base import DataError
from wtawp.graphs.tidy import csr


class _Csr:
    """What a pickled `csr_matrix` becomes."""

    def __setstate__(self, state: dict[str, object]) -> None:
        self.state = state


def _dtype(code: str, align: object = False, copy: object = False) -> np.dtype:
    """Old pickles give `align` as a number, which NumPy no longer likes."""
    return np.dtype(code, align=bool(align), copy=bool(copy))


_RECONSTRUCT = np.empty(0).__reduce__()[0]  # NumPy's maker of empty arrays, wherever this version keeps it
_ADMITTED: dict[tuple[str, str], object] = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
    ("scipy.sparse.csr", "csr_matrix"): _Csr,  # the path of old pickles; SciPy 2 will not have it
    ("scipy.sparse._csr", "csr_matrix"): _Csr,
    ("collections", "defaultdict"): defaultdict,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
}


class _Restricted(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in _ADMITTED:
            raise DataError(f"the pickle asks for {module}.{name}, which no data set needs; refused, nothing was run")
        return _ADMITTED[module, name]


def unpickle(content: bytes, where: str | Path) -> object:
    """What a pickle, of Python 2 or 3, holds if it is made of plain data; else a `DataError`."""
    try:
        return _Restricted(io.BytesIO(content), encoding="latin1").load()
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    except Exception as error:  # a damaged pickle can raise anything
        raise DataError(
            f"{where} is not a readable pickle ({type(error).__name__}: {error}); fetch it again"
        ) from error


def as_matrix(loaded: object, where: str | Path) -> csr_matrix:
    """The sparse matrix that was unpickled, bare or as the one element of an array (as np.save does), checked."""
    if isinstance(loaded, np.ndarray) and loaded.shape == ():
        loaded = loaded.item()
    state = loaded.state if isinstance(loaded, _Csr) else {}
    shape = np.array(state.get("_shape", ()))
    data, indices, indptr = (state.get(part) for part in ("data", "indices", "indptr"))
    if isinstance(data, np.ndarray) and isinstance(indices, np.ndarray) and isinstance(indptr, np.ndarray):
        return csr(data, indices, indptr, shape, where=str(where))
    raise DataError(f"{where} must hold a pickled csr_matrix, got {type(loaded).__name__} with {sorted(state)}")


def as_table(loaded: object, where: str | Path) -> np.ndarray:  # [rows, columns]
    """The two-dimensional array of numbers that was unpickled."""
    if isinstance(loaded, np.ndarray) and loaded.ndim == 2 and loaded.dtype.kind in "biuf":
        return loaded
    raise DataError(f"{where} must hold a pickled table of numbers, got {type(loaded).__name__}")


def as_pairs(loaded: object, where: str | Path) -> tuple[np.ndarray, np.ndarray]:  # [m], [m]
    """Both ends of every entry in the adjacency lists that were unpickled."""
    if not isinstance(loaded, dict) or not loaded:
        raise DataError(f"{where} must hold a pickled dict of adjacency lists, got {type(loaded).__name__}")
    try:
        source = np.repeat(np.array(list(loaded), dtype=np.int64), [len(ids) for ids in loaded.values()])
        return source, np.concatenate([np.array(ids, dtype=np.int64) for ids in loaded.values()])
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{where} must list whole numbers of nodes: {error}") from error
