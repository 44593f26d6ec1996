"""Attacked graphs, splits and target nodes as DeepRobust and Pro-GNN publish them.

An attacked graph is an adjacency matrix alone, written by `scipy.sparse.save_npz`; features and labels are those of the
data set that was attacked. Splits and target nodes are lists of node numbers in JSON. Nothing in a file is run, and
what a file declares is checked before it is used.
"""

import copy
import io
import json
import warnings
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch_geometric.data import Data

from wtawp.base import DataError, UnusedDataWarning, find_stack_level, write_atomic
from wtawp.graphs.archives import Archive, npy_header
from wtawp.graphs.composed_names import ComposedName
from wtawp.graphs.datasets import load
from wtawp.graphs.file_checks import brief, checked_indices, checked_shape, checked_values
from wtawp.graphs.flips import undirected_pairs
from wtawp.graphs.read_limits import allowed_bytes
from wtawp.graphs.registry import dataset_names, dataset_spec
from wtawp.graphs.sanitize import csr, undirected
from wtawp.graphs.splits import MASKS, Split

PARTS = {"train": "idx_train", "val": "idx_val", "test": "idx_test"}  # of a split, and their names in the file
TARGETS = "attacked_test_nodes"
MEMBERS = {"csr": ("indices", "indptr"), "csc": ("indices", "indptr"), "coo": ("row", "col")}
LEAST_SHARED = 0.1  # share of common edges below which nodes are numbered in another way, or belong to another graph


def load_attacked(path: str | Path, *, base: str | Data) -> Data:
    """Load an attacked graph from a file that holds its adjacency matrix alone.

    Such files are published with Pro-GNN and DeepRobust for the largest components of Cora, Citeseer and PolBlogs,
    whose nodes are those of `load("cora")` and so on, in the same order. An edge is an entry above 0 in either
    direction, as DeepRobust symmetrises; self-loops are dropped. `UnusedDataWarning` says what was changed.

    Args:
        path: A file that `scipy.sparse.save_npz` wrote, in the format CSR, CSC or COO.
        base: The data set that was attacked, whose features, labels and masks the result has: a name or a path, as
            `load` takes it, or the graph itself. It is not changed.

    Returns:
        The attacked graph. `EdgeFlips.between(load(base), attacked)` are the flips of the attack.

    Raises:
        DataError: If the file is damaged or holds something else, if it has another number of nodes than the base, or
            if fewer than a tenth of the edges are the same, so that the nodes are those of another graph.

    Example:
        >>> import tempfile
        >>> from scipy.sparse import save_npz
        >>> from torch_geometric.utils import to_scipy_sparse_matrix
        >>> from wtawp.graphs import EdgeFlips
        >>> data = load("karate")
        >>> edges = EdgeFlips.of(torch.tensor([[0], [9]]), 34).apply(data).edge_index
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_npz(f"{folder}/adj.npz", to_scipy_sparse_matrix(edges).tocsr())
        ...     attacked = load_attacked(f"{folder}/adj.npz", base="karate")
        >>> EdgeFlips.between(data, attacked).pairs.tolist()
        [[0], [9]]
    """
    path = Path(path).expanduser()
    data = base if isinstance(base, Data) else _single_graph(base)
    name = base if isinstance(base, str) else str(getattr(data, "name", "the base"))
    rows, columns, values = _entries(path, int(data.num_nodes or 0), name)
    edges = undirected(rows, columns, int(data.num_nodes or 0), weight=values, where=str(path))
    attacked = copy.copy(data)
    attacked.edge_index = edges
    attacked.name = f"{name}@{path.name}"
    _check_overlap(undirected_pairs(data), undirected_pairs(attacked), path, name, int(data.num_nodes or 0))
    _warn_of_changes(path, rows, columns, values, edges)
    return attacked


