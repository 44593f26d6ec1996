"""Read the tensors in a file of `torch.save` without trusting what the file declares.

`torch.load` with `weights_only=True` runs nothing either, but builds tensors as the file declares them: indices of
sparse tensors are not checked, and a stride of 0 makes a small file a large tensor. Here the pickle is read into
plain objects. A tensor is built when it is asked for, after every field of it was checked against what the file holds.
"""

import io
import sys
import zipfile
from collections import Counter, OrderedDict
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import coo_matrix, csr_matrix
from torch import Tensor

from wtawp.base import DataError, shortened
from wtawp.graphs.file_checks import (
    LARGEST,
    brief,
    check_ascending,
    check_layout,
    checked_indices,
    checked_shape,
    checked_values,
)
from wtawp.graphs.plain_pickles import PickledDict, PickledObject, PlainUnpickler
from wtawp.graphs.read_limits import check_memory
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
_OTHER_DTYPES = {
    "torch.ComplexFloatStorage": torch.complex64, "torch.ComplexDoubleStorage": torch.complex128,
    **{f"torch.{name}": getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name)},
}  # fmt: skip
_MAX_NAMES = 1000  # of constructors in one file; each becomes a class
_MIN_VALUES = 100_000  # plain values that a file may always hold, also if they share parts


class _Pickled(PickledObject):
    """A pickled object that knows the name of its constructor, "module.name"."""

    name = ""


class _Storage:
    """A reference to a member of the archive: what the pickle says that it holds."""

    def __init__(self, reference: object) -> None:
        self.reference = reference


