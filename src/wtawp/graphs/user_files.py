"""Graphs in a user's files: `.npz` as of metattack and GraphData, lists in CSV, a saved PyG `Data`, a TU `.zip`."""

import csv
import re
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch_geometric.data import Data

from wtawp.base import DataError, UnusedDataWarning, find_stack_level, shortened
from wtawp.graphs.archives import Archive
from wtawp.graphs.published_readers import (
    CSR_PARTS,
    DENSE_FEATURES,
    pickled_matrix,
    read_graphdata,
    read_npz,
    read_tu,
)
from wtawp.graphs.registry import SUFFIXES, TuFeatures
from wtawp.graphs.sanitize import node_graph, undirected
from wtawp.graphs.saved_tensors import SavedTensors
from wtawp.graphs.splits import MASKS, mask_advice
from wtawp.graphs.unread_entries import is_description, refuse_unread_features, warn_of_unread

DENSE = ("edge_index", "y", "edge_weight")
PT_NAMES = ("edge_index", "y", "x", "edge_weight", *MASKS, "edge_attr", "edge_type")  # what is said about is known
METATTACK_NAMES = (*(f"{matrix}_{part}" for matrix in ("adj", "attr") for part in CSR_PARTS), "labels")
GRAPHDATA_NAMES = ("adj_matrix", "node_attr", "node_label")
MASK_NAMES = f"{', '.join(MASKS[:-1])} and {MASKS[-1]}"
NODE_HEADERS = (  # words that name the columns of nodes and labels
    {"id", "name", "node", "node_id", "nodeid", "vertex"},
    {"category", "class", "class_id", "label", "labels", "target", "y"},
)
EDGE_HEADERS = (  # and those of the ends of edges and of their weights
    {"from", "from_id", "node1", "source", "source_id", "src", "u"},
    {"dst", "node2", "target", "target_id", "to", "to_id", "v"},
    {"w", "weight", "weights"},
)
NODE_ORDER, EDGE_ORDER = "node,label[,features...]", "source,target[,weight]"
INDEX_NAMES = ("", "index", "unnamed: 0")  # of the column that pandas writes in front of the others
UNKNOWN_LABELS = ("", "-1", "-1.0", "nan")
Lines = list[tuple[int, list[str]]]  # the cells of each line, with its number in the file


def read(path: Path, features: TuFeatures | None = None) -> Data | list[Data]:
    """Read the graph in a file, or the graphs of a TU archive; the ending of the name determines the format.

    `features` chooses those of the graphs of a TU archive, as `read_tu` takes it.
    """
    readers: dict[str, Callable[[Path], Data | list[Data]]] = {
        ".npz": read_user_npz,
        ".csv": read_csv,
        ".pt": read_pt,
        ".zip": partial(read_tu, features=features),
    }
    if path.suffix not in readers:
        raise DataError(f"{path}: a graph's file must end in {', '.join(SUFFIXES)}, got {path.suffix or 'no ending'!r}")
    if not path.is_file():
        raise DataError(f"there is no file {path.absolute()}")
    if features is not None and path.suffix != ".zip":
        raise DataError(f"{path} brings its own features; features={features!r} is for TU archives (.zip)")
    return readers[path.suffix](path)


def read_user_npz(path: Path) -> Data:
    """Read a graph in the metattack or the GraphData format, and say if its edges have weights."""
    with Archive(path) as archive:
        names = {name.removesuffix(".npy") for name in archive.names}
    if {"format", "shape", "data"} <= names and "labels" not in names:
        raise DataError(
            f"{path} is an adjacency matrix without features and labels; name the data set that they come from: "
            f'load_attacked("{path.name}", base="cora"), load("cora@{path.name}") or --graph {path.name}'
        )
    is_graphdata = "adj_matrix" in names and "adj_data" not in names
    data = read_graphdata(path) if is_graphdata else read_npz(path)
    with Archive(path) as archive:
        weights = pickled_matrix(archive, "adj_matrix").data if is_graphdata else archive.array("adj_data")
        masks = {name: _mask(archive.array(name), f"{path}, {name}") for name in MASKS if name in names}
        _set_masks(data, masks, str(path))
        used = {*MASKS, *(GRAPHDATA_NAMES if is_graphdata else METATTACK_NAMES)}
        used |= {DENSE_FEATURES} if {"attr_data", DENSE_FEATURES} & names == {DENSE_FEATURES} else set()
        unread = [name for name in names if name not in used and not is_description(name)]
        if not {"node_attr" if is_graphdata else "attr_data", DENSE_FEATURES} & names:
            advice = f"save the array as {DENSE_FEATURES}, or a CSR matrix as attr_data, attr_indices, ..."
            refuse_unread_features(path, _shapes(archive, unread), len(data.y), advice=advice)
    _warn_of_unused(path, ["weights"] * (not np.isin(weights, (0, 1)).all()))
    read = ", ".join(GRAPHDATA_NAMES) if is_graphdata else f"adj_*, attr_* or {DENSE_FEATURES}, labels"
    warn_of_unread(path, unread, f"{read}, {MASK_NAMES}")
    return data


