"""Readers of the formats of published data sets: npz, Planetoid's pickles, TU's archives. Nothing in a file is run.

Archives are read in memory and never extracted; pickles go through `wtawp.graphs.pickles`.
"""

import io
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from scipy.sparse import coo_matrix, csr_matrix, vstack
from torch import Tensor
from torch_geometric.data import Data

from wtawp.base import DataError
from wtawp.graphs.archives import Archive, npy_header
from wtawp.graphs.file_checks import brief
from wtawp.graphs.pickles import as_matrix, as_pairs, as_table, unpickle
from wtawp.graphs.published_files import PLANETOID_PARTS
from wtawp.graphs.read_limits import NUMBER_BYTES, check_memory
from wtawp.graphs.registry import TuFeatures
from wtawp.graphs.sanitize import UNLABELLED, adjacency_edges, csr, feature_tensor, node_graph, undirected

CSR_PARTS = ("data", "indices", "indptr", "shape")
DENSE_FEATURES = "attr_matrix"  # of a metattack file whose features are one array
FEATURES_MB = 256  # of dense features, or of graphs, that an archive may always have
GRAPH_BYTES = 1024  # what one graph of a list needs beside its numbers
NUM_PUBLIC_VAL = 500  # Planetoid's public split: its rows of x, the next 500, and test.index


def read_npz(path: Path) -> Data:
    """Read the metattack format: CSR matrices `adj_*` and, optionally, `attr_*` in plain arrays, and `labels`.

    Features may also be one dense array, `attr_matrix`.
    """
    with Archive(path) as archive:
        needed = [f"adj_{part}" for part in CSR_PARTS] + ["labels"]
        if any(f"attr_{part}.npy" in archive.names for part in CSR_PARTS):
            needed += [f"attr_{part}" for part in CSR_PARTS]
        elif f"{DENSE_FEATURES}.npy" in archive.names:
            needed.append(DENSE_FEATURES)
        absent = [name for name in needed if f"{name}.npy" not in archive.names]
        if absent:
            raise DataError(f"{path} lacks {', '.join(absent)}; expected {', '.join(needed)}, found {_listed(archive)}")
        arrays = {name: archive.array(name) for name in needed}
    labels = _checked_labels(arrays["labels"], path)
    if DENSE_FEATURES in arrays and arrays[DENSE_FEATURES].dtype.kind == "U":
        raise DataError(f"{path}: {DENSE_FEATURES} must hold numbers, got names")

    def matrix(prefix: str) -> csr_matrix:
        return csr(*(arrays[f"{prefix}_{part}"] for part in CSR_PARTS), where=f"{path}, {prefix}")

    edges = adjacency_edges(matrix("adj"), len(labels), where=str(path))
    features = matrix("attr") if "attr_data" in arrays else arrays.get(DENSE_FEATURES)
    return node_graph(edges, labels, features, where=str(path))


def read_graphdata(path: Path) -> Data:
    """Read the GraphData format: pickled CSR matrices `adj_matrix` and `node_attr`, and `node_label`."""
    with Archive(path) as archive:
        absent = [name for name in ("adj_matrix", "node_attr", "node_label") if f"{name}.npy" not in archive.names]
        if absent:
            raise DataError(f"{path} lacks {', '.join(absent)}; found {_listed(archive)}")
        labels = _checked_labels(archive.array("node_label"), path)
        adjacency, features = (pickled_matrix(archive, name) for name in ("adj_matrix", "node_attr"))
    return node_graph(adjacency_edges(adjacency, len(labels), where=str(path)), labels, features, where=str(path))