class _Unpickler(PlainUnpickler):
    """An unpickler that replaces objects of known libraries by plain ones and refuses all others."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream)
        self._classes: dict[str, type] = {}

    def find_class(self, module: str, name: str) -> object:
        if (module, name) in (("collections", "OrderedDict"), ("collections", "defaultdict")):
            return PickledDict
        full = f"{module}.{name}"
        if module.split(".")[0] not in _LIBRARIES or name in _CODE or len(self._classes) >= _MAX_NAMES:
            raise DataError(f"asks for {full[:200]}; refused, nothing was run: save a dict of tensors")
        if full not in self._classes:
            self._classes[full] = type(name, (_Pickled,), {"name": full})
        return self._classes[full]

    def persistent_load(self, reference: object) -> object:
        return _Storage(reference)


class SavedTensors:
    """The content of a file that `torch.save` wrote.

    Args:
        path: The file.
        stream: Its bytes, if they are not read from the file.
    """

    def __init__(self, path: Path, stream: io.BytesIO | None = None) -> None:
        self.path = path
        self._members = _read_members(path, stream)
        self._storages: dict[tuple[str, torch.dtype, int], Tensor] = {}
        self._values_left = self._elements = 0
        pickles = [name for name in self._members if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise _unreadable(path)
        self._folder = pickles[0].removesuffix("data.pkl")
        self._pickle_bytes = len(self._members[pickles[0]])
        try:
            self._loaded: object = _Unpickler(io.BytesIO(self._members[pickles[0]])).load()
        except DataError as error:
            raise DataError(f"{path} {error}") from None
        except Exception as error:  # a damaged pickle can raise anything
            raise _unreadable(path) from error

    @cached_property
    def content(self) -> dict[object, object]:
        """The entries of a dict or a PyG `Data` by name; tensors are pickled objects, see `dense` and `matrix`."""
        match _only_graph(self._loaded, self.path):
            case _Pickled(
                name="torch_geometric.data.data.Data", state={"_store": _Pickled(state={"_mapping": dict() as mapping})}
            ):
                return mapping
            case dict() as mapping:
                return mapping
            case loaded:
                kind = loaded.name if isinstance(loaded, _Pickled) else type(loaded).__name__
                raise DataError(f"{self.path} must hold a PyG Data or a dict of tensors, got {kind[:200]}")

    def restored(self) -> object:
        """All that was saved, for files that hold dense tensors and plain values, in dicts, lists and tuples."""
        self._values_left, self._elements = max(_MIN_VALUES, 8 * self._pickle_bytes), 0
        try:
            return self._value(self._loaded)
        except RecursionError:
            raise DataError(f"{self.path} nests its values too deeply; save a flat dict of tensors") from None

    def is_tensor(self, key: str) -> bool:
        """Whether there is an entry of this name, and it is a tensor, dense or sparse."""
        pickled = _unwrapped(self.content.get(key))
        return isinstance(pickled, _Pickled) and pickled.name.startswith("torch._utils._rebuild_")

    def is_sparse(self, key: str) -> bool:
        """Whether the entry of this name is a sparse tensor."""
        pickled = _unwrapped(self.content.get(key))
        return isinstance(pickled, _Pickled) and pickled.name == "torch._utils._rebuild_sparse_tensor"

    def is_array(self, key: str) -> bool:
        """Whether the entry of this name is a tensor, or an array of NumPy, which is never read."""
        pickled = _unwrapped(self.content.get(key))
        return self.is_tensor(key) or (isinstance(pickled, _Pickled) and pickled.name.endswith("._reconstruct"))

    def shape_of_numbers(self, key: str) -> tuple[int, ...] | None:
        """The shape that is declared of a tensor or array of numbers; None for booleans and for anything else."""
        match _unwrapped(self.content.get(key)):
            case _Pickled(
                name="torch._utils._rebuild_tensor_v2" | "torch._utils._rebuild_tensor_v3",
                arguments=(_Storage(reference=(_, type() as kind, *_)), _, size, *_),
            ) if getattr(kind, "name", "") != "torch.BoolStorage":
                pass
            case _Pickled(name="torch._utils._rebuild_sparse_tensor", arguments=(_, tuple() as parts)):
                size = next((part for part in parts if getattr(part, "name", "") == "torch.Size"), None)
            case _Pickled(state=(_, tuple() as size, _Pickled(arguments=(str(kind), *_)), *_)) if kind[:1] in "iuf":
                pass
            case _:
                return None
        return _sizes(size, f"{self.path}, {key}")

    def kind(self, key: str) -> str:
        """The type of the entry of this name, for a message."""
        entry = self.content.get(key)
        return (
            "an array of NumPy" if self.is_array(key) else shortened(getattr(entry, "name", "") or type(entry).__name__)
        )

    def dense(self, key: str) -> Tensor:
        """The dense tensor of this name; a sparse one, or one of complex numbers, is refused."""
        return self._strided(self.content.get(key), f"{self.path}, {key}")

    def matrix(self, key: str, num_rows: int) -> csr_matrix:  # [n, d]
        """The sparse matrix of this name with so many rows, stored as COO, CSR or CSC, with every index checked."""
        where = f"{self.path}, {key}"
        pickled = _unwrapped(self.content.get(key))
        match pickled.arguments if isinstance(pickled, _Pickled) else ():
            case (_Pickled(arguments=(str(layout),)), (indices, values, size, *marks)) if layout == "torch.sparse_coo":
                return self._coo(
                    indices,
                    values,
                    _shape(size, num_rows, where),
                    marked=any(mark is True for mark in marks),
                    where=where,
                )
            case (_Pickled(arguments=(str(layout),)), (pointers, indices, values, size)) if layout in (
                "torch.sparse_csr",
                "torch.sparse_csc",
            ):
                shape = np.array(_shape(size, num_rows, where))
                parts = [_array(self._strided(part, where)) for part in (values, indices, pointers)]
                if layout == "torch.sparse_csr":
                    return csr(parts[0], parts[1], parts[2], shape, where=where)
                return csr(parts[0], parts[1], parts[2], shape[::-1], where=where).T.tocsr()
        raise DataError(f"{where} must be a dense tensor or a sparse matrix in COO, CSR or CSC; save {key}.to_dense()")

    def _value(self, saved: object) -> object:
        """A saved value as it was, and all values in it. Parts that are shared count as often as they occur."""
        self._values_left -= 1
        if self._values_left < 0:
            raise DataError(f"{self.path} repeats its values too often; save it again, without shared lists")
        match saved:
            case None | bool() | int() | float() | str() | bytes():
                return saved
            case PickledDict():
                ordered = OrderedDict((key, self._value(value)) for key, value in saved.items())
                if isinstance(saved.state, dict) and "_metadata" in saved.state:  # versions of the layers of a model
                    ordered._metadata = self._value(saved.state["_metadata"])  # type: ignore[attr-defined]
                return ordered
            case dict():
                return {key: self._value(value) for key, value in saved.items()}
            case list() | tuple() | set() | frozenset():
                return type(saved)(map(self._value, saved))
            case _Pickled(name="builtins.set" | "__builtin__.set", arguments=(list() as members,)) if all(
                isinstance(member, str | int | float) for member in members
            ):
                return set(members)
            case _Pickled(name="_codecs.encode", arguments=(str() as text, "latin1")) if (
                max(text, default="") <= "\xff"
            ):
                return text.encode("latin1")  # how pickle writes bytes in protocol 2
            case _Pickled(name="collections.Counter", arguments=(dict() as counts,)):
                return Counter({key: self._value(count) for key, count in counts.items()})
            case _Pickled(name="torch.Size", arguments=(sizes,)):
                return torch.Size(_sizes(sizes, str(self.path)))
            case _Pickled(name="torch.device", arguments=(("cpu" | "cuda" | "mps" | "meta" | "xpu") as device, *index)):
                return torch.device(device, *_sizes(tuple(index[:1]), str(self.path)))
            case _Pickled(name="builtins.complex" | "__builtin__.complex", arguments=(float() as real, float() as im)):
                return complex(real, im)
            case type() if issubclass(saved, _Pickled) and isinstance(_torch_attribute(saved.name), torch.dtype):
                return _torch_attribute(saved.name)
            case _Pickled(name=name) if name.startswith(("torch._utils._rebuild_", "torch._tensor._rebuild_")):
                tensor = self._strided(saved, str(self.path), dtypes={**_DTYPES, **_OTHER_DTYPES})
                self._elements += tensor.numel() * tensor.itemsize
                check_memory(self._elements, sum(map(len, self._members.values())), where=str(self.path))
                return tensor
        kind = getattr(saved, "name", "") or type(saved).__name__
        raise DataError(f"{self.path} holds {kind[:200]}; only tensors and plain values can be read")

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

    def _strided(self, saved: object, where: str, dtypes: dict[str, torch.dtype] = _DTYPES) -> Tensor:
        """The dense tensor of a pickled object, checked; its type must be one of `dtypes`."""
        match _unwrapped(saved):
            case _Pickled(
                name="torch._utils._rebuild_tensor_v2",
                arguments=(_Storage(reference=("storage", type() as kind, *location)), offset, size, stride, _, _),
            ):
                numbers = self._numbers(_dtype(kind, dtypes, where), location, where, in_bytes=False)
            case _Pickled(
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
                numbers = self._numbers(_dtype(kind, dtypes, where), location, where, in_bytes=True)
            case _:
                raise DataError(f"{where} must be a dense tensor of real numbers; save it as one, in float32 or int64")
        (start,), sizes, strides = _sizes((offset,), where), _sizes(size, where), _sizes(stride, where)
        check_layout(sizes, strides, start, len(numbers), where=where)
        return numbers.as_strided(sizes, strides, start)

    def _numbers(self, dtype: torch.dtype, location: list[object], where: str, *, in_bytes: bool) -> Tensor:
        """The numbers of a storage, [stored]: as many as the pickle says, which the archive must really hold."""
        match location:
            case [str(key), _, int(count), *_]:
                content = self._members.get(f"{self._folder}data/{key}", b"")
                declared = count if in_bytes else count * dtype.itemsize
                if 0 <= declared <= len(content):
                    stored = (key, dtype, declared // dtype.itemsize)
                    if stored not in self._storages:  # tensors can share a storage
                        self._storages[stored] = self._decoded(content, stored[2], dtype)
                    return self._storages[stored]
                raise DataError(
                    f"{where} declares {brief(declared)} bytes, the file holds {len(content)}; save it again"
                )
        raise DataError(f"{where} refers to no storage in the file; save it again")

    def _decoded(self, content: bytes, count: int, dtype: torch.dtype) -> Tensor:  # -> [count]
        """The first numbers of a member, in this machine's byte order."""
        if not count:
            return torch.empty(0, dtype=dtype)
        parts = 2 if dtype.is_complex else 1
        words = np.frombuffer(content, dtype=f"u{dtype.itemsize // parts}", count=count * parts)
        order = self._members.get(f"{self._folder}byteorder", sys.byteorder.encode())
        words = words.copy() if order == sys.byteorder.encode() else words.byteswap()
        numbers = torch.from_numpy(words)
        return numbers != 0 if dtype == torch.bool else numbers.view(dtype)