def _shapes(archive: Archive, names: list[str]) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays of numbers among some members, and of the CSR matrices in several members."""
    shapes = {}
    for name in names:
        if f"{name}.npy" in archive.names:
            shape, dtype = archive.header(name)
            if dtype.kind in "iuf":
                shapes[name] = shape
    for name in [name.removesuffix("_data") for name in shapes if name.endswith("_data")]:
        parts = [f"{name}_{part}" for part in CSR_PARTS]
        if shapes.keys() >= set(parts) and (size := archive.array(f"{name}_shape")).dtype.kind in "iu":
            shapes = {part: shape for part, shape in shapes.items() if part not in parts}
            shapes[f"{name}_*"] = tuple(size.ravel().tolist())
    return shapes


def _mask(array: np.ndarray, where: str) -> Tensor:
    """The mask in an array, which `_set_masks` checks."""
    if array.dtype.kind not in "biuf":
        raise DataError(f"{where} must hold booleans, got names")
    return torch.from_numpy(array if array.dtype == bool else array.astype(np.float64))


def read_csv(path: Path) -> Data:
    """Read an edge list `NAME.csv` (source, target[, weight]) and `NAME.labels.csv` (node, label[, features]).

    The nodes are those of the file of labels, in its order; names of nodes may be any text. An empty label, -1 or nan
    is unknown. A first line is a header if it starts with `node` or `source`, if it is the only one that does not start
    with a whole number, or if it has words such as `id` and `class`, or `from` and `to`, and names no node of an edge.
    Columns are in the order above unless the words of a header say another one. A header that names a column in another
    place without naming all that is needed, or that names one twice, is refused, and so are the index column of pandas
    and a first line that may be a header or a node.
    """
    beside = path.with_name(f"{path.stem}.labels.csv")
    if not beside.is_file():
        raise DataError(
            f"{path} needs its labels beside it, in {beside.name}: a line 'node,label[,features...]' a node"
        )
    lines_of_edges, lines_of_nodes = _lines(path), _lines(beside)
    cells_of_edges = {cell for _, row in lines_of_edges for cell in row}
    header, nodes = _split_header(lines_of_nodes, NODE_HEADERS, cells_of_edges, beside)
    _check_widths(nodes, beside, None)
    nodes = _in_order(header, nodes, NODE_HEADERS, NODE_ORDER, beside)
    header, pairs = _split_header(lines_of_edges, EDGE_HEADERS, {row[0] for _, row in nodes}, path)
    _check_widths(pairs, path, (2, 3))
    pairs = _in_order(header, pairs, EDGE_HEADERS, EDGE_ORDER, path)
    _refuse_unclear_header(nodes, {end for _, row in pairs for end in row[:2]}, beside)
    number = {row[0]: i for i, (_, row) in enumerate(nodes)}
    if len(number) < len(nodes):
        raise DataError(f"{beside}: {len(nodes) - len(number)} nodes are listed twice; keep one line a node")
    for line, row in pairs:
        for end in row[:2]:
            if end not in number:
                node = shortened(repr(end))
                raise DataError(f"{path}, line {line}: node {node} is not in {beside.name}; add it or drop the edge")
    ends = np.array([[number[row[0]], number[row[1]]] for _, row in pairs], dtype=np.int64).reshape(-1, 2)
    weight = _numbers([(line, row[2:] or ["1"]) for line, row in pairs], path).reshape(-1)
    edges = undirected(ends[:, 0], ends[:, 1], len(nodes), weight=weight, where=str(path))
    features = _numbers([(line, row[2:]) for line, row in nodes], beside) if len(nodes[0][1]) > 2 else None
    data = node_graph(edges, _labels([row[1] for _, row in nodes]), features, where=str(beside))
    _warn_of_unused(path, ["weights"] * (not np.isin(weight, (0, 1)).all()))
    return data


def read_pt(path: Path) -> Data:
    """Read a saved PyG `Data` or dict of tensors: edge_index, y and, optionally, x, edge_weight and the three masks.

    Nothing in the file is run, and a file that names objects of other libraries than torch, PyG and NumPy is refused.
    What it says about its tensors is checked against what it holds before they are used. An `UnusedDataWarning` names
    other tensors, and one that may be the features of a graph without `x` is refused.
    """
    saved = SavedTensors(path)
    for key in (*DENSE, "x", *MASKS):
        if saved.content.get(key) is not None and not saved.is_tensor(key):
            raise DataError(f"{path}: {key} must be a tensor, not {saved.kind(key)}; save torch.as_tensor({key})")
    absent = [key for key in ("edge_index", "y") if not saved.is_tensor(key)]
    if absent:
        there = ", ".join(key for key in saved.content if isinstance(key, str))
        raise DataError(f"{path} lacks {', '.join(absent)}; it has {there or 'nothing'}")
    tensors = {key: saved.dense(key) for key in (*DENSE, *MASKS) if saved.is_tensor(key)}
    features = None
    if saved.is_tensor("x"):
        features = saved.matrix("x", tensors["y"].numel()) if saved.is_sparse("x") else saved.dense("x").float().numpy()
    data = _from_tensors(tensors, features, str(path))
    weight = tensors.get("edge_weight", torch.ones(1))
    unused = ["weights"] * (not bool(((weight == 0) | (weight == 1)).all()))
    unused += [word for key, word in (("edge_attr", "attributes"), ("edge_type", "types")) if saved.is_tensor(key)]
    unread = [key for key in saved.content if isinstance(key, str) and key not in PT_NAMES and saved.is_array(key)]
    if features is None:
        shapes = {key: shape for key in unread if (shape := saved.shape_of_numbers(key)) is not None}
        refuse_unread_features(path, shapes, len(data.y), advice="save it as x")
    _warn_of_unused(path, unused)
    warn_of_unread(path, unread, f"{', '.join(PT_NAMES[:4])}, {MASK_NAMES}")
    return data


def _from_tensors(tensors: dict[str, Tensor], features: csr_matrix | np.ndarray | None, where: str) -> Data:
    """The graph that these tensors describe, checked."""
    edge_index, labels = tensors["edge_index"], tensors["y"].squeeze()
    if edge_index.ndim != 2 or len(edge_index) != 2 or edge_index.is_floating_point():
        raise DataError(f"{where}: edge_index must be whole numbers of shape [2, e], got {list(edge_index.shape)}")
    if labels.ndim != 1:
        raise DataError(f"{where}: y must have one label a node, got shape {list(tensors['y'].shape)}")
    weight = tensors.get("edge_weight")
    if weight is not None and weight.shape != edge_index.shape[1:]:
        raise DataError(f"{where}: {list(weight.shape)} edge weights for {edge_index.shape[1]} edges")
    source, target = edge_index.numpy()
    edges = undirected(
        source, target, len(labels), weight=None if weight is None else weight.float().numpy(), where=where
    )
    labels = labels.float() if labels.dtype == torch.bfloat16 else labels
    data = node_graph(edges, labels.numpy(), features, where=where)
    _set_masks(data, {name: tensors[name] for name in MASKS if name in tensors}, where)
    return data


def _set_masks(data: Data, masks: dict[str, Tensor], where: str) -> None:
    """Give a graph the masks of its file, checked."""
    size = len(data.y)
    for name, mask in masks.items():
        if mask.dtype != torch.bool or mask.ndim not in (1, 2) or len(mask) != size:
            advice = mask_advice(mask, name, size) if mask.dtype != torch.bool else "; make it fit"
            raise DataError(
                f"{where}: {name} must be {size} booleans, or a column of them for each split, got "
                f"{mask.dtype} of shape {list(mask.shape)}{advice}; then save the graph again"
            )
        data[name] = mask


def _lines(path: Path) -> Lines:
    """The lines of a CSV file with their numbers, without empty ones."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.reader(lines, skipinitialspace=True)
            rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(row)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a CSV in UTF-8: {error}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    return rows


