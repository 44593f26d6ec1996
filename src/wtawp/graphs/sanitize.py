"""From arrays of unknown quality to a graph that every part of this package may trust.

The edges of the result are undirected and unweighted, without self-loops or duplicates; its features are finite, its
classes numbered from 0. What can be repaired without guessing is repaired (docs/usage.md lists it); anything else is a
`DataError` that names the place. Every function takes `where`, the name of the file or array for its error messages.
"""

import copy
import warnings

import numpy as np
import torch
from scipy.sparse import coo_matrix, csr_matrix, identity, issparse
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch_geometric.data import Data

from wtawp.base import DataError, find_stack_level
from wtawp.graphs.file_checks import checked_indices, checked_pointers, checked_shape, checked_values

DENSE_LIMIT = 2**26  # numbers: features of up to 256 MiB are dense, larger ones (Coauthor: 1.1 GiB) stay sparse CSR
UNLABELLED = -1


def node_graph(
    edges: Tensor, labels: np.ndarray, features: csr_matrix | np.ndarray | None, *, where: str
) -> Data:  # [2, e], [n], [n, d] -> x [n, d], edge_index [2, e], y [n]
    """A graph for node classification. Without features it gets the identity matrix, as PolBlogs does.

    A label of -1 is unknown. Where the others are not 0 to c - 1 already, they are renumbered in sorted order, and
    `data.classes` holds the original ones.
    """
    num_nodes = len(labels)
    y, classes = _classes(labels, where)
    if features is None:
        features = identity(num_nodes, dtype=np.float32, format="csr")
    if features.shape[0] != num_nodes:
        raise DataError(f"{where}: {features.shape[0]} rows of features for {num_nodes} labels; give one row a node")
    data = Data(x=feature_tensor(features, where=where), edge_index=edges, y=y)
    if classes != list(range(len(classes))):
        data.classes = classes
    return data


def complete(data: Data | list[Data], *, where: str) -> Data | list[Data]:
    """What a function returned, with the identity matrix as features of a single graph without any, and a warning.

    Graphs of a list without features, and labels of fewer than two classes, are refused, as in a file.
    """
    graphs = data if isinstance(data, list) else [data]
    bare = [i for i, graph in enumerate(graphs) if graph.x is None]
    if isinstance(data, list) and bare:
        raise DataError(
            f"{where} returns {len(bare)} graphs without features x, such as number {bare[0]}; give each graph some,"
            " such as torch.ones(num_nodes, 1), or those of torch_geometric.transforms.OneHotDegree"
        )
    labels = [graph.y for graph in graphs if isinstance(graph.y, Tensor)]
    if labels and len(labels) == len(graphs) and all(y.dim() == 1 and not y.is_floating_point() for y in labels):
        classes = torch.unique(torch.cat(labels))
        if len(classes) and int((classes >= 0).sum()) < 2:
            known = classes[classes >= 0].tolist()
            raise DataError(f"{where} returns labels that must tell apart two classes or more, got {known}")
    if isinstance(data, list) or not bare:
        return data
    has_labels = isinstance(data.y, Tensor) and data.y.dim() > 0
    num_nodes = len(data.y) if has_labels else int(data.num_nodes or 0)
    warnings.warn(
        f"{where} returns a graph without features x, so that each of its {num_nodes} nodes is a feature of its own;"
        f" write x=torch.eye({num_nodes}) if that is intended",
        stacklevel=find_stack_level(),
    )
    completed = copy.copy(data)
    completed.x = feature_tensor(identity(num_nodes, dtype=np.float32, format="csr"), where=where)
    return completed