def load_split(path: str | Path, num_nodes: int) -> Split:
    """Read a split as Pro-GNN and DeepRobust publish it: JSON with `idx_train`, `idx_val` and `idx_test`.

    Args:
        path: The file.
        num_nodes: Number of nodes of the graph. The parts need not cover all of them.

    Returns:
        The split, with sorted parts. `check_split` compares it with labels.

    Raises:
        DataError: If the file does not hold three lists of node numbers that are disjoint and not empty.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "s.json").write_text('{"idx_train": [4, 0], "idx_val": [1], "idx_test": [2, 3]}')
        ...     load_split(f"{folder}/s.json", 6).train
        tensor([0, 4])
    """
    path = Path(path).expanduser()
    lists = _node_lists(path, tuple(PARTS.values()), num_nodes)
    twice = (torch.bincount(torch.cat(lists)) > 1).nonzero().ravel()
    if len(twice):
        raise DataError(
            f"{path}: the parts of a split must be disjoint, but {len(twice)} nodes are in two, such as {int(twice[0])}"
        )
    return Split(*(part.sort().values for part in lists))


def save_split(split: Split, path: str | Path) -> None:
    """Write a split as DeepRobust reads it, atomically; `load_split` reads it too.

    Args:
        split: The split.
        path: The file, which is replaced if it exists.
    """
    content = {key: getattr(split, part).tolist() for part, key in PARTS.items()}
    write_atomic(Path(path), json.dumps(content).encode())


def load_targets(path: str | Path, num_nodes: int) -> Tensor:  # -> [k] int64
    """Read the nodes that Nettack attacked, as Pro-GNN and DeepRobust publish them: JSON with `attacked_test_nodes`.

    Args:
        path: The file.
        num_nodes: Number of nodes of the graph.

    Returns:
        The nodes, in the order of the file, [k] int64.

    Raises:
        DataError: If the file does not hold a list of different node numbers.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "nodes.json").write_text('{"attacked_test_nodes": [5, 2]}')
        ...     load_targets(f"{folder}/nodes.json", 6)
        tensor([5, 2])
    """
    return _node_lists(Path(path).expanduser(), (TARGETS,), num_nodes)[0]


def load_composed(name: ComposedName, *, seed: int = 0) -> Data:
    """Load the data set of a composed name, with the edges and the split of its files.

    Args:
        name: The name.
        seed: Number of the draw if the base is a generated graph.

    Returns:
        The graph. A split from a file is in `train_mask`, `val_mask` and `test_mask`.

    Raises:
        DataError: If a file is missing, damaged, or does not fit the base.
    """
    data = _single_graph(name.base, seed)
    if name.edges is not None:
        data = load_attacked(name.edges, base=data)
    if name.split is not None:
        path, size = Path(name.split).expanduser(), int(data.num_nodes or 0)
        split, data = load_split(path, size), copy.copy(data)
        for mask, part in zip(MASKS, (split.train, split.val, split.test), strict=True):
            data[mask] = torch.zeros(size, dtype=torch.bool).index_fill(0, part, True)
        data.name = f"{data.name}@{path.name}"
    return data


def _single_graph(base: str, seed: int = 0) -> Data:
    """The data set that was attacked, which must be one graph."""
    data: Data | list[Data] = load(base, seed=seed)
    if isinstance(data, list):
        raise DataError(f"{base} is a list of graphs; edges and splits from files are for the nodes of one graph")
    return data


