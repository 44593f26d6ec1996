"""How similar the features of nodes are: cosine and Jaccard similarities, and the operators built from them.

The k-NN operator and the pairs of SimP-GCN (Jin et al. 2021) use the cosine of binary features: the number of features
that both nodes have, divided by the root of the product of their numbers of features. The [n, n] matrix is computed
some rows at a time and never stored. The Jaccard filter of Wu et al. (2019) removes edges between dissimilar nodes.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from wtawp.base import DataError
from wtawp.graphs.kernels import inner_products
from wtawp.graphs.normalisation import gcn_operator
from wtawp.graphs.operator import Operator, sparse_features
from wtawp.graphs.row_norms import row_norms

PAIRS = 1 << 18  # pairs of sparse rows that are compared at a time, to bound the memory


def cosine(rows: Tensor, cols: Tensor, x: Tensor | Operator) -> Tensor:  # [e], [e], [..., n, d] -> [..., e]
    """The cosine similarity of pairs of rows; 0 where one of the rows is zero. Gradients reach a dense x.

    Args:
        rows: First row of each pair, [e].
        cols: Second row of each pair, [e].
        x: Features: dense, [..., n, d], or sparse (a tensor or an operator), [n, d].

    Returns:
        One similarity a pair, [..., e].

    Example:
        >>> cosine(torch.tensor([0, 0]), torch.tensor([1, 2]), torch.tensor([[3.0, 4.0], [4.0, 3.0], [0.0, 0.0]]))
        tensor([0.9600, 0.0000])
    """
    if isinstance(x, Tensor) and x.layout == torch.strided:
        length = row_norms(x)[..., None]
        unit = x / torch.where(length == 0, 1, length)
        return inner_products(rows, cols, unit, unit)
    x = x if isinstance(x, Operator) else sparse_features(x)
    values, indices, indptr = (t.detach().cpu().numpy() for t in (x.values, x.indices, x.indptr))
    matrix = csr_array((values.astype(np.float64), indices, indptr), shape=x.shape)
    length = np.sqrt((matrix * matrix).sum(1))
    ends = rows.cpu().numpy(), cols.cpu().numpy()
    parts = [tuple(end[start : start + PAIRS] for end in ends) for start in range(0, len(rows), PAIRS)]
    tiny = np.finfo(float).tiny  # in place of a length of 0
    cosines = [(matrix[i] * matrix[j]).sum(1) / np.maximum(length[i] * length[j], tiny) for i, j in parts]
    return torch.from_numpy(np.concatenate([np.zeros(0), *cosines])).to(x.values)


def knn_operator(x: Tensor | Operator, k: int) -> Operator:  # [n, d] -> [n, n]
    """The normalised k-nearest-neighbour graph of features, D^-1/2 S D^-1/2.

    Row i of S holds the similarities of node i to its k most similar other nodes; D holds the row sums of S. S is not
    symmetric: the nearest neighbours of a node may have nearer ones themselves. Nodes with similarity 0 are not
    connected, so with identity features the operator is empty.

    Args:
        x: Features, dense or sparse, of which only counts whether they are 0, [n, d].
        k: Number of neighbours of each node.

    Returns:
        The operator of shape [n, n], in the type and on the device of `x`.

    Example:
        >>> knn_operator(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), k=1).to_dense()
        tensor([[0., 1., 0.],
                [1., 0., 0.],
                [0., 0., 0.]])
    """
    rows, cols, values = [], [], []
    for nodes, others, similarity in _ranked(x):
        nearest, weight = others[:, 1 : k + 1], similarity[:, 1 : k + 1]
        kept = weight > 0
        rows.append(nodes[:, None].expand_as(nearest)[kept])
        cols.append(nearest[kept])
        values.append(weight[kept])
    (dtype, device), n = _kind(x), x.shape[0]
    plain = Operator.from_entries(torch.cat(rows), torch.cat(cols), torch.cat(values), (n, n))
    total = plain.values.new_zeros(n).index_add(0, plain.rows, plain.values)
    scale = torch.where(total > 0, total, torch.inf).rsqrt()
    return replace(plain, values=scale[plain.rows] * plain.values * scale[plain.indices.long()]).to(dtype).to(device)


def extreme_pairs(x: Tensor | Operator, k: int = 5) -> tuple[Tensor, Tensor]:  # [n, d] -> [2, p], [p]
    """Pair each node with its k most and its k least similar other nodes.

    Args:
        x: Features, dense or sparse, of which only counts whether they are 0, [n, d].
        k: Number of most similar, and of least similar, partners of each node; 5 as in SimP-GCN.

    Returns:
        The pairs (i, j) with i < j, each once, [2, p], and their similarities, [p].

    Example:
        >>> extreme_pairs(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), k=1)
        (tensor([[0, 0, 1],
                [1, 2, 2]]), tensor([1., 0., 0.]))
    """
    n, chosen_codes, values = x.shape[0], [], []
    for nodes, others, similarity in _ranked(x):
        ends = [slice(1, k + 1), slice(max(1, n - k), n)]
        chosen, weight = (torch.cat([t[:, end] for end in ends], 1) for t in (others, similarity))
        repeated = nodes[:, None].expand_as(chosen)
        chosen_codes.append((torch.minimum(repeated, chosen) * n + torch.maximum(repeated, chosen)).flatten())
        values.append(weight.flatten())
    codes, entry = torch.unique(torch.cat(chosen_codes), return_inverse=True)
    similarities = torch.zeros(len(codes), dtype=torch.float64)
    similarities[entry] = torch.cat(values)  # twice the same number, where both nodes chose the pair
    dtype, device = _kind(x)
    return torch.stack([codes // n, codes % n]).to(device), similarities.to(device, dtype)


def _ranked(x: Tensor | Operator) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Rank all nodes by similarity, for m nodes at a time: the nodes [m], the ranking [m, n], the similarities [m, n].

    Each node is the first in its own ranking. Among equally similar nodes those that follow it in number come first,
    cyclically, so that they are not all paired with node 0.
    """
    has = presence(x)
    n = has.shape[0]
    number, transposed = np.diff(has.indptr).astype(np.int64), has.T.tocsr()
    for start in range(0, n, 512):
        nodes = torch.arange(start, min(start + 512, n))
        common = (has[start : start + 512] @ transposed).toarray()  # whole numbers: (i, j) and (j, i) are exactly equal
        product = number[start : start + 512, None] * number
        similarity = torch.from_numpy(common / np.sqrt(np.maximum(product, 1)))
        similarity[torch.arange(len(nodes)), nodes] = 2.0  # in front, also of nodes with the same features
        others = (nodes[:, None] + torch.arange(n)) % n
        ranked = similarity.gather(1, others).sort(dim=1, descending=True, stable=True)
        yield nodes, others.gather(1, ranked.indices), ranked.values


