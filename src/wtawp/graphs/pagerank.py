"""Personalised PageRank, the propagation of PPNP and APPNP."""

import torch
from torch import Tensor

from wtawp.graphs.operator import Operator
from wtawp.graphs.products import spmm


def ppr_rows(operator: Operator, rows: Tensor, *, alpha: float, steps: int | None) -> Tensor:  # -> [len(rows), n]
    """Rows of the personalised PageRank matrix, dense.

    With b = 1 - alpha, K steps give alpha sum_{k<K} b^k A^k + b^K A^K; their limit is alpha (I - b A)^-1.

    Args:
        operator: The normalised adjacency matrix A, [n, n].
        rows: The nodes whose rows are wanted, [r].
        alpha: Teleport probability, in (0, 1].
        steps: Number K of power iterations, as in APPNP; None: the limit, as in PPNP, which solves a dense system.

    Returns:
        The rows, [r, n].

    Example:
        >>> from wtawp.graphs import gcn_operator
        >>> ppr_rows(gcn_operator(torch.tensor([[0, 1], [1, 0]]), None, 2), torch.tensor([0]), alpha=0.1, steps=1)
        tensor([[0.5500, 0.4500]])
    """
    n = operator.shape[0]
    start = torch.zeros(n, len(rows), dtype=operator.values.dtype, device=operator.values.device)
    start[rows, torch.arange(len(rows), device=rows.device)] = 1.0
    if steps is None:
        dense = torch.eye(n, dtype=start.dtype, device=start.device) - (1 - alpha) * operator.to_dense()
        limit: Tensor = torch.linalg.solve(dense.T, start)
        return alpha * limit.T.contiguous()
    back, out = operator.T, start
    for _ in range(steps):  # row r of Pi_K is (Pi_K^T e_r)^T, and powers of A_hat^T obey the same recursion
        out = (1 - alpha) * spmm(back, out) + alpha * start
    return out.T.contiguous()
