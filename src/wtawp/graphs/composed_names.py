"""Names that combine a data set with files: "cora@attacked.npz@split.json" is Cora with other edges and a given split.

A composed name goes wherever the name of a data set goes: into `load`, settings, plans and records. Reading one needs
neither torch nor PyG.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from wtawp.base import DataError, is_reference
from wtawp.graphs.registry import SUFFIXES, dataset_names

SEPARATOR = "@"
EDGES_SUFFIX, SPLIT_SUFFIX = ".npz", ".json"


@dataclass(frozen=True, kw_only=True)
class ComposedName:
    """A data set whose edges, split, or both are taken from files.

    Attributes:
        base: What features and labels are taken from: the name of a data set, a reference, or the path of a graph.
        edges: The path of an adjacency matrix, which ends in .npz; None keeps the edges of the base.
        split: The path of a split, which ends in .json; None keeps the masks of the base, if it has any.

    Raises:
        DataError: If there is neither file, or a path has another ending.

    Example:
        >>> str(ComposedName(base="cora", edges="cora_meta_adj_0.05.npz"))
        'cora@cora_meta_adj_0.05.npz'
    """

    base: str
    edges: str | None = None
    split: str | None = None

    def __post_init__(self) -> None:
        for path, suffix in ((self.edges, EDGES_SUFFIX), (self.split, SPLIT_SUFFIX)):
            if path is not None and not path.endswith(suffix):
                raise DataError(f"the file must end in {suffix}, got {path!r}")
        if self.edges is None and self.split is None:
            raise DataError(f"{self.base} needs a file of edges or of a split to be combined with, got neither")

    def __str__(self) -> str:
        return SEPARATOR.join(part for part in (self.base, self.edges, self.split) if part is not None)


def composed_name(text: str) -> ComposedName | None:
    """Read a composed name.

    Args:
        text: Any name of a data set, or the path of a graph.

    Returns:
        Its parts; None if the text is not a composed name. It is one if what precedes the first @ is a data set, in
        upper or lower case, a reference, or ends as the file of a graph does, and what follows ends in .npz or .json.

    Example:
        >>> composed_name("cora@splits.json").split, composed_name("folder@work/graph.npz")
        ('splits.json', None)
    """
    base, separator, files = text.partition(SEPARATOR)
    base = {name.casefold(): name for name in dataset_names()}.get(base.casefold(), base)
    is_base = base in dataset_names() or is_reference(base) or base.endswith(SUFFIXES)
    if not separator or not is_base or not files.endswith((EDGES_SUFFIX, SPLIT_SUFFIX)):
        return None
    if files.endswith(EDGES_SUFFIX):
        return ComposedName(base=base, edges=files)
    edges, between, split = files.partition(f"{EDGES_SUFFIX}{SEPARATOR}")
    if not between:
        return ComposedName(base=base, split=files)
    return ComposedName(base=base, edges=edges + EDGES_SUFFIX, split=split)


def files_of_name(text: str) -> tuple[Path, ...]:
    """List the user's files that a name stands for, whether they exist or not.

    Args:
        text: The name of a data set, the path of a graph, or a composed name.

    Returns:
        The paths; the labels that belong to an edge list in CSV are one of them. None for a data set without files of
        the user.

    Example:
        >>> [path.name for path in files_of_name("graph.csv@splits.json")]
        ['graph.csv', 'graph.labels.csv', 'splits.json']
    """
    composed = composed_name(text)
    if composed is not None:
        others = [path for path in (composed.edges, composed.split) if path is not None]
        return (*files_of_name(composed.base), *(Path(os.path.expanduser(path)) for path in others))
    if not text.endswith(SUFFIXES):
        return ()
    path = Path(os.path.expanduser(text))  # which never raises, other than Path.expanduser
    return (path, path.with_name(f"{path.stem}.labels.csv")) if path.suffix == ".csv" else (path,)


def short_name(text: str, *, keeps_endings: bool = False) -> str:
    """Shorten the name of a data set for titles and the names of files.

    Args:
        text: The name of a data set, the path of a graph, or a composed name.
        keeps_endings: Whether endings such as .npz are kept.

    Returns:
        The name without folders and, by default, without endings.

    Example:
        >>> short_name("graphs/mine.csv"), short_name("cora@attacked/cora_meta_adj_0.05.npz@splits.json")
        ('mine', 'cora@cora_meta_adj_0.05@splits')
    """
    composed = composed_name(text)
    parts = (text,) if composed is None else (composed.base, composed.edges, composed.split)
    paths = [Path(part) for part in parts if part is not None]
    return SEPARATOR.join(path.name if keeps_endings else path.stem for path in paths)