def _split_header(
    rows: Lines, words: tuple[set[str], ...], names: set[str], path: Path
) -> tuple[list[str] | None, Lines]:
    """The header in lower case, None if there is none, and the lines after it.

    Words of a header that are names in the other file are none.
    """
    if not rows:
        return None, rows
    first, *others = (row for _, row in rows)
    header = [cell.lower() for cell in first]
    columns = [_named_columns(header, known) for known in words]
    if not header[0] or (header[0] in INDEX_NAMES and columns[0]):
        may_hold_nodes = words is NODE_HEADERS and not columns[0]
        advice = ", or if it holds the nodes, with a name: to_csv(..., index_label='node')" if may_hold_nodes else ""
        raise DataError(
            f"{path}, line {rows[0][0]}: the first column is called {first[0]!r}, as the index that pandas writes;"
            f" write the file without this column: to_csv(..., index=False){advice}"
        )
    starts_with_word = header[0] in ("node", "source")
    is_only_text = bool(others) and not _is_whole(first[0]) and all(_is_whole(row[0]) for row in others)
    are_words = bool(columns[0] and columns[1]) and not {first[0], first[columns[0][0]]} & names
    return (header, rows[1:]) if starts_with_word or is_only_text or are_words else (None, rows)


def _named_columns(header: list[str], words: set[str]) -> list[int]:
    """The columns whose names are among some words; of several, `y` is none beside `x`: both are coordinates."""
    columns = [i for i, cell in enumerate(header) if cell in words]
    if len(columns) > 1 and "x" in header:
        return [i for i in columns if header[i] != "y"]
    return columns


