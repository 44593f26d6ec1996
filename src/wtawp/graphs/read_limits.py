"""How much memory the content of a file may take: the limit that every reader checks before it allocates.

A few kilobytes can declare or inflate to gigabytes. Content of up to `$WTAWP_READ_LIMIT_MB` megabytes is read whatever
the size of its file, and larger content if it is at most `EXPANSION` times as large as its file. Only the standard
library is needed here, so that reading records stays fast.
"""

import os
from collections.abc import Iterator
from typing import Protocol

from wtawp.base import DataError

VARIABLE = "WTAWP_READ_LIMIT_MB"
DEFAULT_MB = 64
EXPANSION = 32  # the published archives inflate to 10 times their size at most, and one character can be 8 bytes
NUMBER_BYTES = 8  # what a number counts, whatever its type in the file: readers convert to int64


def allowed_bytes(file_bytes: int, *, default_mb: int = DEFAULT_MB) -> int:
    """How many bytes the content of a file may take in memory.

    Args:
        file_bytes: The size of the file.
        default_mb: The megabytes that are always allowed if `$WTAWP_READ_LIMIT_MB` is not set.

    Returns:
        The number of bytes.

    Raises:
        DataError: If the variable is not a whole number >= 1.

    Example:
        >>> allowed_bytes(10) == 64 * 2**20, allowed_bytes(2**30) == 32 * 2**30
        (True, True)
    """
    chosen = os.environ.get(VARIABLE, "").strip() or str(default_mb)
    if not chosen.isdecimal() or len(chosen) > 12 or int(chosen) < 1:
        raise DataError(f"${VARIABLE} must be a whole number of megabytes >= 1, got {chosen[:40]!r}")
    return max(int(chosen) * 2**20, EXPANSION * file_bytes)


def check_memory(needed: int, file_bytes: int, *, where: str, default_mb: int = DEFAULT_MB, advice: str = "") -> None:
    """Refuse content that would take more memory than its file may.

    Args:
        needed: The bytes that the content would take.
        file_bytes: The size of the file.
        where: The name of the file or array, for the message.
        default_mb: The megabytes that are always allowed if `$WTAWP_READ_LIMIT_MB` is not set.
        advice: Another way out, for the message, such as "choose fewer features".

    Raises:
        DataError: If it is too much; the message names the variable that raises the limit.
    """
    allowed = allowed_bytes(file_bytes, default_mb=default_mb)
    if needed > allowed:
        size = f"{-(-needed // 2**20):,} MB" if needed < 2**70 else "more than any machine has"
        raise DataError(
            f"{where}: the content needs {size} of memory, for a file of {file_bytes:,} bytes; up to "
            f"{allowed // 2**20:,} MB are allowed. If you trust the file, set the environment variable {VARIABLE} "
            f"to the megabytes it may need{'; or ' + advice if advice else ''}"
        )


class _Lines(Protocol):
    """A file, compressed or not, opened for reading bytes."""

    def readline(self, size: int, /) -> bytes:
        """The next line, or the first `size` bytes of it."""


def limited_lines(stream: _Lines, allowed: int, *, where: str) -> Iterator[bytes]:
    """Read the lines of a file that may be compressed, up to a limit on all of them together.

    Args:
        stream: The file, opened for reading bytes.
        allowed: The bytes that the lines may have, as `allowed_bytes` counts them.
        where: The name of the file, for the message.

    Yields:
        The lines with their ends.

    Raises:
        DataError: If there are more bytes; no line that exceeds the limit is held in memory.
    """
    left = allowed
    while line := stream.readline(left + 1):
        if len(line) > left:
            raise DataError(
                f"{where} holds more than the {allowed // 2**20:,} MB that are allowed for a file of its size; if you "
                f"trust it, set the environment variable {VARIABLE} to the megabytes it may need"
            )
        left -= len(line)
        yield line
