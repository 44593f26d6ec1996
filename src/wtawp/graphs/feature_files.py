"""Features that stay on disk: a `.npy` file as a tensor of which only the rows that are used are read."""

import io
import math
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from wtawp.base import DataError
from wtawp.graphs.archives import HEADER_BYTES, npy_header
from wtawp.graphs.file_checks import brief

_MARK = "_wtawp_memory_mapped"


def memory_mapped(path: str | Path) -> Tensor:  # -> [n, d]
    """Open the features in a `.npy` file without reading them, for files that are larger than memory.

    The tensor can be used as `x` of a graph. A model of this package that computes some nodes only, such as `GCN`,
    `GAT` or `GraphSAGE` in `fit`, then copies the rows of their receptive field, and no others; on a GPU it is these
    rows that are moved there. Any other model is called with the whole tensor, which is read as it is used.

    Nothing is checked that would need a pass over the file: the values must be finite. The tensor is read-only. An
    operation that writes to it in place ends the process with a segmentation fault; clone it first. The file must not
    change as long as the tensor is used.

    Args:
        path: A file that `numpy.save` wrote: one row a node, floating-point numbers of this machine's byte order, row
            after row (C order).

    Returns:
        The features, on the CPU, in the type of the file; models expect float32.

    Raises:
        DataError: If there is no such file, or it is not a `.npy` file of that kind.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "x.npy"
        >>> np.save(path, np.ones((3, 2), dtype=np.float32))
        >>> memory_mapped(path)[torch.tensor([2])]
        tensor([[1., 1.]])
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"there is no file {path.absolute()}")
    try:
        with path.open("rb") as file:
            start = io.BytesIO(file.read(HEADER_BYTES))
        file_bytes = path.stat().st_size
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    shape, fortran, dtype = npy_header(start, str(path))
    if len(shape) != 2 or not all(type(size) is int and size > 0 for size in shape):
        raise DataError(f"{path}: features must be a table of nodes by one or more columns, got shape {brief(shape)}")
    if dtype.kind != "f" or dtype.itemsize > 8 or not dtype.isnative:
        raise DataError(
            f"{path}: features must be float32, float64 or float16, got {str(dtype)[:60]}; convert the file"
        )
    if fortran and min(shape) > 1:
        raise DataError(f"{path} is in Fortran order, column after column; save numpy.ascontiguousarray of it")
    if math.prod(shape) * dtype.itemsize > file_bytes - start.tell():
        raise DataError(f"{path} is cut short: it declares more numbers than it holds, {brief(shape)}; save it again")
    array = np.memmap(path, dtype, "r", start.tell(), shape)
    with warnings.catch_warnings():  # torch has no read-only tensors; the docstring says what that means
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        x = torch.from_numpy(array)
    setattr(x, _MARK, True)
    return x


def is_memory_mapped(x: object) -> bool:
    """Whether this is a tensor of `memory_mapped`, and not one computed from it.

    Args:
        x: Anything.

    Returns:
        True for the tensor itself.

    Example:
        >>> is_memory_mapped(torch.ones(2, 1))
        False
    """
    return isinstance(x, Tensor) and getattr(x, _MARK, False)
