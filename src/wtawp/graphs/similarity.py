"""Which nodes have similar features: the k-NN operator and the pairs that SimP-GCN learns from (Jin et al. 2021).

Their similarity is the cosine of binary features: those both nodes have, over the root of the product of their numbers.
Each row of the [n, n] matrix is looked at once and let go. `cosine` is of any features, and of some pairs alone.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from wtawp.graphs.kernels import inner_products
from wtawp.graphs.operators import Operator, presence, sparse_features

PAIRS = 1 << 18  # of sparse rows that are compared at a time


def cosine(rows: Tensor, cols: Tensor, x: Tensor | Operator) -> Tensor:  # [e], [e], [..., n, d] -> [..., e]
    """The cosine similarity of some pairs of rows; 0 where one of them is zero. Gradients reach a dense x.

    >>> cosine(torch.tensor([0, 0]), torch.tensor([1, 2]), torch.tensor([[3.0, 4.0], [4.0, 3.0], [0.0, 0.0]]))
    tensor([0.9600, 0.0000])
    """
    if isinstance(x, Tensor) and x.layout == torch.strided:
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        unit = x / torch.where(length == 0, 1, length)
        return inner_products(rows, cols, unit, unit)
    x = x if isinstance(x, Operator) else sparse_features(x)
    values, indices, indptr = (t.detach().cpu().numpy() for t in (x.values, x.indices, x.indptr))
    matrix = csr_array((values.astype(np.float64), indices, indptr), shape=x.shape)
    length = np.sqrt((matrix * matrix).sum(1))
    places = rows.cpu().numpy(), cols.cpu().numpy()
    parts = [tuple(end[start : start + PAIRS] for end in places) for start in range(0, len(rows), PAIRS)]
    found = [(matrix[i] * matrix[j]).sum(1) / np.maximum(length[i] * length[j], np.finfo(float).tiny) for i, j in parts]
    return torch.from_numpy(np.concatenate([np.zeros(0), *found])).to(x.values)


def knn_operator(x: Tensor | Operator, k: int) -> Operator:  # [n, d] -> [n, n]
    """D^-1/2 S D^-1/2 for S, the similarities of each node to its k most similar others; D are its row sums.

    S is not symmetric: a node may be near another that has nearer ones. Nodes that are alike in nothing are not joined,
    so with identity features the operator is empty.
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
    """Pairs (i < j) of each node with its k most and its k least similar others, each pair once; their similarities."""
    n, places, values = x.shape[0], [], []
    for nodes, others, similarity in _ranked(x):
        ends = [slice(1, k + 1), slice(max(1, n - k), n)]
        chosen, weight = (torch.cat([t[:, end] for end in ends], 1) for t in (others, similarity))
        own = nodes[:, None].expand_as(chosen)
        places.append((torch.minimum(own, chosen) * n + torch.maximum(own, chosen)).flatten())
        values.append(weight.flatten())
    found, entry = torch.unique(torch.cat(places), return_inverse=True)
    similarities = torch.zeros(len(found), dtype=torch.float64)
    similarities[entry] = torch.cat(values)  # twice the same number, where both nodes chose the pair
    dtype, device = _kind(x)
    return torch.stack([found // n, found % n]).to(device), similarities.to(device, dtype)


def _ranked(x: Tensor | Operator) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Some nodes [m] at a time: all nodes [m, n] from the most similar, which is itself, and their similarities.

    Among equals the next higher number comes first, and after the last the first: they are not all paired with node 0.
    """
    has = presence(x)
    n = has.shape[0]
    number, turned = np.diff(has.indptr).astype(np.int64), has.T.tocsr()
    for start in range(0, n, 512):
        nodes = torch.arange(start, min(start + 512, n))
        common = (has[start : start + 512] @ turned).toarray()  # whole numbers: (i, j) and (j, i) are exactly equal
        product = number[start : start + 512, None] * number
        similarity = torch.from_numpy(common / np.sqrt(np.maximum(product, 1)))
        similarity[torch.arange(len(nodes)), nodes] = 2.0  # in front, also of nodes with the same features
        others = (nodes[:, None] + torch.arange(n)) % n
        ranked = similarity.gather(1, others).sort(dim=1, descending=True, stable=True)
        yield nodes, others.gather(1, ranked.indices), ranked.values


def _kind(x: Tensor | Operator) -> tuple[torch.dtype, torch.device]:
    values = x.values if isinstance(x, Operator) else x
    return values.dtype, values.device
