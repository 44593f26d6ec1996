"""The adjacency matrix cut down to its largest singular values, kept in factors: GCN-SVD's view of a graph."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds
from torch import Tensor

from wtawp.base import DataError, rng
from wtawp.graphs.normalisation import sum_operator
from wtawp.graphs.products import multiply


@dataclass(frozen=True, eq=False)
class LowRank:
    """left @ right + a diagonal: [m, n], never written out. `own` are the m rows' places among the n; None: all."""

    left: Tensor  # [m, k]
    right: Tensor  # [k, n]
    diagonal: Tensor  # [m]
    own: Tensor | None = None  # [m]

    @property
    def shape(self) -> tuple[int, int]:
        return self.left.shape[0], self.right.shape[1]

    def __matmul__(self, dense: Tensor) -> Tensor:  # [..., n, h] -> [..., m, h]
        own = dense if self.own is None else dense[..., self.own, :]
        return multiply(self.left, multiply(self.right, dense)) + self.diagonal[:, None] * own

    def select(self, rows: Tensor) -> "LowRank":
        """Some rows of a whole one, in the order given."""
        return replace(self, left=self.left[rows], diagonal=self.diagonal[rows], own=rows)

    def to_dense(self) -> Tensor:  # [m, n]
        """For tests and small graphs."""
        return self @ torch.eye(self.shape[1], dtype=self.left.dtype, device=self.left.device)


def low_rank_operator(
    edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int, dtype: torch.dtype, rank: int
) -> LowRank:  # [2, e], [e] -> [n, n]
    """D^-1/2 (A_k + I) D^-1/2 for A_k, the best approximation of the adjacency matrix of rank k (Entezari et al. 2020).

    D are the row sums of A_k + I, which need not be positive: a node for which they are not is cut off, with a factor
    of 0. The same edges always give the same factors. They cannot be differentiated.
    """
    if edge_weight is not None and edge_weight.requires_grad:
        raise ValueError(
            "a low-rank operator has no gradient with respect to edge weights; pass them detached. To attack such a"
            " model, find the flips on a GCN trained on the same data and apply them"
        )
    if edge_index.numel() == 0:
        raise DataError("a graph without edges has no singular vectors; take a model without a low-rank operator")
    left, values, right = _truncated_svd(edge_index, edge_weight, num_nodes, rank)
    degree = left @ (values * right.sum(1)) + 1
    scale = np.where(degree > 0, 1 / np.sqrt(np.where(degree > 0, degree, 1)), 0.0)
    factors = scale[:, None] * left * values, right * scale, scale**2
    return LowRank(*(torch.from_numpy(f).to(edge_index.device, dtype).contiguous() for f in factors))


def _truncated_svd(
    edge_index: Tensor, edge_weight: Tensor | None, size: int, rank: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A_k = U S V^T, in float64: [n, k], [k], [k, n]."""
    a = sum_operator(edge_index, edge_weight, size, torch.float64)
    arrays = [t.cpu().numpy() for t in (a.values, a.indices, a.indptr)]
    adjacency = csr_array(tuple(arrays), shape=a.shape)
    if rank >= size:  # ARPACK finds fewer than all
        return tuple(np.linalg.svd(adjacency.toarray()))  # type: ignore[return-value]
    start = torch.rand(size, dtype=torch.float64, generator=rng("start of svds")).numpy()
    return tuple(svds(adjacency, k=rank, v0=start))
