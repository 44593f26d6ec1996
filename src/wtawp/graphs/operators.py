"""From edges to the sparse operators that models multiply with."""

import torch
from torch import Tensor


def gcn_operator(
    edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int, dtype: torch.dtype = torch.float32
) -> Tensor:  # [2, e], [e] -> [n, n]
    """The symmetrically normalised adjacency matrix with self-loops, D^-1/2 (A + I) D^-1/2, as a sparse tensor.

    Duplicate edges are summed; gradients reach `edge_weight`.

    >>> gcn_operator(torch.tensor([[0, 1], [1, 0]]), None, 2).to_dense()
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    """
    loops = torch.arange(num_nodes, device=edge_index.device)
    source, target = torch.cat([edge_index[0], loops]), torch.cat([edge_index[1], loops])
    ones = torch.ones(num_nodes, dtype=dtype, device=edge_index.device)
    weight = torch.cat([ones.new_ones(edge_index.shape[1]) if edge_weight is None else edge_weight.to(dtype), ones])
    degree = weight.new_zeros(num_nodes).index_add(0, target, weight)  # never below 1, thanks to the self-loop
    scale = degree.rsqrt()
    values = scale[target] * weight * scale[source]
    with torch.sparse.check_sparse_tensor_invariants():  # type: ignore[no-untyped-call]  # edges to absent nodes fail
        return torch.sparse_coo_tensor(torch.stack([target, source]), values, (num_nodes, num_nodes)).coalesce()
