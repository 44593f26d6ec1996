"""Read the pickles of published data sets without running any code in them.

Only the names that those files contain are allowed: NumPy's arrays and dtypes, scipy's CSR matrix, `defaultdict` and
`list`. The unpickler never builds objects of NumPy or scipy, whose `__setstate__` does not validate its input (a forged
dtype corrupts memory). It builds plain objects, which become arrays after every field has been checked.
"""

import io
import math
import re
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from wtawp.base import DataError
from wtawp.graphs.file_checks import LARGEST, brief
from wtawp.graphs.plain_pickles import PickledDict, PickledObject, PlainUnpickler
from wtawp.graphs.read_limits import NUMBER_BYTES, check_memory
from wtawp.graphs.sanitize import csr


class _Array(PickledObject):
    """state: version, shape, dtype, whether the order is Fortran's, bytes (or a list, for an array of objects)."""


class _Dtype(PickledObject):
    """arguments: a code such as "f4", and more; state: version, byte order, and more."""


class _Csr(PickledObject):
    """state: a dict with data, indices, indptr and _shape."""


_ALLOWED: dict[tuple[str, str], object] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("scipy.sparse.csr", "csr_matrix"): _Csr,  # the path of old pickles; SciPy 2 will not have it
    ("scipy.sparse._csr", "csr_matrix"): _Csr,
    ("collections", "defaultdict"): PickledDict,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
}


class _Restricted(PlainUnpickler):
    """An unpickler that refuses all names but the allowed ones."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in _ALLOWED:
            raise DataError(f"the pickle asks for {module}.{name}, which no data set needs; refused, nothing was run")
        return _ALLOWED[module, name]


def unpickle(content: bytes, where: str | Path) -> object:
    """The content of a pickle of Python 2 or 3 that is made of plain data; any other is a `DataError`."""
    try:
        return _Restricted(io.BytesIO(content), encoding="latin1").load()
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    except Exception as error:  # a damaged pickle can raise anything
        raise DataError(
            f"{where} is not a readable pickle ({type(error).__name__}: {brief(str(error))}); fetch it again"
        ) from error


def as_matrix(loaded: object, where: str | Path, file_bytes: int = 0) -> csr_matrix:
    """The sparse matrix in unpickled content of a file of this size, checked.

    It may be the one element of an array, as np.save writes it.
    """
    if isinstance(loaded, _Array):
        match loaded.state:
            case (_, (), _, _, [element]):
                loaded = element
    if not isinstance(loaded, _Csr) or not isinstance(loaded.state, dict):
        raise DataError(f"{where} must hold a pickled csr_matrix, got {type(loaded).__name__.strip('_').lower()}")
    data, indices, indptr = (_array(loaded.state.get(part), where) for part in ("data", "indices", "indptr"))
    check_memory(NUMBER_BYTES * (data.size + indices.size + indptr.size), file_bytes, where=str(where))
    match loaded.state.get("_shape"):
        case (int(rows), int(columns)) if 0 <= min(rows, columns) <= max(rows, columns) <= LARGEST:
            return csr(data, indices, indptr, np.array([rows, columns]), where=str(where))
    raise DataError(f"{where}: a matrix's shape must be two sizes, got {brief(loaded.state.get('_shape'))}")


def as_table(loaded: object, where: str | Path) -> np.ndarray:  # [rows, columns]
    """The two-dimensional array of numbers in unpickled content."""
    table = _array(loaded, where)
    if table.ndim != 2:
        raise DataError(f"{where} must hold a table of numbers, got shape {table.shape}")
    return table


def as_pairs(loaded: object, where: str | Path, file_bytes: int = 0) -> tuple[np.ndarray, np.ndarray]:  # [m], [m]
    """Both ends of every entry of the adjacency lists in unpickled content of a file of this size."""
    if not isinstance(loaded, dict) or not loaded:
        raise DataError(f"{where} must hold a pickled dict of adjacency lists, got {type(loaded).__name__}")
    if not all(type(ids) is list for ids in loaded.values()):
        raise DataError(f"{where} must hold a list of neighbours of every node")
    entries = sum(map(len, loaded.values()))  # many nodes can share one list, which the file then holds once
    check_memory(2 * NUMBER_BYTES * entries, file_bytes, where=str(where))
    if {*map(type, loaded)} | {type(node) for ids in loaded.values() for node in ids} != {int} and entries:
        raise DataError(f"{where} must list whole numbers of nodes; it holds something else")
    try:
        source = np.repeat(np.array(list(loaded), dtype=np.int64), [len(ids) for ids in loaded.values()])
        target = np.concatenate([np.array(ids, dtype=np.int64) for ids in loaded.values()])
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{where} must list whole numbers of nodes: {error}") from error
    return source, target


def _array(loaded: object, where: str | Path) -> np.ndarray:
    """The array of a pickled object, which must hold plain numbers, as many as its shape says."""
    state = loaded.state if isinstance(loaded, _Array) else None
    match state:
        case (
            _,
            tuple(shape),
            _Dtype(arguments=(str(code), *_), state=(_, str(order), *_)),
            fortran,
            bytes() | str() as raw,
        ):
            if not re.fullmatch("b1|[iu][1248]|f[248]", code) or order not in ("<", ">", "|", "="):
                raise DataError(f"{where} must hold plain numbers, got {order}{code}")
            try:
                content = raw.encode("latin1") if isinstance(raw, str) else raw
                values = np.frombuffer(content, dtype=np.dtype(f"{order}{code}")).astype(code)
            except ValueError as error:
                raise DataError(f"{where}: {error}; the file is damaged") from error
            sizes_fit = len(shape) <= 8 and all(isinstance(size, int) and 0 <= size <= LARGEST for size in shape)
            if not sizes_fit or math.prod(max(size, 1) for size in shape) > LARGEST or math.prod(shape) != len(values):
                raise DataError(
                    f"{where}: an array of shape {brief(shape)} has {len(values)} numbers; the file is damaged"
                )
            return values.reshape(shape, order="F" if fortran else "C")
    raise DataError(f"{where} must hold pickled arrays of numbers, got {type(loaded).__name__.strip('_').lower()}")