def _kind(x: Tensor | Operator) -> tuple[torch.dtype, torch.device]:
    """The type and the device of the features."""
    values = x.values if isinstance(x, Operator) else x
    return values.dtype, values.device


def jaccard(edge_index: Tensor, x: Tensor | Operator) -> Tensor:  # [2, e], [n, d] -> [e]
    """The Jaccard similarity of both ends of each edge: the number of common features over that of their union.

    A node has a feature where it is not zero. Two nodes without any features have similarity 1.

    Args:
        edge_index: The edges, [2, e].
        x: Features, dense or sparse, [n, d].

    Returns:
        One similarity in [0, 1] an edge, [e].

    Raises:
        DataError: If an edge has an end that is not a node.

    Example:
        >>> jaccard(torch.tensor([[0, 0], [1, 2]]), torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]))
        tensor([0.3333, 0.0000])
    """
    has = presence(x)
    _check_ends(edge_index, has.shape[0])
    number = np.diff(has.indptr)
    source, target = edge_index.cpu().numpy()
    common = np.zeros(len(source))
    for start in range(0, len(source), PAIRS):
        part = slice(start, start + PAIRS)
        common[part] = (has[source[part]] * has[target[part]]).sum(1)
    union = number[source] + number[target] - common
    similarity = np.where(union == 0, 1.0, common / np.maximum(union, 1))
    dtype = x.values.dtype if isinstance(x, Operator) else x.dtype
    return torch.from_numpy(similarity).to(edge_index.device, dtype)


