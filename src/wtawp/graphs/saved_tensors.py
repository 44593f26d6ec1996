"""Read the tensors in a file of `torch.save` without trusting what the file declares.

`torch.load` with `weights_only=True` runs nothing either, but builds tensors as the file declares them: indices of
sparse tensors are not checked, and a stride of 0 makes a small file a large tensor. Here the pickle is read into plain
records. A tensor is built when it is asked for, after every field of it was checked against what the file holds.
"""

import io
import pickle
import sys
import zipfile
import zlib
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import coo_matrix, csr_matrix
from torch import Tensor

from wtawp.base import DataError
from wtawp.graphs.checked import (
    LARGEST,
    brief,
    check_ascending,
    check_layout,
    checked_indices,
    checked_shape,
    checked_values,
)
from wtawp.graphs.sanitize import csr

_LIBRARIES = ("torch", "torch_geometric", "numpy", "collections", "_codecs", "builtins", "__builtin__")
_CODE = {"eval", "exec", "getattr", "setattr", "delattr", "compile", "open", "__import__", "input", "breakpoint"}
_DTYPES = {
    "torch.DoubleStorage": torch.float64, "torch.FloatStorage": torch.float32, "torch.HalfStorage": torch.float16,
    "torch.BFloat16Storage": torch.bfloat16, "torch.LongStorage": torch.int64, "torch.IntStorage": torch.int32,
    "torch.ShortStorage": torch.int16, "torch.CharStorage": torch.int8, "torch.ByteStorage": torch.uint8,
    "torch.BoolStorage": torch.bool, "torch.uint16": torch.uint16, "torch.uint32": torch.uint32,
    "torch.uint64": torch.uint64,
}  # fmt: skip


class _Record:
    """An object that the pickle describes: the name of its constructor, the arguments, and the state."""

    name = ""
    arguments: tuple[object, ...] = ()  # a pickle may make an object without calling its constructor
    state: object = None

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Storage:
    """A reference to a member of the archive: what the pickle says that it holds."""

    def __init__(self, reference: object) -> None:
        self.reference = reference


