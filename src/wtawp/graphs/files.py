"""Readers of the formats of published data sets: npz, Planetoid's pickles, TU's archives. Nothing in a file is run.

Archives are read in memory and never extracted; pickles go through `wtawp.graphs.pickles`.
"""

import io
import math
import sys
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from scipy.sparse import coo_matrix, csr_matrix, vstack
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch_geometric.data import Data

from wtawp.base import DataError
from wtawp.graphs.pickles import as_matrix, as_pairs, as_table, unpickle
from wtawp.graphs.published_files import PLANETOID_PARTS
from wtawp.graphs.registry import TuFeatures
from wtawp.graphs.sanitize import UNLABELLED, adjacency_edges, csr, feature_tensor, node_graph, undirected

CSR_PARTS = ("data", "indices", "indptr", "shape")
NUM_PUBLIC_VAL = 500  # Planetoid's public split: its rows of x, the next 500, and test.index


def read_npz(path: Path) -> Data:
    """Read the metattack format: CSR matrices `adj_*` and, optionally, `attr_*` in plain arrays, and `labels`."""
    members = _read_zip(path)
    needed = [f"adj_{part}" for part in CSR_PARTS] + ["labels"]
    if any(f"attr_{part}.npy" in members for part in CSR_PARTS):
        needed += [f"attr_{part}" for part in CSR_PARTS]
    absent = [name for name in needed if f"{name}.npy" not in members]
    if absent:
        there = ", ".join(sorted(name.removesuffix(".npy") for name in members)) or "nothing"
        raise DataError(f"{path} lacks {', '.join(absent)}; expected {', '.join(needed)}, found {there}")
    arrays = {name: _plain_array(members[f"{name}.npy"], f"{path}, {name}") for name in needed}

    def matrix(prefix: str) -> csr_matrix:
        return csr(*(arrays[f"{prefix}_{part}"] for part in CSR_PARTS), where=f"{path}, {prefix}")

    labels = arrays["labels"]
    edges = adjacency_edges(matrix("adj"), len(labels), where=str(path))
    return node_graph(edges, labels, matrix("attr") if "attr_data" in arrays else None, where=str(path))


def read_graphdata(path: Path) -> Data:
    """Read the GraphData format: pickled CSR matrices `adj_matrix` and `node_attr`, and `node_label`."""
    members = _read_zip(path)
    absent = [name for name in ("adj_matrix", "node_attr", "node_label") if f"{name}.npy" not in members]
    if absent:
        raise DataError(f"{path} lacks {', '.join(absent)}; found {', '.join(sorted(members)) or 'nothing'}")
    labels = _plain_array(members["node_label.npy"], f"{path}, node_label")
    adjacency, features = (
        _pickled_matrix(members[f"{name}.npy"], f"{path}, {name}") for name in ("adj_matrix", "node_attr")
    )
    return node_graph(adjacency_edges(adjacency, len(labels), where=str(path)), labels, features, where=str(path))


def read_planetoid(paths: Mapping[str, Path]) -> Data:
    """Read Planetoid's format, the eight files of `PLANETOID_PARTS`, with the public split as masks of the nodes.

    The rows of `allx` are the first nodes; row i of `tx` is the test node `test.index[i]`. Numbers that the index skips
    (15 in Citeseer) are nodes without features, label or mask.
    """
    where = str(paths["graph"].with_suffix(""))
    loaded = {part: unpickle(paths[part].read_bytes(), paths[part]) for part in PLANETOID_PARTS[:-1]}
    index = _table(paths["test.index"].read_bytes(), paths["test.index"]).ravel()
    first, rows = (as_matrix(loaded[part], paths[part]) for part in ("allx", "tx"))
    if first.shape[1] != rows.shape[1]:
        raise DataError(f"{where}: allx and tx must be equally wide, got {first.shape[1]} and {rows.shape[1]} columns")
    num_nodes = int(index.max()) + 1
    node = np.concatenate([np.arange(first.shape[0]), index])
    stacked: coo_matrix = vstack([first, rows]).tocoo()
    if len(node) != stacked.shape[0] or len(np.unique(node)) != len(node) or node.min() < 0:
        raise DataError(f"{where}: test.index must give each row of tx a node of its own after those of allx")
    features = coo_matrix((stacked.data, (node[stacked.row], stacked.col)), shape=(num_nodes, stacked.shape[1]))
    labels = np.full(num_nodes, UNLABELLED)
    one_hot = np.concatenate([as_table(loaded[part], paths[part]) for part in ("ally", "ty")])
    if len(one_hot) != len(node):
        raise DataError(f"{where}: {len(one_hot)} rows of labels in ally and ty for {len(node)} rows of features")
    labels[node] = np.where(one_hot.any(1), one_hot.argmax(1), UNLABELLED)

    data = node_graph(
        undirected(*as_pairs(loaded["graph"], paths["graph"]), num_nodes, where=where),
        labels,
        features.tocsr(),
        where=where,
    )
    num_train = len(as_table(loaded["y"], paths["y"]))
    nodes = torch.arange(num_nodes)
    data.train_mask = nodes < num_train
    data.val_mask = (nodes >= num_train) & (nodes < min(num_train + NUM_PUBLIC_VAL, first.shape[0]))
    data.test_mask = torch.isin(nodes, torch.from_numpy(index))
    return data