def _in_order(header: list[str] | None, rows: Lines, words: tuple[set[str], ...], order: str, path: Path) -> Lines:
    """The lines with their columns in the order that the reader takes, as the names in the header say."""
    if header is None:
        return rows
    width, shown = len(rows[0][1]), shortened(repr(",".join(header)))
    if len(header) != width:
        raise DataError(
            f"{path}: the header {shown} has {len(header)} columns, and the lines below it have {width}; name every"
            f" column, in the order {order}, or remove the header"
        )
    columns = [_named_columns(header, known) for known in words]
    for named in columns:
        if len(named) > 1:
            twice = " and ".join(header[i] for i in named)
            raise DataError(
                f"{path}: of the header {shown}, the columns {twice} may mean the same; expected the order {order}."
                " Rename or remove one of them"
            )
    if all(named in ([], [place]) for place, named in enumerate(columns)):
        return rows
    needed = [named[0] if named else None for named in columns[:2]]
    claimed = [i for named in columns for i in named]
    if width == 2 and len(claimed) == 1:  # the name of one column says what the other one is
        needed = [1 - claimed[0] if i is None else i for i in needed]
    rest = [i for i in range(width) if i not in needed]
    is_known = words is NODE_HEADERS or all([i] == columns[2] for i in rest)
    if None in needed or not is_known:
        raise DataError(
            f"{path}: the columns of the header {shown} are in another order than {order}, and their names do not say"
            f" which is which; bring them into that order, or name them {order.partition('[')[0]}"
        )
    places = [i for i in (*needed, *rest) if i is not None]
    return [(line, [row[i] for i in places]) for line, row in rows]


def _check_widths(rows: Lines, path: Path, widths: tuple[int, ...] | None) -> None:
    """Refuse a file without lines, or with lines of another number of columns than the first, or than `widths`."""
    if not rows:
        raise DataError(f"{path} is empty; expected a line for each node or edge")
    width = len(rows[0][1])
    for line, row in rows:
        if len(row) != width or width < 2 or (widths and width not in widths):
            wanted = " or ".join(map(str, widths)) if widths else f"{max(width, 2)}"
            hint = f"; columns are separated by commas, and {shortened(row[0])!r} has none" if len(row) == 1 else ""
            raise DataError(f"{path}, line {line}: expected {wanted} columns, got {len(row)}{hint}")


def _refuse_unclear_header(nodes: Lines, joined: set[str], path: Path) -> None:
    """Refuse a first line that looks like a header: a node without edges, and the only one of its class."""
    (line, (name, label, *features)), *others = nodes
    is_lonely = bool(others) and name not in joined and label not in {row[1] for _, row in others}
    if is_lonely and not _is_unknown(label) and not features and not _is_whole(label):
        raise DataError(
            f"{path}, line {line}: '{shortened(f'{name},{label}')}' may be a header, or a node without edges that is"
            " the only one of its class; let a header start with 'node', or remove the line"
        )


def _warn_of_unused(path: Path, unused: list[str]) -> None:
    """Warn that a file says something about the edges that is not used; nothing is said if there is nothing."""
    if unused:
        warnings.warn(
            f"{path}: the {' and '.join(unused)} of the edges are not used: all edges count alike, in both directions",
            UnusedDataWarning,
            stacklevel=find_stack_level(),
        )


def _is_whole(text: str) -> bool:
    """Whether a text is a whole number."""
    return text.removeprefix("-").isdecimal()


def _is_unknown(label: str) -> bool:
    """Whether a label says that the class of a node is unknown."""
    return label.lower() in UNKNOWN_LABELS


def _labels(cells: list[str]) -> np.ndarray:
    """The labels as whole numbers if all known ones are, also if written as 2.0; as names otherwise."""
    if all(re.fullmatch(r"-?\d{1,18}(\.0+)?", cell) for cell in cells if not _is_unknown(cell)):
        return np.array([-1 if _is_unknown(cell) else int(cell.partition(".")[0]) for cell in cells])
    return np.array(["" if _is_unknown(cell) else cell for cell in cells])


def _numbers(rows: Lines, path: Path) -> np.ndarray:
    """The cells of numbered rows as a table of numbers."""
    values = []
    for line, row in rows:
        try:
            values.append([float(cell) for cell in row])
        except ValueError:
            got = shortened(str(row))
            raise DataError(f"{path}, line {line}: expected numbers, got {got}; a header starts with 'node'") from None
    return np.array(values)
