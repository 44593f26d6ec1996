"""Read zip archives and the NumPy arrays in them, without trusting what an archive declares about itself.

Nothing is extracted to disk. A member is inflated only when it is asked for, and only if the sizes that the archive
declares stay within `wtawp.graphs.read_limits`. An array is built only if its header declares what the member holds.
"""

import io
import math
import sys
import zipfile
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from wtawp.base import DataError
from wtawp.graphs.file_checks import brief
from wtawp.graphs.read_limits import DEFAULT_MB, NUMBER_BYTES, check_memory

HEADER_BYTES = 2**17  # more than the header of any .npy file that NumPy reads
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # zipfile inflates the others without a limit


class Archive:
    """A zip file, to be used in a `with` statement.

    Args:
        path: The file.
        default_mb: The megabytes that its content may always have, see `allowed_bytes`.

    Attributes:
        path: The file.
        names: The names of the members. A name that points outside of the archive, or occurs twice, is refused.
        file_bytes: The size of the file.

    Raises:
        DataError: If there is no such file, or it is not a readable archive.
    """

    def __init__(self, path: Path, *, default_mb: int = DEFAULT_MB) -> None:
        self.path, self.default_mb = path, default_mb
        self._needed = 0  # bytes of all that was read so far
        try:
            self.file_bytes = path.stat().st_size
            self._zip = zipfile.ZipFile(path)
        except FileNotFoundError:
            raise DataError(f"there is no file {path.absolute()}") from None
        except Exception as error:  # a damaged archive can raise anything
            raise _unreadable(path, error) from error
        self.names = tuple(self._zip.namelist())
        try:
            self._check_names()
        except DataError:
            self._zip.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._zip.close()

    def read(self, name: str) -> bytes:
        """Inflate a member.

        Args:
            name: One of `names`.

        Returns:
            Its bytes.

        Raises:
            DataError: If the member is damaged, compressed in another way than deflate, or too large.
        """
        member = self._zip.getinfo(name)
        where = f"{self.path}, {_shown(name)}"
        if member.compress_type not in _METHODS:
            raise DataError(f"{where} is compressed by method {member.compress_type}; only deflate is read: pack again")
        if member.compress_size > self.file_bytes:  # zipfile would allocate it
            raise DataError(
                f"{where} declares {member.compress_size:,} bytes in a file of {self.file_bytes:,}; damaged"
            )
        self.reserve(member.file_size, where)
        try:
            with self._zip.open(member) as stream:  # read() without a size would inflate more than is declared
                return stream.read(member.file_size)
        except Exception as error:  # a damaged archive can raise anything
            raise _unreadable(self.path, error) from error

    def array(self, name: str) -> np.ndarray:
        """Read the array in the member `name`.npy.

        Args:
            name: The name of the array.

        Returns:
            An array of real numbers or names. Pickled objects are refused.

        Raises:
            DataError: If the member is damaged, or too large, or holds anything else.
        """
        where = f"{self.path}, {_shown(name)}"
        array = plain_array(self.read(f"{name}.npy"), where)
        self.reserve(array.size * NUMBER_BYTES, where)  # what it needs once it is converted
        return array

    def header(self, name: str) -> tuple[tuple[int, ...], np.dtype]:
        """Read what the member `name`.npy declares about its array, without inflating the array.

        Args:
            name: The name of the array.

        Returns:
            Its shape and its dtype, which need not be what the member really holds.

        Raises:
            DataError: If the member is damaged, or is no array.
        """
        member, where = self._zip.getinfo(f"{name}.npy"), f"{self.path}, {_shown(name)}"
        if member.compress_type not in _METHODS:
            raise DataError(f"{where} is compressed by method {member.compress_type}; only deflate is read: pack again")
        try:
            with self._zip.open(member) as stream:
                start = io.BytesIO(stream.read(HEADER_BYTES))
        except Exception as error:  # a damaged archive can raise anything
            raise _unreadable(self.path, error) from error
        shape, _, dtype = npy_header(start, where)
        return shape, dtype

    def reserve(self, needed: int, where: str) -> None:
        """Count memory for content of this archive.

        Args:
            needed: The bytes.
            where: What needs them, for the message.

        Raises:
            DataError: If all that was read from the archive would take too much memory.
        """
        self._needed += needed
        check_memory(self._needed, self.file_bytes, where=where, default_mb=self.default_mb)

    def _check_names(self) -> None:
        """Refuse names that point outside, or occur twice."""
        for name, count in Counter(self.names).items():
            if name.startswith(("/", "\\")) or ":" in name or ".." in name.replace("\\", "/").split("/"):
                raise DataError(f"{self.path} has a member called {_shown(name)}, which points outside; refused")
            if count > 1:
                raise DataError(f"{self.path} has {count} members called {_shown(name)}; which one counts is not known")


def npy_header(stream: io.BytesIO, where: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Read the header of a .npy file.

    Args:
        stream: The file; it is left at the first byte after the header.
        where: The name of the file, for messages.

    Returns:
        The shape, whether the order is Fortran's, and the dtype that the file declares.

    Raises:
        DataError: If there is no valid header.
    """
    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            return np.lib.format.read_array_header_1_0(stream)
        return np.lib.format.read_array_header_2_0(stream)  # version 3 has the same fields, with names in UTF-8
    except Exception as error:  # a damaged header can raise anything
        raise DataError(f"{where} is not an array of NumPy: {brief(str(error))}") from error


def plain_array(content: bytes, where: str) -> np.ndarray:
    """Read a .npy file without pickled objects, whose header must declare what the file really holds.

    Args:
        content: The bytes of the file.
        where: The name of the file, for messages.

    Returns:
        An array of real numbers or names.

    Raises:
        DataError: If the file is damaged, or holds anything else, such as complex numbers.
    """
    stream = io.BytesIO(content)
    shape, fortran, dtype = npy_header(stream, where)
    if dtype.kind not in "biufU" or not dtype.itemsize:
        raise DataError(f"{where} is not a plain array: it must hold real numbers or names, got {str(dtype)[:60]}")
    is_shape = all(type(size) is int and size >= 0 for size in shape)
    if not is_shape or math.prod(shape) * dtype.itemsize != len(content) - stream.tell():
        raise DataError(f"{where} declares {dtype} of shape {brief(shape)}, which is not what it holds; it is damaged")
    try:
        array = np.frombuffer(content, dtype, offset=stream.tell()) if math.prod(shape) else np.empty(0, dtype)
        array = array.reshape(shape, order="F" if fortran else "C").copy()
    except ValueError as error:  # more dimensions than NumPy has
        raise DataError(f"{where} declares the shape {brief(shape)}: {error}") from error
    if array.dtype.kind == "U" and array.size:
        letters = np.frombuffer(array.tobytes(), dtype=np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
        if int(letters.max()) > sys.maxunicode or ((letters >= 0xD800) & (letters <= 0xDFFF)).any():
            raise DataError(f"{where} holds names with letters that do not exist; it is damaged")
    return array


def _unreadable(path: Path, error: Exception) -> DataError:
    """The error for an archive that is damaged."""
    reason = brief(str(error) or type(error).__name__)
    return DataError(f"{path} is not a readable archive ({reason}); it may be cut short: fetch or save it again")


def _shown(name: str) -> str:
    """The name of a member, for a message."""
    return name if name.isprintable() and len(name) <= 80 else brief(name)