def _entries(path: Path, num_nodes: int, base: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and values of the entries of a square matrix with as many rows as the base has nodes."""
    with Archive(path) as archive:
        kind = _format(archive)
        needed = ("data", "shape", *MEMBERS[kind])
        absent = [name for name in needed if f"{name}.npy" not in archive.names]
        if absent:
            raise DataError(f"{path} lacks {', '.join(absent)}; a matrix in the format {kind} has {', '.join(needed)}")
        arrays = {name: archive.array(name) for name in needed}
    shape = arrays["shape"]
    size = checked_shape(shape.tolist() if shape.ndim == 1 else [shape.tolist()], where=str(path))
    if size != (num_nodes, num_nodes):
        others = [name for name in dataset_names() if (dataset_spec(name).nodes,) * 2 == size]
        hint = f"; as many nodes has {', '.join(others)}" if others else ""
        raise DataError(f"{path} is a matrix of {size[0]} x {size[1]}, and {base} has {num_nodes} nodes{hint}")
    if kind == "coo":
        rows, columns = (checked_indices(arrays[name], num_nodes, where=str(path)) for name in ("row", "col"))
        if len(rows) != len(columns):
            raise DataError(f"{path}: {len(rows)} rows for {len(columns)} columns; the file is damaged")
        return rows, columns, checked_values(arrays["data"], len(rows), where=str(path))
    matrix: csr_matrix = csr(*(arrays[name] for name in ("data", "indices", "indptr", "shape")), where=str(path))
    entries = matrix.tocoo()
    return (entries.row, entries.col, entries.data) if kind == "csr" else (entries.col, entries.row, entries.data)


def _format(archive: Archive) -> str:
    """The format of a sparse matrix in an archive, which scipy writes as one text in bytes."""
    where = f"{archive.path}, format"
    if "format.npy" not in archive.names:
        raise DataError(
            f"{archive.path} holds no adjacency matrix as scipy.sparse.save_npz writes it; a file with features and "
            "labels is a graph of its own: load(path)"
        )
    stream = io.BytesIO(archive.read("format.npy"))
    shape, _, dtype = npy_header(stream, where)
    kind = stream.read(200).rstrip(b"\0").replace(b"\0", b"").decode("ascii", errors="replace")
    if shape != () or dtype.kind not in "SU" or kind not in MEMBERS:
        raise DataError(f"{where} must be one of {', '.join(MEMBERS)}, got {brief(kind)}; save matrix.tocsr() instead")
    return kind


def _check_overlap(clean: Tensor, attacked: Tensor, path: Path, base: str, num_nodes: int) -> None:
    """Refuse a graph with almost no edge of the base, whose nodes must be others or in another order."""
    codes = [pairs[0] * num_nodes + pairs[1] for pairs in (clean, attacked)]
    shared, fewer = int(torch.isin(codes[1], codes[0]).sum()), min(map(len, codes))
    if shared < LEAST_SHARED * fewer:
        raise DataError(
            f"{path} has {len(codes[1])} edges, of which {shared} are among the {len(codes[0])} of {base}: its nodes "
            f"are others, or in another order, and features and labels of {base} would be given to wrong nodes"
        )


def _warn_of_changes(path: Path, rows: np.ndarray, columns: np.ndarray, values: np.ndarray, edges: Tensor) -> None:
    """Warn of self-loops, entries in one direction and weights in the file that the graph does not have."""
    is_edge = values > 0
    loops = int((is_edge & (rows == columns)).sum())
    num_directions = len(np.unique(np.stack([rows, columns])[:, is_edge & (rows != columns)], axis=1).T)
    single = edges.shape[1] - num_directions
    changes = [f"{loops} self-loops are dropped"] * bool(loops)
    changes += [f"{single} edges in one direction count in both"] * bool(single)
    changes += ["weights other than 1 count as 1"] * (not np.isin(values, (0, 1)).all())
    if changes:
        warnings.warn(f"{path}: {'; '.join(changes)}", UnusedDataWarning, stacklevel=find_stack_level())


def _node_lists(path: Path, keys: tuple[str, ...], num_nodes: int) -> list[Tensor]:
    """The lists of different node numbers under some keys of a JSON file, none of them empty."""
    content = _json(path)
    if not isinstance(content, dict) or not all(key in content for key in keys):
        there = ", ".join(sorted(content)) if isinstance(content, dict) else type(content).__name__
        raise DataError(f"{path} must hold the lists {', '.join(keys)}, got {brief(there)}")
    lists = []
    for key in keys:
        numbers = content[key]
        if not isinstance(numbers, list) or not numbers or not all(type(number) is int for number in numbers):
            raise DataError(f"{path}: {key} must be a list of node numbers that is not empty, got {brief(numbers)}")
        if min(numbers) < 0 or max(numbers) >= num_nodes:
            extent = f"{brief(min(numbers))} to {brief(max(numbers))}"
            raise DataError(f"{path}: {key} names nodes {extent}, and the graph has the nodes 0 to {num_nodes - 1}")
        if len(set(numbers)) < len(numbers):
            raise DataError(f"{path}: {key} names {len(numbers) - len(set(numbers))} nodes more than once")
        lists.append(torch.tensor(numbers))
    return lists


def _json(path: Path) -> object:
    """The content of a JSON file."""
    try:
        size = path.stat().st_size
        if size > allowed_bytes(0):
            raise DataError(f"{path} has {size:,} bytes, which is too large for lists of nodes")
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise DataError(f"there is no file {path.absolute()}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # also of bytes that are no text, and of numbers with many digits
        raise DataError(f"{path} is not JSON: {brief(str(error))}") from error
