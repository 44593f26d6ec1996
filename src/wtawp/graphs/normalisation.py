"""From edges to operators: the symmetrically normalised adjacency matrix, sums and means over neighbours."""

from dataclasses import replace

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from wtawp.base import DataError
from wtawp.graphs.kernels import HAS_NUMBA, is_plain
from wtawp.graphs.operator import Operator

if HAS_NUMBA:
    from wtawp.graphs import normalisation_numba


def gcn_operator(
    edge_index: Tensor,
    edge_weight: Tensor | None,
    num_nodes: int,
    dtype: torch.dtype = torch.float32,
    *,
    power: float = -0.5,
) -> Operator:  # [2, e], [e] -> [n, n]
    """The symmetrically normalised adjacency matrix with self-loops, D^-1/2 (A + I) D^-1/2.

    Duplicate edges are summed; a node that has a self-loop already keeps it as it is. Of several self-loops of one node
    the last one counts, as in PyG's `gcn_norm` on a CPU (which one PyG takes there is not defined on a GPU, and matters
    if their weights differ). Gradients reach `edge_weight`.

    Args:
        edge_index: Edges from `edge_index[0]` to `edge_index[1]`, [2, e].
        edge_weight: Weight of each edge, [e]; None: all 1.
        num_nodes: Number of nodes n, including those without edges.
        dtype: Type of the operator's values.
        power: Exponent of the degree matrix D on both sides; -0.5 is the normalisation of GCN.

    Returns:
        The operator of shape [n, n].

    Raises:
        DataError: If the weights of the edges into a node sum to 0 or less.

    Example:
        >>> gcn_operator(torch.tensor([[0, 1], [1, 0]]), None, 2).to_dense()
        tensor([[0.5000, 0.5000],
                [0.5000, 0.5000]])
    """
    lonely = torch.ones(num_nodes, dtype=torch.bool, device=edge_index.device)
    listed = edge_index[0][edge_index[0] == edge_index[1]]
    lonely[listed] = False
    loops = lonely.nonzero()[:, 0]
    if len(listed) + len(loops) > num_nodes:
        kept = _last_loops_and_other_edges(edge_index, num_nodes)
        edge_index, edge_weight = edge_index[:, kept], None if edge_weight is None else edge_weight[kept]
    source, target = torch.cat([edge_index[0], loops]), torch.cat([edge_index[1], loops])
    ones = torch.ones(len(source), dtype=dtype, device=edge_index.device)
    weight = ones if edge_weight is None else torch.cat([edge_weight.to(dtype), ones[: len(loops)]])
    plain = Operator.from_entries(target, source, weight, (num_nodes, num_nodes))
    degree = row_sums(plain)  # without weights at least 1: the self-loop
    if edge_weight is not None and power < 0:
        _refuse_negative(degree)
    scale = degree.rsqrt() if power == -0.5 else degree.pow(power)
    return replace(plain, values=scaled_values(plain, scale))


def _last_loops_and_other_edges(edge_index: Tensor, num_nodes: int) -> Tensor:  # [2, e] -> [k]
    """The positions of the last self-loop of each node, and of all edges between nodes, in their order."""
    is_loop = edge_index[0] == edge_index[1]
    positions = torch.arange(edge_index.shape[1], device=edge_index.device)
    last = positions.new_zeros(num_nodes).scatter_reduce(0, edge_index[0][is_loop], positions[is_loop], "amax")
    return (~is_loop | (last[edge_index[0]] == positions)).nonzero()[:, 0]


def _refuse_negative(degree: Tensor) -> None:
    """Refuse nodes whose edge weights sum to 0 or less: their normalised weights would not be finite."""
    if torch.compiler.is_compiling() or is_functorch_wrapped_tensor(degree) or bool((degree > 0).all()):
        return
    node = int((~(degree > 0)).nonzero()[0])
    raise DataError(
        f"a GCN needs positive sums of edge weights, but those into node {node} sum to {float(degree[node]):g}"
    )


def sum_operator(
    edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int, dtype: torch.dtype = torch.float32
) -> Operator:  # [2, e], [e] -> [n, n]
    """The adjacency matrix: row i sums over the edges into node i.

    Duplicate edges count twice; no self-loops are added. Gradients reach `edge_weight`.

    Args:
        edge_index: Edges from `edge_index[0]` to `edge_index[1]`, [2, e].
        edge_weight: Weight of each edge, [e]; None: all 1.
        num_nodes: Number of nodes n, including those without edges.
        dtype: Type of the operator's values.

    Returns:
        The operator of shape [n, n].

    Example:
        >>> sum_operator(torch.tensor([[0, 1, 1], [1, 0, 0]]), None, 3).to_dense()
        tensor([[0., 2., 0.],
                [1., 0., 0.],
                [0., 0., 0.]])
    """
    ones = torch.ones(edge_index.shape[1], dtype=dtype, device=edge_index.device)
    weight = ones if edge_weight is None else edge_weight.to(dtype)
    return Operator.from_entries(edge_index[1], edge_index[0], weight, (num_nodes, num_nodes))


def mean_operator(
    edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int, dtype: torch.dtype = torch.float32
) -> Operator:  # [2, e], [e] -> [n, n]
    """The mean over neighbours, D^-1 A: row i averages over the edges into node i, weighted by `edge_weight`.

    Args:
        edge_index: Edges from `edge_index[0]` to `edge_index[1]`, [2, e].
        edge_weight: Weight of each edge, [e]; None: all 1.
        num_nodes: Number of nodes n, including those without edges.
        dtype: Type of the operator's values.

    Returns:
        The operator of shape [n, n]; the rows of nodes without incoming edges are empty.

    Example:
        >>> mean_operator(torch.tensor([[0, 1], [2, 2]]), None, 3).to_dense()[2]
        tensor([0.5000, 0.5000, 0.0000])
    """
    plain = sum_operator(edge_index, edge_weight, num_nodes, dtype)
    total = row_sums(plain)
    return replace(plain, values=plain.values / torch.where(total == 0, 1, total)[plain.rows])


def row_sums(operator: Operator) -> Tensor:  # [n, m] -> [n]
    """Sum the values of each row. Gradients reach the values.

    Args:
        operator: The matrix, [n, m].

    Returns:
        The sums, [n].
    """
    if not (HAS_NUMBA and is_plain(operator.values)):
        return operator.values.new_zeros(operator.shape[0]).index_add(0, operator.rows, operator.values)
    with temporarily_clear_interpreter_stack():
        sums = torch.empty(operator.shape[0], dtype=operator.values.dtype)
        normalisation_numba.row_sums(operator.indptr.numpy(), operator.values.contiguous().numpy(), sums.numpy())
        return sums


def scaled_values(operator: Operator, scale: Tensor) -> Tensor:  # [n, n], [n] -> [e]
    """Multiply each entry of a square matrix with the factors of its row and of its column.

    Args:
        operator: The matrix A, [n, n], which must not be used afterwards: its memory may be that of the result.
        scale: The factors s, [n].

    Returns:
        The values of diag(s) A diag(s), in the order of the entries, [e]. Gradients reach A and s.
    """
    if not (HAS_NUMBA and is_plain(operator.values) and is_plain(scale)):
        return scale[operator.rows] * operator.values * scale[operator.indices.long()]
    with temporarily_clear_interpreter_stack():
        values = operator.values.contiguous()
        arrays = (t.numpy() for t in (operator.indptr, operator.indices, values, scale.contiguous()))
        normalisation_numba.scale_values(*arrays)
        return values