def jaccard_rows(x: Tensor | Operator) -> Callable[[int, int], Tensor]:  # [n, d]
    """Prepare the Jaccard similarities of all pairs of nodes, to be computed some rows at a time.

    Args:
        x: Features, dense or sparse, [n, d].

    Returns:
        A function of the first row and of the one after the last that gives these rows, [last - first, n].

    Example:
        >>> jaccard_rows(torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]))(0, 2)
        tensor([[1.0000, 0.3333, 0.0000],
                [0.3333, 1.0000, 0.5000]])
    """
    has, values = presence(x), x.values if isinstance(x, Operator) else x
    number = torch.from_numpy(np.diff(has.indptr)).to(values.device, torch.float64)
    transposed = has.T.tocsr()
    dense = torch.from_numpy(has.toarray()).to(values) if values.is_cuda else None

    def rows(first: int, last: int) -> Tensor:  # -> [last - first, n]
        if dense is None:
            common = torch.from_numpy((has[first:last] @ transposed).toarray())
        else:
            common = (dense[first:last] @ dense.T).double()
        union = number[first:last, None] + number - common
        return torch.where(union == 0, 1.0, common / union.clamp_min(1)).to(values.dtype)

    return rows


def jaccard_operator(
    edge_index: Tensor, edge_weight: Tensor | None, x: Tensor | Operator, threshold: float
) -> Operator:  # [2, e], [e], [n, d] -> [n, n]
    """`gcn_operator` of the graph without the edges between dissimilar nodes, the filter of Wu et al. (2019).

    Args:
        edge_index: The edges, [2, e].
        edge_weight: Weight of each edge, [e]; None: all 1. Gradients reach the weights of the edges that stay.
        x: Features, dense or sparse, [n, d].
        threshold: Edges whose ends have a lower Jaccard similarity are removed, in [0, 1].

    Returns:
        The operator of shape [n, n].

    Raises:
        DataError: If no edge is left, as with identity features.
    """
    kept = jaccard(edge_index, x) >= threshold
    if len(kept) and not kept.any():
        raise DataError(
            f"all {len(kept)} edges join nodes with a Jaccard similarity below {threshold}: the filter needs features"
            " that neighbours share, which identity features (PolBlogs) are not; lower the threshold or take a GCN"
        )
    weight = None if edge_weight is None else edge_weight[kept]
    dtype = x.values.dtype if isinstance(x, Operator) else x.dtype
    return gcn_operator(edge_index[:, kept], weight, x.shape[0], dtype)


def presence(x: Tensor | Operator) -> csr_array:  # [n, d] -> [n, d]
    """Mark the non-zero features.

    Args:
        x: Features, dense or sparse, [n, d].

    Returns:
        A sparse scipy array with a 1 where `x` is not 0, [n, d].
    """
    x = x if isinstance(x, Operator) else sparse_features(x.detach())
    ones = (x.values.detach() != 0).to(torch.float64).cpu().numpy()
    # A copy: zeros are eliminated in place, and the indices belong to the operator.
    has = csr_array((ones, x.indices.cpu().numpy(), x.indptr.cpu().numpy()), shape=x.shape, copy=True)
    has.eliminate_zeros()
    return has


def _check_ends(edge_index: Tensor, num_nodes: int) -> None:
    """Refuse edges with an end that is not a node."""
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < num_nodes:
        extent = f"{int(edge_index.min())} to {int(edge_index.max())}"
        raise DataError(f"edges must join nodes 0 to {num_nodes - 1}, got {extent}")