def read_tu(path: Path, features: TuFeatures | None = None) -> list[Data]:
    """Read the graphs of a TU archive, in its order (often sorted by class), each with its class in `y` [1].

    `features` is "attribute" (node labels one-hot, and attributes standardised over all nodes of the collection,
    whichever there are), "degree" (one-hot, wide enough for the largest degree) or "constant" (a 1). None is
    "attribute", or "degree" for an archive with neither labels nor attributes.
    """
    if features is not None and features not in get_args(TuFeatures):
        raise DataError(f"features must be one of {', '.join(get_args(TuFeatures))}, got {features!r}")
    members = {name.rsplit("/", 1)[-1]: content for name, content in _read_zip(path).items()}
    names = [name.removesuffix("_A.txt") for name in members if name.endswith("_A.txt")]
    if len(names) != 1:
        raise DataError(f"{path} must hold one file that ends in _A.txt, found {names or sorted(members)}")

    def table(part: str, dtype: type = np.int64) -> np.ndarray | None:
        content = members.get(f"{names[0]}_{part}.txt")
        return None if content is None else _table(content, f"{path}, {part}", dtype)

    pairs, indicator, graph_labels = table("A"), table("graph_indicator"), table("graph_labels")
    if pairs is None or indicator is None or graph_labels is None:
        raise DataError(f"{path} lacks graph_indicator or graph_labels; found {', '.join(sorted(members))}")
    if pairs.shape[1] != 2:
        raise DataError(f"{path}: {names[0]}_A.txt must have two columns, got {pairs.shape[1]}")
    graph = indicator.ravel() - 1
    num_nodes, num_graphs = len(graph), len(graph_labels)
    if (np.diff(graph) < 0).any() or not np.array_equal(np.unique(graph), np.arange(num_graphs)):
        raise DataError(f"{path}: graph_indicator must rise from 1 to {num_graphs}, the number of graph labels")
    edges = undirected(pairs[:, 0] - 1, pairs[:, 1] - 1, num_nodes, where=str(path))
    owner = torch.from_numpy(graph)
    if not torch.equal(owner[edges[0]], owner[edges[1]]):
        raise DataError(f"{path}: an edge joins two different graphs")
    labels, attributes = table("node_labels"), table("node_attributes", np.float64)
    if features is None:
        features = "degree" if labels is None and attributes is None else "attribute"
    if features == "constant":
        x = torch.ones(num_nodes, 1)
    elif features == "degree":
        x = torch.nn.functional.one_hot(torch.bincount(edges[0], minlength=num_nodes)).float()
    else:
        x = _tu_features(num_nodes, labels, attributes, str(path))
    y = torch.from_numpy(np.unique(graph_labels, return_inverse=True)[1].ravel())

    node_counts, edge_counts = (torch.bincount(ids, minlength=num_graphs) for ids in (owner, owner[edges[0]]))
    starts = (node_counts.cumsum(0) - node_counts).tolist()
    rows, between = torch.split(x, node_counts.tolist()), torch.split(edges, edge_counts.tolist(), dim=1)
    parts = zip(rows, between, starts, y, strict=True)
    return [Data(x=own, edge_index=pairs - start, y=label.view(1)) for own, pairs, start, label in parts]