def undirected(
    source: np.ndarray, target: np.ndarray, num_nodes: int, *, weight: np.ndarray | None = None, where: str
) -> Tensor:  # [m], [m] -> [2, e]
    """Both directions of every distinct edge between two different nodes, sorted. A weight of 0 is no edge.

    >>> undirected(np.array([0, 0, 2, 2]), np.array([1, 1, 1, 2]), 3, where="example")
    tensor([[0, 1, 1, 2],
            [1, 0, 2, 1]])
    """
    if num_nodes == 0:
        raise DataError(f"{where}: the graph is empty, it has no nodes")
    source, target = source.astype(np.int64), target.astype(np.int64)
    for end in (source, target):
        outside = (end < 0) | (end >= num_nodes)
        if outside.any():
            raise DataError(
                f"{where}: an edge names node {end[outside][0]}, but the nodes are numbered 0 to {num_nodes - 1}"
            )
    keep = source != target
    if weight is not None:
        if not (np.isfinite(weight) & (weight >= 0)).all():
            bad = weight[~(np.isfinite(weight) & (weight >= 0))][0]
            raise DataError(f"{where}: edge weights must be finite and not negative, got {bad}; drop those edges")
        keep &= weight > 0
    source, target = source[keep], target[keep]
    codes = np.unique(np.concatenate([source * num_nodes + target, target * num_nodes + source]))
    if not len(codes):
        raise DataError(f"{where}: the graph is empty, no edge joins two different nodes")
    return torch.from_numpy(np.stack([codes // num_nodes, codes % num_nodes]))


def feature_tensor(
    matrix: csr_matrix | np.ndarray, *, where: str, always_dense: bool = False
) -> Tensor:  # [n, d] -> [n, d]
    """Features in float32, checked: a dense tensor up to `DENSE_LIMIT` numbers, above that a sparse CSR tensor.

    `always_dense` keeps larger ones dense as well, for callers that cut the rows apart: CSR tensors cannot be split.
    """
    if len(matrix.shape) != 2 or matrix.shape[1] == 0:
        raise DataError(f"{where}: features must be a table of nodes by one or more columns, got {matrix.shape}")
    merged = csr_matrix(matrix) if issparse(matrix) else None
    if merged is not None and not merged.has_canonical_format:  # an element that is listed twice is the sum of both
        merged = merged.copy() if merged.dtype.kind == "f" else merged.astype(np.float64)  # int8 would wrap around
        merged.sum_duplicates()
    with np.errstate(over="ignore", invalid="ignore"):
        values = (matrix if merged is None else merged.data).astype(np.float32)
    bad = ~np.isfinite(values)
    if bad.any():
        rows = bad.nonzero()[0] if merged is None else merged.tocoo().row[bad]
        raise DataError(
            f"{where}: {int(bad.sum())} features are NaN, infinite or too large for float32, "
            f"the first at node {int(rows[0])}; fill them in first"
        )
    if always_dense or matrix.shape[0] * matrix.shape[1] <= DENSE_LIMIT:
        return torch.from_numpy(values if merged is None else _with_values(merged, values).toarray())
    sparse = csr_matrix(values) if merged is None else _with_values(merged, values)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        return torch.sparse_csr_tensor(
            torch.from_numpy(sparse.indptr.astype(np.int64)),
            torch.from_numpy(sparse.indices.astype(np.int64)),
            torch.from_numpy(sparse.data),
            tuple(sparse.shape),
            check_invariants=True,
        )


def csr(
    data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: np.ndarray, *, where: str
) -> csr_matrix:  # [m], [m], [rows + 1], [2]
    """A sparse matrix from its arrays. Every index is checked first, because scipy would read out of bounds."""
    rows, columns = checked_shape(shape.tolist() if shape.ndim == 1 else [shape.tolist()], where=where)
    columns_of = checked_indices(indices, columns, where=where)
    pointers = checked_pointers(indptr, rows, len(columns_of), where=where)
    values = checked_values(data, len(columns_of), where=where)
    return csr_matrix((values, columns_of, pointers), shape=(rows, columns))


def adjacency_edges(matrix: csr_matrix, num_nodes: int, *, where: str) -> Tensor:  # [n, n] -> [2, e]
    """The undirected edges of a square matrix that may be directed and weighted."""
    if matrix.shape != (num_nodes, num_nodes):
        raise DataError(f"{where}: the adjacency matrix must be {num_nodes} x {num_nodes} (labels), got {matrix.shape}")
    entries: coo_matrix = matrix.tocoo()
    return undirected(entries.row, entries.col, num_nodes, weight=entries.data, where=where)


def _with_values(matrix: csr_matrix, values: np.ndarray) -> csr_matrix:  # [n, d], [m] -> [n, d]
    """A matrix with the same entries and other values."""
    return csr_matrix((values, matrix.indices, matrix.indptr), shape=matrix.shape)


def largest_component(data: Data) -> Data:
    """The largest connected component of an undirected graph with dense features; the order of nodes is kept."""
    row, column = data.edge_index.numpy()
    adjacency = coo_matrix((np.ones(len(row), dtype=np.int8), (row, column)), shape=(len(data.y), len(data.y)))
    component = connected_components(adjacency, directed=False)[1]
    keep = torch.from_numpy(component == np.bincount(component).argmax())
    number = keep.cumsum(0) - 1
    edges = number[data.edge_index[:, keep[data.edge_index[0]]]]
    return Data(x=data.x[keep], edge_index=edges, y=data.y[keep])


def _classes(labels: np.ndarray, where: str) -> tuple[Tensor, list[int] | list[str]]:  # [n] -> [n]
    """Labels numbered from 0, and the original label of each class."""
    if labels.ndim != 1 or not len(labels):
        raise DataError(f"{where}: labels must be a list of one or more, got shape {labels.shape}")
    if labels.dtype.kind == "f" and ((labels == np.round(labels)) & (np.abs(labels) < 2**53)).all():
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "biuU":
        raise DataError(f"{where}: labels must be whole numbers or names, got {labels.dtype}; use -1 for unknown ones")
    known = labels != ("" if labels.dtype.kind == "U" else UNLABELLED)
    classes, index = np.unique(labels[known], return_inverse=True)
    if len(classes) < 2:
        raise DataError(f"{where}: labels must tell apart two classes or more, got {classes.tolist()}")
    if labels.dtype.kind in "iu" and classes[0] < 0:
        raise DataError(f"{where}: labels must be 0 or more, or -1 for unknown, got {classes[0]}")
    y = np.full(len(labels), UNLABELLED, dtype=np.int64)
    y[known] = index
    return torch.from_numpy(y), classes.tolist()