def _dtype(kind: type, dtypes: dict[str, torch.dtype], where: str) -> torch.dtype:
    """The type of the numbers of a storage, which must be one of `dtypes`."""
    dtype = dtypes.get(getattr(kind, "name", ""))
    if dtype is None:
        raise DataError(f"{where} must hold real numbers, got {brief(kind.__name__)}; convert it to float32")
    return dtype


def _torch_attribute(name: str) -> object:
    """What torch calls by this full name; None if there is nothing."""
    return getattr(torch, name.removeprefix("torch."), None)


def _read_members(path: Path, stream: io.BytesIO | None) -> dict[str, bytes]:
    """The members of the archive. torch.save does not compress them, so they are no larger than the file."""
    try:
        file_bytes = path.stat().st_size if stream is None else len(stream.getbuffer())
        with zipfile.ZipFile(path if stream is None else stream) as archive:
            members = archive.infolist()
            names = {member.filename for member in members}
            inflated = sum(member.file_size for member in members)
            is_plain = all(m.compress_type == zipfile.ZIP_STORED and m.compress_size <= file_bytes for m in members)
            if len(names) < len(members) or inflated > file_bytes or not is_plain:
                raise DataError(f"{path} has members that are listed twice or compressed; torch.save writes neither")
            return {member.filename: archive.read(member) for member in members}
    except DataError:
        raise
    except Exception as error:  # a damaged archive can raise anything
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
        case (dict() | _Pickled(), dict() | _Pickled()) | (dict() | _Pickled(), dict() | _Pickled(), _):
            raise DataError(
                f"{path} is a data set of PyG with several graphs; save the one you need: torch.save(dataset[0], ...)"
            )
    return loaded


def _unwrapped(saved: object) -> object:
    """The tensor itself: parameters, and tensors with attributes, are pickled as objects around it."""
    match saved:
        case _Pickled(
            name="torch._utils._rebuild_parameter" | "torch._utils._rebuild_parameter_with_state",
            arguments=(_Pickled() as inner, *_),
        ):
            return inner
        case _Pickled(name="torch._tensor._rebuild_from_type_v2", arguments=(type() as kind, _, tuple(arguments), *_)):
            return kind(*arguments) if issubclass(kind, _Pickled) else None
    return saved


def _sizes(saved: object, where: str) -> tuple[int, ...]:
    """The sizes or strides of a tensor, which are whole numbers."""
    sizes = saved.arguments[0] if isinstance(saved, _Pickled) and saved.arguments else saved
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
