"""How flips are stored: as npz files that are read without trust, and as short lines of text for records."""

import base64
import binascii
import io
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from wtawp.base import DataError, write_atomic
from wtawp.graphs.archives import Archive
from wtawp.graphs.file_checks import brief
from wtawp.graphs.read_limits import VARIABLE, allowed_bytes

Provenance = tuple[tuple[str, str], ...]
PROVENANCE = "provenance"  # the array of names and values that every file of flips holds


def check_provenance(provenance: Provenance) -> None:
    """Refuse a provenance that is not pairs (name, value) of strings."""
    texts = [part for entry in provenance for part in entry]
    if len(texts) != 2 * len(provenance) or not all(isinstance(text, str) for text in texts):
        raise DataError(f"provenance must be pairs (name, value) of strings, got {provenance}")


def write_flips(path: str | Path, indices: Mapping[str, Tensor], sizes: Mapping[str, int], origin: Provenance) -> None:
    """Write arrays of indices, whole numbers and a provenance into a small npz file, atomically.

    Args:
        path: The file, which is replaced if it exists.
        indices: Tensors of int64, or of floats for what `read_flips` reads as values, on the CPU, by name.
        sizes: Whole numbers, by name.
        origin: The provenance.
    """
    arrays: dict[str, npt.NDArray[np.int64 | np.floating[Any] | np.str_]] = {
        name: tensor.numpy() for name, tensor in indices.items()
    }
    arrays |= {name: np.array(size, dtype=np.int64) for name, size in sizes.items()}
    arrays[PROVENANCE] = np.array(origin, dtype=np.str_).reshape(-1, 2)
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    write_atomic(Path(path), content.getvalue())


def array_names(path: str | Path) -> frozenset[str]:
    """List the arrays of a file of flips.

    Args:
        path: The file.

    Returns:
        Their names.
    """
    with Archive(Path(path)) as archive:
        return frozenset(name.removesuffix(".npy") for name in archive.names)


def read_flips(
    path: str | Path, indices: Sequence[str], sizes: Sequence[str], *, values: Sequence[str] = ()
) -> tuple[list[Tensor], list[int], Provenance]:
    """Read what `write_flips` wrote.

    Args:
        path: The file.
        indices: The names of the arrays of indices.
        sizes: The names of the whole numbers.
        values: The names of the arrays of floats.

    Returns:
        The indices followed by the values, the whole numbers and the provenance, of the right types and otherwise
        unchecked.

    Raises:
        DataError: If there is no such file, or it does not hold such arrays.
    """
    path = Path(path)
    with Archive(path) as archive:
        absent = [name for name in (*indices, *sizes, *values, PROVENANCE) if f"{name}.npy" not in archive.names]
        if absent:
            raise DataError(f"{path} lacks {', '.join(absent)}; it is not a file of such flips")
        tensors, numbers = [archive.array(name) for name in indices], [archive.array(name) for name in sizes]
        floats, text = [archive.array(name) for name in values], archive.array(PROVENANCE)
    is_whole = all(array.dtype == np.int64 for array in (*tensors, *numbers))
    is_whole = is_whole and all(array.dtype in (np.float32, np.float64) for array in floats)
    if not is_whole or any(number.ndim for number in numbers) or text.dtype.kind != "U":
        wanted = f"int64 {', '.join(indices)}, one int64 {', one int64 '.join(sizes)} and text"
        wanted = f"float {', '.join(values)}, {wanted}" if values else wanted
        raise DataError(f"{path} must hold {wanted}; save the flips again")
    if text.ndim != 2 or text.shape[1] != 2:
        raise DataError(f"{path}: provenance must be rows (name, value), got shape {list(text.shape)}")
    provenance = tuple((str(name), str(value)) for name, value in text)
    return [torch.from_numpy(tensor) for tensor in (*tensors, *floats)], [int(number) for number in numbers], provenance


def pack_codes(codes: Tensor) -> str:
    """Encode increasing whole numbers as a short line of text.

    Args:
        codes: The numbers, [k] int64, on the CPU.

    Returns:
        The differences between successive numbers, compressed, in base 64; `unpack_codes` reads them.
    """
    steps = np.diff(codes.numpy(), prepend=0).astype("<i8")
    columns = steps.view(np.uint8).reshape(-1, 8).T.tobytes()  # bytes of equal significance together: most are 0
    return base64.b64encode(zlib.compress(columns, 9)).decode()


def unpack_codes(text: str) -> Tensor:  # -> [k] int64
    """Decode the text that `pack_codes` made.

    Args:
        text: The encoded numbers.

    Returns:
        The numbers, otherwise unchecked.

    Raises:
        DataError: If the text is not of this form.
    """
    if not isinstance(text, str):
        raise DataError(f"packed flips are a text, got {brief(text)}")
    inflating = zlib.decompressobj()
    try:
        columns = inflating.decompress(base64.b64decode(text, validate=True), allowed_bytes(len(text)))
    except (binascii.Error, zlib.error, ValueError) as error:
        raise DataError(f"these are not packed flips, or they are cut short: {error}") from error
    if inflating.unconsumed_tail:
        raise DataError(
            f"packed flips of {len(text):,} characters inflate to more than the {allowed_bytes(len(text)):,} bytes "
            f"that are allowed; if you trust them, set the environment variable {VARIABLE} to more megabytes"
        )
    if not inflating.eof or inflating.unused_data or len(columns) % 8:
        raise DataError("these are not packed flips, or they are cut short: their length is wrong")
    steps = np.frombuffer(columns, np.uint8).reshape(8, len(columns) // 8).T.copy().view("<i8").ravel()
    return torch.from_numpy(np.cumsum(steps, dtype=np.int64))
