"""The operator of GCN-SVD: the adjacency matrix truncated to its largest singular values, kept as factors."""

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
    """The [m, n] matrix left @ right + a diagonal, which is never written out.

    Attributes:
        left: Left factor, [m, k].
        right: Right factor, [k, n].
        diagonal: What is added at column `own[i]` of row i, [m].
        own: The node of each row, [m]; None: row i is node i, and m = n.
    """

    left: Tensor
    right: Tensor
    diagonal: Tensor
    own: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows m and of columns n."""
        return self.left.shape[0], self.right.shape[1]

    def __matmul__(self, dense: Tensor) -> Tensor:  # [..., n, h] -> [..., m, h]
        """Multiply with a dense matrix, or with a stack of them, factor by factor."""
        own = dense if self.own is None else dense[..., self.own, :]
        return multiply(self.left, multiply(self.right, dense)) + self.diagonal[:, None] * own

    def select(self, rows: Tensor) -> "LowRank":
        """Select rows of a square operator.

        Args:
            rows: The rows to keep, in the order they shall have, [m].

        Returns:
            The operator of shape [m, n].
        """
        return replace(self, left=self.left[rows], diagonal=self.diagonal[rows], own=rows)

    def to_dense(self) -> Tensor:  # [m, n]
        """The matrix written out, for tests and small graphs.

        Returns:
            A dense tensor of shape [m, n].
        """
        return self @ torch.eye(self.shape[1], dtype=self.left.dtype, device=self.left.device)


def low_rank_operator(
    edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int, dtype: torch.dtype, rank: int
) -> LowRank:  # [2, e], [e] -> [n, n]
    """The normalised low-rank adjacency matrix of GCN-SVD (Entezari et al. 2020), D^-1/2 (A_k + I) D^-1/2.

    A_k is the best approximation of rank k of the adjacency matrix, and D holds the row sums of A_k + I. They need not
    be positive: a node whose row sum is not gets a factor of 0 and is cut off. Equal edges give equal factors.

    Args:
        edge_index: The edges, [2, e].
        edge_weight: Weight of each edge, [e], without gradient; None: all 1.
        num_nodes: Number of nodes n.
        dtype: Type of the factors; the decomposition itself is in float64.
        rank: Number k of singular values that are kept.

    Returns:
        The operator of shape [n, n], as factors.

    Raises:
        ValueError: If `edge_weight` requires a gradient.
        DataError: If there are no edges.
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