class _Unpickler(pickle._Unpickler):  # in Python, so that hostile input meets no C code
    """An unpickler that makes records of the objects of known libraries and refuses all others."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module.split(".")[0] not in _LIBRARIES or name in _CODE:
            raise DataError(f"asks for {module}.{name}; refused, nothing was run: save a dict of tensors")
        return type(name, (_Record,), {"name": f"{module}.{name}"})

    def persistent_load(self, reference: object) -> object:
        return _Storage(reference)


class SavedTensors:
    """The content of a file that `torch.save` wrote, a dict or a PyG `Data`.

    Attributes:
        content: The entries by name. A tensor among them is a record, which `dense` and `matrix` read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._members = _read_members(path)
        pickles = [name for name in self._members if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise _unreadable(path)
        self._folder = pickles[0].removesuffix("data.pkl")
        try:
            loaded = _Unpickler(io.BytesIO(self._members[pickles[0]])).load()
        except DataError as error:
            raise DataError(f"{path} {error}") from None
        except Exception as error:  # a damaged pickle can raise anything
            raise _unreadable(path) from error
        loaded = _only_graph(loaded, path)
        match loaded:
            case _Record(
                name="torch_geometric.data.data.Data", state={"_store": _Record(state={"_mapping": dict() as m})}
            ):
                self.content: dict[object, object] = m
            case dict():
                self.content = loaded
            case _:
                kind = loaded.name if isinstance(loaded, _Record) else type(loaded).__name__
                raise DataError(f"{path} must hold a PyG Data or a dict of tensors, got {kind}")

    def is_tensor(self, key: str) -> bool:
        """Whether there is an entry of this name, and it is a tensor, dense or sparse."""
        record = _unwrapped(self.content.get(key))
        return isinstance(record, _Record) and record.name.startswith("torch._utils._rebuild_")

    def is_sparse(self, key: str) -> bool:
        """Whether the entry of this name is a sparse tensor."""
        record = _unwrapped(self.content.get(key))
        return isinstance(record, _Record) and record.name == "torch._utils._rebuild_sparse_tensor"

    def dense(self, key: str) -> Tensor:
        """The dense tensor of this name; a sparse one, or one of complex numbers, is refused."""
        return self._strided(self.content.get(key), f"{self.path}, {key}")

    def matrix(self, key: str, num_rows: int) -> csr_matrix:  # [n, d]
        """The sparse matrix of this name with so many rows, stored as COO, CSR or CSC, with every index checked."""
        where = f"{self.path}, {key}"
        record = _unwrapped(self.content.get(key))
        match record.arguments if isinstance(record, _Record) else ():
            case (_Record(arguments=(str(layout),)), (indices, values, size, *marks)) if layout == "torch.sparse_coo":
                return self._coo(
                    indices,
                    values,
                    _shape(size, num_rows, where),
                    marked=any(mark is True for mark in marks),
                    where=where,
                )
            case (_Record(arguments=(str(layout),)), (pointers, indices, values, size)) if layout in (
                "torch.sparse_csr",
                "torch.sparse_csc",
            ):
                shape = np.array(_shape(size, num_rows, where))
                parts = [_array(self._strided(part, where)) for part in (values, indices, pointers)]
                if layout == "torch.sparse_csr":
                    return csr(parts[0], parts[1], parts[2], shape, where=where)
                return csr(parts[0], parts[1], parts[2], shape[::-1], where=where).T.tocsr()
        raise DataError(f"{where} must be a dense tensor or a sparse matrix in COO, CSR or CSC; save {key}.to_dense()")

    def _coo(self, indices: object, values: object, shape: tuple[int, int], *, marked: bool, where: str) -> csr_matrix:
        """The matrix of a COO tensor."""
        ends, entries = _array(self._strided(indices, where)), _array(self._strided(values, where))
        if ends.ndim != 2 or len(ends) != 2:
            raise DataError(f"{where}: indices must have shape [2, m], got {list(ends.shape)}; save it dense")
        rows, columns = (checked_indices(end, limit, where=where) for end, limit in zip(ends, shape, strict=True))
        entries = checked_values(entries, len(rows), where=where)
        if marked:
            check_ascending(rows, columns, where=where)
        return coo_matrix((entries, (rows, columns)), shape=shape).tocsr()

    def _strided(self, saved: object, where: str) -> Tensor:
        """The dense tensor of a record, checked."""
        match _unwrapped(saved):
            case _Record(
                name="torch._utils._rebuild_tensor_v2",
                arguments=(_Storage(reference=("storage", type() as kind, *location)), offset, size, stride, _, _),
            ):
                numbers = self._numbers(kind, location, where, in_bytes=False)
            case _Record(
                name="torch._utils._rebuild_tensor_v3",  # types without a storage of their own, such as uint32
                arguments=(
                    _Storage(reference=("storage", _, *location)),
                    offset,
                    size,
                    stride,
                    _,
                    _,
                    type() as kind,
                ),
            ):
                numbers = self._numbers(kind, location, where, in_bytes=True)
            case _:
                raise DataError(f"{where} must be a dense tensor of real numbers; save it as one, in float32 or int64")
        (start,), sizes, strides = _sizes((offset,), where), _sizes(size, where), _sizes(stride, where)
        check_layout(sizes, strides, start, len(numbers), where=where)
        return numbers.as_strided(sizes, strides, start)

    def _numbers(self, kind: type, location: list[object], where: str, *, in_bytes: bool) -> Tensor:  # -> [stored]
        """The numbers of a storage: as many as the pickle says, which the archive must really hold."""
        dtype = _DTYPES.get(getattr(kind, "name", ""))
        if dtype is None:
            raise DataError(f"{where} must hold real numbers, got {brief(kind.__name__)}; convert it to float32")
        match location:
            case [str(key), _, int(count), *_]:
                content = self._members.get(f"{self._folder}data/{key}", b"")
                declared = count if in_bytes else count * dtype.itemsize
                if 0 <= declared <= len(content):
                    return self._decoded(content, declared // dtype.itemsize, dtype)
                raise DataError(
                    f"{where} declares {brief(declared)} bytes, the file holds {len(content)}; save it again"
                )
        raise DataError(f"{where} refers to no storage in the file; save it again")

    def _decoded(self, content: bytes, count: int, dtype: torch.dtype) -> Tensor:  # -> [count]
        """The first numbers of a member, in this machine's byte order."""
        if not count:
            return torch.empty(0, dtype=dtype)
        words = np.frombuffer(content, dtype=f"u{dtype.itemsize}", count=count)
        order = self._members.get(f"{self._folder}byteorder", sys.byteorder.encode())
        words = words.copy() if order == sys.byteorder.encode() else words.byteswap()
        numbers = torch.from_numpy(words)
        return numbers != 0 if dtype == torch.bool else numbers.view(dtype)


def _read_members(path: Path) -> dict[str, bytes]:
    """The members of the archive. torch.save does not compress them, so they are no larger than the file."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            names = {member.filename for member in members}
            inflated = sum(member.file_size for member in members)
            if len(names) < len(members) or inflated > path.stat().st_size:
                raise DataError(f"{path} has members that are listed twice or compressed; torch.save writes neither")
            return {member.filename: archive.read(member) for member in members}
    except DataError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError) as error:
        raise _unreadable(path) from error


def _unreadable(path: Path) -> DataError:
    """The error for a file that is no archive of torch."""
    return DataError(
        f"{path} is not a file that torch.save wrote, or it is cut short; save it again, with torch 1.6 or later"
    )


def _only_graph(loaded: object, path: Path) -> object:
    """The graph in a tuple that PyG's `InMemoryDataset` wrote (`processed/data.pt`); anything else as it is."""
    match loaded:
        case (graph, None) | (graph, None, _):
            return graph
        case (dict() | _Record(), dict() | _Record()) | (dict() | _Record(), dict() | _Record(), _):
            raise DataError(
                f"{path} is a data set of PyG with several graphs; save the one you need: torch.save(dataset[0], ...)"
            )
    return loaded


def _unwrapped(saved: object) -> object:
    """The record of the tensor itself: parameters, and tensors with attributes, are records around it."""
    match saved:
        case _Record(
            name="torch._utils._rebuild_parameter" | "torch._utils._rebuild_parameter_with_state",
            arguments=(_Record() as inner, *_),
        ):
            return inner
        case _Record(name="torch._tensor._rebuild_from_type_v2", arguments=(type() as kind, _, tuple(arguments), *_)):
            return kind(*arguments) if issubclass(kind, _Record) else None
    return saved


def _sizes(saved: object, where: str) -> tuple[int, ...]:
    """The sizes or strides of a tensor, which are whole numbers."""
    sizes = saved.arguments[0] if isinstance(saved, _Record) and saved.arguments else saved
    match sizes:
        case tuple() | list() if len(sizes) <= 8 and all(type(size) is int and abs(size) <= LARGEST for size in sizes):
            return tuple(sizes)
    raise DataError(f"{where}: the sizes of a tensor must be whole numbers of up to 8 dimensions; the file is damaged")


def _shape(saved: object, num_rows: int, where: str) -> tuple[int, int]:
    """The shape of a matrix, whose rows must be as many as there are labels: memory is allocated for them."""
    shape = checked_shape(_sizes(saved, where), where=where)
    if shape[0] != num_rows:
        raise DataError(f"{where}: {shape[0]} rows of features for {num_rows} labels; give one row a node")
    return shape


def _array(tensor: Tensor) -> np.ndarray:
    """The tensor as an array; NumPy has no bfloat16."""
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