def read_planetoid(paths: Mapping[str, Path]) -> Data:
    """Read Planetoid's format, the eight files of `PLANETOID_PARTS`, with the public split as masks of the nodes.

    The rows of `allx` are the first nodes; row i of `tx` is the test node `test.index[i]`. Numbers that the index skips
    (15 in Citeseer) are nodes without features, label or mask.
    """
    where = str(paths["graph"].with_suffix(""))
    contents = {part: paths[part].read_bytes() for part in PLANETOID_PARTS}
    sizes = {part: len(content) for part, content in contents.items()}
    index = _table(contents["test.index"], paths["test.index"], sizes["test.index"]).ravel()
    num_nodes = int(index.max()) + 1
    check_memory(NUMBER_BYTES * num_nodes, sum(sizes.values()), where=f"{where}, {num_nodes:,} nodes by test.index")
    loaded = {part: unpickle(contents[part], paths[part]) for part in PLANETOID_PARTS[:-1]}
    first, rows = (as_matrix(loaded[part], paths[part], sizes[part]) for part in ("allx", "tx"))
    if first.shape[1] != rows.shape[1]:
        raise DataError(f"{where}: allx and tx must be equally wide, got {first.shape[1]} and {rows.shape[1]} columns")
    node = np.concatenate([np.arange(first.shape[0]), index])
    stacked: coo_matrix = vstack([first, rows]).tocoo()
    is_numbering = len(np.unique(node)) == len(node) and 0 <= node.min() <= node.max() < num_nodes
    if len(node) != stacked.shape[0] or not is_numbering:
        raise DataError(f"{where}: test.index must give each row of tx a node of its own after those of allx")
    features = coo_matrix((stacked.data, (node[stacked.row], stacked.col)), shape=(num_nodes, stacked.shape[1]))
    labels = np.full(num_nodes, UNLABELLED)
    tables = [as_table(loaded[part], paths[part]) for part in ("ally", "ty")]
    if not 0 < tables[0].shape[1] == tables[1].shape[1]:
        raise DataError(f"{where}: ally and ty must have a column a class, got {[table.shape[1] for table in tables]}")
    one_hot = np.concatenate(tables)
    if len(one_hot) != len(node):
        raise DataError(f"{where}: {len(one_hot)} rows of labels in ally and ty for {len(node)} rows of features")
    labels[node] = np.where(one_hot.any(1), one_hot.argmax(1), UNLABELLED)

    data = node_graph(
        undirected(*as_pairs(loaded["graph"], paths["graph"], sizes["graph"]), num_nodes, where=where),
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
    whichever there are), "label" (the former alone), "degree" (one-hot, wide enough for the largest degree) or
    "constant" (a 1). None is "attribute", or "degree" for an archive with neither labels nor attributes.
    """
    if features is not None and features not in get_args(TuFeatures):
        raise DataError(f"features must be one of {', '.join(get_args(TuFeatures))}, got {features!r}")
    pairs, indicator, graph_labels, labels, attributes = _tu_tables(path)
    if pairs.shape[1] != 2:
        raise DataError(f"{path}: A.txt must have two columns, got {pairs.shape[1]}")
    file_bytes = path.stat().st_size
    graph = indicator.ravel() - 1
    num_nodes, num_graphs = len(graph), len(graph_labels)
    if (np.diff(graph) < 0).any() or not np.array_equal(np.unique(graph), np.arange(num_graphs)):
        raise DataError(f"{path}: graph_indicator must rise from 1 to {num_graphs}, the number of graph labels")
    edges = undirected(pairs[:, 0] - 1, pairs[:, 1] - 1, num_nodes, where=str(path))
    check_memory(GRAPH_BYTES * num_graphs, file_bytes, where=f"{path}, {num_graphs:,} graphs", default_mb=FEATURES_MB)
    owner = torch.from_numpy(graph)
    if not torch.equal(owner[edges[0]], owner[edges[1]]):
        raise DataError(f"{path}: an edge joins two different graphs")
    if features is None:
        features = "degree" if labels is None and attributes is None else "attribute"
    if features == "constant":
        x = torch.ones(num_nodes, 1)
    elif features == "degree":
        degrees = torch.bincount(edges[0], minlength=num_nodes)
        x = torch.from_numpy(_one_hot(degrees.numpy(), int(degrees.max()) + 1, 0, str(path), file_bytes))
    else:
        if features == "label":
            if labels is None:
                raise DataError(f'{path} has no node labels; take features="attribute", "degree" or "constant"')
            attributes = None
        x = _tu_features(num_nodes, labels, attributes, str(path), file_bytes)
    y = torch.from_numpy(np.unique(graph_labels, return_inverse=True)[1].ravel())

    node_counts, edge_counts = (torch.bincount(ids, minlength=num_graphs) for ids in (owner, owner[edges[0]]))
    starts = (node_counts.cumsum(0) - node_counts).tolist()
    rows, between = torch.split(x, node_counts.tolist()), torch.split(edges, edge_counts.tolist(), dim=1)
    parts = zip(rows, between, starts, y, strict=True)
    return [Data(x=own, edge_index=pairs - start, y=label.view(1)) for own, pairs, start, label in parts]


def _tu_tables(
    path: Path,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """The tables of a TU archive: edges, the graph of each node, labels of graphs, labels and attributes of nodes.

    Members that are not needed are not inflated.
    """
    with Archive(path) as archive:
        inside = [name.rsplit("/", 1)[-1] for name in archive.names]
        names = [name.removesuffix("_A.txt") for name in inside if name.endswith("_A.txt")]
        if len(names) != 1:
            raise DataError(
                f"{path} must hold one file that ends in _A.txt, found {', '.join(names) or _listed(archive)}"
            )

        def table(part: str, dtype: type = np.int64) -> np.ndarray | None:
            paths = [name for name in archive.names if name.rsplit("/", 1)[-1] == f"{names[0]}_{part}.txt"]
            if len(paths) > 1:
                raise DataError(
                    f"{path} has {names[0]}_{part}.txt in {len(paths)} folders; which one counts is unknown"
                )
            return None if not paths else _table(archive.read(paths[0]), f"{path}, {part}", archive.file_bytes, dtype)

        edges, indicator, graph_labels = table("A"), table("graph_indicator"), table("graph_labels")
        if edges is None or indicator is None or graph_labels is None:
            raise DataError(f"{path} lacks graph_indicator or graph_labels; found {_listed(archive)}")
        return edges, indicator, graph_labels, table("node_labels"), table("node_attributes", np.float64)


def _one_hot(index: np.ndarray, values: int, extra: int, where: str, file_bytes: int) -> np.ndarray:  # -> [n, v + e]
    """Zeros, and in row i a one in column index[i] of the first `values` columns; `extra` more columns are zero."""
    advice = 'take features="constant"'
    needed = 4 * len(index) * (values + extra)
    check_memory(needed, file_bytes, where=f"{where}, features", default_mb=FEATURES_MB, advice=advice)
    x = np.zeros((len(index), values + extra), dtype=np.float32)
    if values:
        x[np.arange(len(index)), index] = 1
    return x


def _tu_features(
    num_nodes: int, labels: np.ndarray | None, attributes: np.ndarray | None, where: str, file_bytes: int
) -> Tensor:  # [n, 1], [n, a] -> [n, d]
    """One-hot labels and standardised attributes side by side."""
    for name, table in (("node_labels", labels), ("node_attributes", attributes)):
        if table is not None and len(table) != num_nodes:
            raise DataError(f"{where}: {len(table)} {name} for {num_nodes} nodes; give one row a node")
    if labels is None and attributes is None:
        raise DataError(f'{where} has neither node labels nor attributes; take features="degree" or "constant"')
    values, index = np.empty(0), np.zeros(num_nodes, dtype=np.int64)
    if labels is not None:
        values, index = np.unique(labels[:, 0], return_inverse=True)
    width = 0 if attributes is None else attributes.shape[1]
    x = _one_hot(index.ravel(), len(values), width, where, file_bytes)
    if attributes is not None:
        from sklearn.preprocessing import StandardScaler  # it takes a second, which no other format needs

        if not np.isfinite(attributes).all():
            raise DataError(f"{where}: node attributes hold NaN or infinite numbers; fill them in first")
        with np.errstate(all="ignore"):  # what becomes NaN or infinite is refused below
            x[:, len(values) :] = StandardScaler().fit_transform(attributes)
    return feature_tensor(x, where=where, always_dense=True)


def _checked_labels(labels: np.ndarray, path: Path) -> np.ndarray:  # [n] -> [n]
    """The labels, which must be a list: their number is the number of nodes."""
    if labels.ndim != 1:
        raise DataError(f"{path}: labels must be a list of one or more, got shape {labels.shape}")
    return labels


def _listed(archive: Archive) -> str:
    """The names of the first members, for a message."""
    names = sorted(name.rsplit("/", 1)[-1].removesuffix(".npy") for name in archive.names)
    return ", ".join(ascii(name)[1:-1][:60] for name in names[:20]) or "nothing"


def pickled_matrix(archive: Archive, name: str) -> csr_matrix:
    """The CSR matrix in a .npy member that holds one pickled object."""
    where = f"{archive.path}, {name}"
    stream = io.BytesIO(archive.read(f"{name}.npy"))
    shape, _, dtype = npy_header(stream, where)
    if shape != () or not dtype.hasobject:
        raise DataError(f"{where} must hold one pickled matrix, got {str(dtype)[:60]} of shape {brief(shape)}")
    return as_matrix(unpickle(stream.read(), where), where, archive.file_bytes)


def _table(
    content: bytes, where: str | Path, file_bytes: int, dtype: type = np.int64
) -> np.ndarray:  # [lines, columns]
    """The numbers in a text file with comma-separated columns, from a file or archive of this size."""
    most = content.count(b",") + content.count(b"\n") + content.count(b"\r") + 1
    check_memory(NUMBER_BYTES * most, file_bytes, where=str(where))
    try:
        with warnings.catch_warnings(action="error"):  # NumPy only warns about an empty file
            return np.loadtxt(io.BytesIO(content), delimiter=",", dtype=dtype, ndmin=2)
    except (ValueError, OverflowError, Warning) as error:
        raise DataError(f"{where} is not a table of numbers: {brief(str(error))}") from error