def _tu_features(
    num_nodes: int, labels: np.ndarray | None, attributes: np.ndarray | None, where: str
) -> Tensor:  # [n, 1], [n, a] -> [n, d]
    """One-hot labels and standardised attributes side by side."""
    columns = []
    for name, table in (("node_labels", labels), ("node_attributes", attributes)):
        if table is not None and len(table) != num_nodes:
            raise DataError(f"{where}: {len(table)} {name} for {num_nodes} nodes; give one row a node")
    if labels is not None:
        values, index = np.unique(labels[:, 0], return_inverse=True)
        columns.append(np.eye(len(values))[index.ravel()])
    if attributes is not None:
        if not np.isfinite(attributes).all():
            raise DataError(f"{where}: node attributes hold NaN or infinite numbers; fill them in first")
        columns.append(StandardScaler().fit_transform(attributes))
    if not columns:
        raise DataError(f'{where} has neither node labels nor attributes; take features="degree" or "constant"')
    return feature_tensor(np.concatenate(columns, axis=1), where=where, always_dense=True)


def _read_zip(path: Path) -> dict[str, bytes]:
    """The members of an archive by name, in memory. An archive with a path that leaves its folder is refused."""
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.startswith(("/", "\\")) or ":" in name or ".." in name.replace("\\", "/").split("/"):
                    raise DataError(f"{path} has a member called {name!r}, which points outside; refused")
            return {name: archive.read(name) for name in archive.namelist()}
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        OSError,
        UnicodeError,
        NotImplementedError,
        RuntimeError,
    ) as error:
        raise DataError(f"{path} is not a readable archive ({error}); it may be cut short: fetch it again") from error


def _plain_array(content: bytes, where: str) -> np.ndarray:
    """The array in a .npy member without pickled objects; its header must declare what the member really holds."""
    stream = io.BytesIO(content)
    try:
        shape, _, dtype = _npy_header(stream)
        if not dtype.hasobject and math.prod(shape) * dtype.itemsize != len(content) - stream.tell():
            raise DataError(f"{where} declares {dtype} of shape {shape}, which is not what it holds; it is damaged")
        array = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except DataError:
        raise
    except Exception as error:  # a damaged header can raise anything
        raise DataError(f"{where} is not a plain array: {error}") from error
    if array.dtype.kind not in "biufU" or not array.dtype.itemsize:
        raise DataError(f"{where} must hold numbers or names, got {array.dtype}")
    if array.dtype.kind == "U" and array.size:
        letters = np.frombuffer(array.tobytes(), dtype=np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
        if int(letters.max()) > sys.maxunicode:
            raise DataError(f"{where} holds names with letters that do not exist; it is damaged")
    return array


def _npy_header(stream: io.BytesIO) -> tuple[tuple[int, ...], bool, np.dtype]:
    """The shape, whether the order is Fortran's, and the dtype that a .npy file declares."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    return np.lib.format.read_array_header_2_0(stream)  # version 3 has the same fields, with names in UTF-8


def _pickled_matrix(content: bytes, where: str) -> csr_matrix:
    """The CSR matrix in a .npy member that holds one pickled object."""
    stream = io.BytesIO(content)
    try:
        shape, _, dtype = _npy_header(stream)
    except Exception as error:  # a damaged header can raise anything
        raise DataError(f"{where} is not an array: {error}") from error
    if shape != () or not dtype.hasobject:
        raise DataError(f"{where} must hold one pickled matrix, got {dtype} of shape {shape}")
    return as_matrix(unpickle(stream.read(), where), where)


def _table(content: bytes, where: str | Path, dtype: type = np.int64) -> np.ndarray:  # [lines, columns]
    """The numbers in a text file with comma-separated columns."""
    try:
        with warnings.catch_warnings(action="error"):  # NumPy only warns about an empty file
            return np.loadtxt(io.BytesIO(content), delimiter=",", dtype=dtype, ndmin=2)
    except (ValueError, UserWarning) as error:
        raise DataError(f"{where} is not a table of numbers: {error}") from error
