"""What a user's file holds beside what is read: it is named, and refused where it may be features that are missing."""

import warnings
from collections.abc import Collection, Mapping
from pathlib import Path

from wtawp.base import DataError, UnusedDataWarning, find_stack_level, shortened

MAX_NAMED = 10  # entries that a message lists


def is_description(name: str) -> bool:
    """Whether an entry of a file only describes nodes, features and classes, as published files do.

    Args:
        name: The name of the entry.

    Returns:
        True for `metadata`, `idx_to_...` and `..._names`.

    Example:
        >>> is_description("idx_to_class"), is_description("features")
        (True, False)
    """
    return name == "metadata" or name.startswith("idx_to_") or name.endswith("_names")


def warn_of_unread(path: Path, unread: Collection[str], read: str) -> None:
    """Warn of entries of a file that are not read; nothing is said if there are none.

    Args:
        path: The file.
        unread: The names of these entries.
        read: What is read of such a file, for the message.
    """
    if unread:
        are = "is" if len(unread) == 1 else "are"
        warnings.warn(
            f"{path}: {_listed(unread)} {are} not used; of such a file, {read} are read",
            UnusedDataWarning,
            stacklevel=find_stack_level(),
        )


def refuse_unread_features(
    path: Path, shapes: Mapping[str, tuple[int, ...]], num_nodes: int, *, advice: str
) -> None:  # shapes of arrays of numbers
    """Refuse a file without features if an entry that is not read has a row of numbers for each node.

    A square table is not refused: it may join nodes.

    Args:
        path: The file.
        shapes: The shape of each array of numbers that is not read.
        num_nodes: The number of nodes.
        advice: How features must be saved.

    Raises:
        DataError: If there is such an entry, which may well be the features under another name.
    """
    tables = {
        name: list(shape)
        for name, shape in shapes.items()
        if len(shape) == 2 and shape[0] == num_nodes and shape[1] not in (0, num_nodes)
    }
    if tables:
        given = ", ".join(f"{shortened(name)} {shape}" for name, shape in list(tables.items())[:MAX_NAMED])
        raise DataError(
            f"{path} has no features under a name that is read, but {given} may hold them: {advice}, or remove"
            f" {'it' if len(tables) == 1 else 'them'} if the graph has no features"
        )


def _listed(names: Collection[str]) -> str:
    """The first names, for a message."""
    shown = [shortened(name, 60) for name in sorted(names)]
    return ", ".join(shown[:MAX_NAMED]) + f" and {len(shown) - MAX_NAMED} more" * (len(shown) > MAX_NAMED)
