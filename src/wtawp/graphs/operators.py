"""Sparse operators and the one primitive all models go through: sparse times dense, with gradients and a vmap rule.

An `Operator` carries int32 CSR and its transpose, built once, so that no backward pass transposes again. `spmm` maps
over a stack of models (its vmap rule hands the whole stack to one kernel) and differentiates with respect to the dense
matrix and, where asked, to the entries.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional as F

from wtawp.base import DataError
from wtawp.graphs import kernels

NARROW = 64  # columns of a dense matrix up to which a CPU multiplies it with each member of a stack by itself


@dataclass(frozen=True, eq=False)
class Operator:
    """A sparse [n, m] matrix: CSR with its transpose, whose entry i is entry `order[i]` here; `back` undoes that."""

    shape: tuple[int, int]
    indptr: Tensor  # [n + 1] int32
    indices: Tensor  # [e] int32, columns
    values: Tensor  # [e]
    t_indptr: Tensor  # [m + 1] int32
    t_indices: Tensor  # [e] int32, rows
    order: Tensor  # [e] int64
    back: Tensor  # [e] int64

    @staticmethod
    def from_entries(rows: Tensor, cols: Tensor, values: Tensor, shape: tuple[int, int]) -> "Operator":
        """From coordinates in any order; entries in the same place are summed. Gradients reach `values`."""
        if len(rows) and not (
            0 <= int(rows.min()) <= int(rows.max()) < shape[0] and 0 <= int(cols.min()) <= int(cols.max()) < shape[1]
        ):
            found = f"rows {int(rows.min())} to {int(rows.max())}, columns {int(cols.min())} to {int(cols.max())}"
            raise DataError(f"entries must lie inside a matrix of shape {list(shape)}, got {found}")
        places, entry = (rows * shape[1] + cols).sort()  # by row, then by column
        if bool((places.diff() == 0).any()):
            places, group = torch.unique_consecutive(places, return_inverse=True)
            values = values.new_zeros(len(places)).index_add(0, group, values[entry])
        else:
            values = values[entry]
        del entry  # large graphs: nothing is kept that is not needed any more
        rows, cols = places // shape[1], places % shape[1]
        order = torch.argsort(cols, stable=True)
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        return Operator(
            shape, _indptr(rows, shape[0]), cols.int(), values, _indptr(cols, shape[1]), rows[order].int(), order, back
        )

    @staticmethod
    def identity(size: int, dtype: torch.dtype, device: torch.device) -> "Operator":
        """The operator that leaves everything where it is."""
        starts, places = torch.arange(size + 1, device=device).int(), torch.arange(size, device=device)
        ones, here = torch.ones(size, dtype=dtype, device=device), places.int()
        return Operator((size, size), starts, here, ones, starts, here, places, places)

    @property
    def T(self) -> "Operator":
        """The transpose."""
        return replace(self.mirrored(), values=self.t_values)

    @cached_property
    def t_values(self) -> Tensor:
        """The values in the transpose's order, [e]."""
        return self.values[self.order]

    def mirrored(self) -> "Operator":
        """The structure of the transpose around the same values, for use with values in the transpose's order."""
        return Operator(
            self.shape[::-1],
            self.t_indptr,
            self.t_indices,
            self.values,
            self.indptr,
            self.indices,
            self.back,
            self.order,
        )

    @cached_property
    def rows(self) -> Tensor:
        """The row of each entry, [e]."""
        counts = self.indptr.diff().long()
        return torch.repeat_interleave(
            torch.arange(self.shape[0], device=counts.device), counts, output_size=len(self.indices)
        )

    def select(self, rows: Tensor, cols: Tensor) -> "Operator":
        """The submatrix of some rows and columns, distinct, in the order given."""
        place = torch.full((self.shape[1],), -1, device=cols.device)
        place[cols] = torch.arange(len(cols), device=cols.device)
        of_row = torch.full((self.shape[0],), -1, device=rows.device)
        of_row[rows] = torch.arange(len(rows), device=rows.device)
        r, c = of_row[self.rows], place[self.indices.long()]
        kept = (r >= 0) & (c >= 0)
        return Operator.from_entries(r[kept], c[kept], self.values[kept], (len(rows), len(cols)))

    def to(self, target: torch.device | torch.dtype | str) -> "Operator":
        """On another device, or with values of another type."""
        if isinstance(target, torch.dtype):
            return replace(self, values=self.values.to(target))
        names = ("indptr", "indices", "values", "t_indptr", "t_indices", "order", "back")
        return replace(self, **{name: getattr(self, name).to(target) for name in names})

    def to_dense(self) -> Tensor:  # [n, m]
        """For tests and small graphs."""
        return self.values.new_zeros(self.shape).index_put((self.rows, self.indices.long()), self.values)


def spmm(operator: Operator, dense: Tensor, values: Tensor | None = None) -> Tensor:  # [n, m], [m, h] -> [n, h]
    """Sparse times dense; `values` may stand in for the operator's own entries (attention, dropped-out features)."""
    values = operator.values if values is None else values
    product: Tensor = _SpMM.apply(values, dense, operator)  # type: ignore[no-untyped-call]
    return product


class Multiplies(Protocol):
    """What stands in for an operator and knows itself how to multiply: factors, or a record of its own products."""

    def __matmul__(self, dense: Tensor) -> Tensor: ...  # [..., m, h] -> [..., n, h]


def multiply(left: Operator | Tensor | Multiplies, dense: Tensor, values: Tensor | None = None) -> Tensor:
    """Any operator, sparse or dense, times a dense matrix.

    A constant dense one may end in columns of zeros for which the other side has no rows: see `aligned`.
    """
    if isinstance(left, Operator):
        return spmm(left, dense, values)
    if not isinstance(left, Tensor) or left.requires_grad or left.dim() > 2:
        return left @ dense
    product: Tensor = _SharedLeft.apply(left, dense)  # type: ignore[no-untyped-call]
    return product


def aligned(x: Tensor) -> Tensor:  # [n, d] -> [n, a little more]
    """The matrix with columns of zeros up to a multiple of 8: a GPU's matrix units are three times faster for it."""
    return F.pad(x, (0, -x.shape[1] % 8))


class _SharedLeft(torch.autograd.Function):
    """A constant [n, m] times [..., m, h]; over a stack it is one product with the stack laid side by side.

    torch makes a batched product of it, which is several times slower when h is small; but on the CPU it is faster
    for a narrow matrix, whose product takes less time than putting the stack side by side and apart again.
    """

    @staticmethod
    def forward(left: Tensor, dense: Tensor) -> Tensor:
        dense = F.pad(dense, (0, 0, 0, left.shape[1] - dense.shape[-2]))
        if dense.dim() == 2:
            return left @ dense
        if left.device.type == "cpu" and min(left.shape) <= NARROW:
            return left.expand(*dense.shape[:-2], *left.shape) @ dense
        stack = dense.movedim(-2, 0)  # [m, ..., h]
        return (left @ stack.reshape(stack.shape[0], -1)).view(-1, *stack.shape[1:]).movedim(0, -2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:  # noqa: ARG004
        left, dense = inputs
        ctx.rows = dense.shape[-2]
        ctx.save_for_backward(left)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        (left,) = ctx.saved_tensors
        return None, multiply(left.mT, grad)[..., : ctx.rows, :]

    @staticmethod
    def vmap(_info: Any, in_dims: tuple[int | None, int | None], left: Tensor, dense: Tensor) -> tuple[Tensor, int]:
        stack = dense if in_dims[1] is None else dense.movedim(in_dims[1], 0)
        if in_dims[0] is None:
            return multiply(left, stack), 0
        return left.movedim(in_dims[0], 0) @ stack, 0


class _SpMM(torch.autograd.Function):
    """values [..., e], dense [..., m, h] -> [..., n, h]; leading dimensions broadcast (models, heads)."""

    @staticmethod
    def forward(values: Tensor, dense: Tensor, operator: Operator) -> Tensor:
        lead: torch.Size = dense.shape[:-2]
        if values.dim() > 1:
            lead = torch.broadcast_shapes(values.shape[:-1], lead)  # type: ignore[no-untyped-call]
        v, x = _folded(values, lead, 1), _folded(dense, lead, 2)
        product = kernels.multiply(operator.indptr, operator.indices, v, x)
        if len(lead) < 2:
            return product if lead else product[0]
        return product.reshape(*lead, *product.shape[1:])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Operator], output: Tensor) -> None:  # noqa: ARG004
        values, dense, ctx.operator = inputs
        ctx.is_constant = values is ctx.operator.values and not values.requires_grad
        ctx.save_for_backward(values, dense)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        values, dense = ctx.saved_tensors
        operator: Operator = ctx.operator
        to_values = to_dense = None
        if ctx.needs_input_grad[0]:
            to_values = kernels.inner_products(operator.rows, operator.indices.long(), grad, dense).sum_to_size(
                values.shape
            )
        if ctx.needs_input_grad[1]:
            # The operator's own constant values are put in order once; others (attention, dropout) each time.
            turned = operator.t_values if ctx.is_constant else values[..., operator.order]
            to_dense = spmm(operator.mirrored(), grad, turned).sum_to_size(dense.shape)
        return to_values, to_dense, None

    @staticmethod
    def vmap(
        _info: Any, in_dims: tuple[int | None, int | None, None], values: Tensor, dense: Tensor, operator: Operator
    ) -> tuple[Tensor, int]:
        # The stack goes in front; a singleton keeps it apart from heads that only the other side has.
        heads = [t.dim() - own - (d is not None) for t, d, own in ((values, in_dims[0], 1), (dense, in_dims[1], 2))]
        moved = []
        for t, d, own in ((values, in_dims[0], heads[0]), (dense, in_dims[1], heads[1])):
            front = t if d is None else t.movedim(d, 0)
            moved.append(front if d is None else front[(slice(None), *[None] * (max(heads) - own))])
        return _SpMM.apply(*moved, operator), 0  # type: ignore[no-untyped-call]


def _folded(t: Tensor, lead: torch.Size, own: int) -> Tensor:
    """All leading dimensions as one; a tensor without any becomes a stack of one, which kernels share."""
    if t.dim() == own:
        return t[None]
    return t.expand(*lead, *t.shape[-own:]).reshape(-1, *t.shape[-own:])


def _indptr(sorted_or_not: Tensor, size: int) -> Tensor:
    counts = torch.bincount(sorted_or_not, minlength=size)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)]).int()


def gcn_operator(
    edge_index: Tensor,
    edge_weight: Tensor | None,
    num_nodes: int,
    dtype: torch.dtype = torch.float32,
    *,
    power: float = -0.5,
) -> Operator:  # [2, e], [e] -> [n, n]
    """The symmetrically normalised adjacency matrix with self-loops, D^-1/2 (A + I) D^-1/2; `power` may be another.

    Duplicate edges are summed; a node that has a self-loop already keeps it as it is. Gradients reach `edge_weight`.

    >>> gcn_operator(torch.tensor([[0, 1], [1, 0]]), None, 2).to_dense()
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    """
    lonely = torch.ones(num_nodes, dtype=torch.bool, device=edge_index.device)
    lonely[edge_index[0][edge_index[0] == edge_index[1]]] = False
    loops = lonely.nonzero()[:, 0]
    source, target = torch.cat([edge_index[0], loops]), torch.cat([edge_index[1], loops])
    ones = torch.ones(len(source), dtype=dtype, device=edge_index.device)
    weight = ones if edge_weight is None else torch.cat([edge_weight.to(dtype), ones[: len(loops)]])
    plain = Operator.from_entries(target, source, weight, (num_nodes, num_nodes))
    degree = plain.values.new_zeros(num_nodes).index_add(0, plain.rows, plain.values)  # at least 1: the self-loop
    scale = degree.rsqrt() if power == -0.5 else degree.pow(power)
    return replace(plain, values=scale[plain.rows] * plain.values * scale[plain.indices.long()])


def sum_operator(
    edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int, dtype: torch.dtype = torch.float32
) -> Operator:  # [2, e], [e] -> [n, n]
    """The adjacency matrix: row i sums over the edges into node i. Duplicate edges count twice; no loops are added.

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
    """D^-1 A: row i is the mean over the edges into node i, weighted if they are; without edges it is empty."""
    plain = sum_operator(edge_index, edge_weight, num_nodes, dtype)
    total = plain.values.new_zeros(num_nodes).index_add(0, plain.rows, plain.values)
    return replace(plain, values=plain.values / torch.where(total == 0, 1, total)[plain.rows])


def sparse_features(x: Tensor) -> Operator:  # [n, d] -> [n, d]
    """Features as an operator, for bags of words: the first layer then works on the non-zeros alone."""
    if x.layout != torch.strided:
        x = x.to_sparse().coalesce()
        rows, cols, values = *x.indices(), x.values()
    else:
        rows, cols = x.nonzero(as_tuple=True)
        values = x[rows, cols]
    return Operator.from_entries(rows, cols, values, (x.shape[0], x.shape[1]))


def jaccard(edge_index: Tensor, x: Tensor | Operator) -> Tensor:  # [2, e], [n, d] -> [e]
    """The Jaccard similarity of each edge's end points: the features both have, over those either has.

    A feature is there where it is not zero. Two nodes without any are alike: similarity 1.

    >>> jaccard(torch.tensor([[0, 0], [1, 2]]), torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]))
    tensor([0.3333, 0.0000])
    """
    has = presence(x)
    _check_places(edge_index, has.shape[0])
    number = np.diff(has.indptr)
    source, target = edge_index.cpu().numpy()
    common = np.zeros(len(source))
    for start in range(0, len(source), 1 << 18):  # so many edges at a time, to bound the memory
        part = slice(start, start + (1 << 18))
        common[part] = (has[source[part]] * has[target[part]]).sum(1)
    union = number[source] + number[target] - common
    similarity = np.where(union == 0, 1.0, common / np.maximum(union, 1))
    dtype = x.values.dtype if isinstance(x, Operator) else x.dtype
    return torch.from_numpy(similarity).to(edge_index.device, dtype)


def jaccard_rows(x: Tensor | Operator) -> Callable[[int, int], Tensor]:  # [n, d]
    """`jaccard` of all pairs of nodes, some rows at a time: a function of the first row and the one after the last.

    >>> jaccard_rows(torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]))(0, 2)
    tensor([[1.0000, 0.3333, 0.0000],
            [0.3333, 1.0000, 0.5000]])
    """
    has, values = presence(x), x.values if isinstance(x, Operator) else x
    number = torch.from_numpy(np.diff(has.indptr)).to(values.device, torch.float64)
    turned = has.T.tocsr()
    dense = torch.from_numpy(has.toarray()).to(values) if values.is_cuda else None

    def rows(first: int, last: int) -> Tensor:  # -> [last - first, n]
        if dense is None:
            common = torch.from_numpy((has[first:last] @ turned).toarray())
        else:
            common = (dense[first:last] @ dense.T).double()
        union = number[first:last, None] + number - common
        return torch.where(union == 0, 1.0, common / union.clamp_min(1)).to(values.dtype)

    return rows


def jaccard_operator(
    edge_index: Tensor, edge_weight: Tensor | None, x: Tensor | Operator, threshold: float
) -> Operator:  # [2, e], [e], [n, d] -> [n, n]
    """`gcn_operator` of the graph without the edges whose end points are less similar than `threshold`.

    The filter of Wu et al. 2019. Gradients reach the weights of the edges that stay.
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
    """1 where x is not 0, in scipy's form."""
    x = x if isinstance(x, Operator) else sparse_features(x.detach())
    ones = (x.values.detach() != 0).to(torch.float64).cpu().numpy()
    has = csr_array((ones, x.indices.cpu().numpy(), x.indptr.cpu().numpy()), shape=x.shape)
    has.eliminate_zeros()
    return has


def _check_places(edge_index: Tensor, num_nodes: int) -> None:
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < num_nodes:
        found = f"{int(edge_index.min())} to {int(edge_index.max())}"
        raise DataError(f"edges must join nodes 0 to {num_nodes - 1}, got {found}")


@dataclass(frozen=True, eq=False)
class Blocks:
    """What some nodes see through `len(operators)` hops, themselves included, and nothing else.

    `operators[i]` maps the nodes `nodes[i]` to the nodes `nodes[i + 1]`, with which `nodes[i]` begins, so that a layer
    finds its nodes' own features in front; the last of them are the nodes asked for.
    """

    nodes: tuple[Tensor, ...]
    operators: tuple[Operator, ...]


def receptive_field(operator: Operator, targets: Tensor, hops: int) -> Blocks:
    """The exact blocks through which the rows `targets` (distinct) of operator^hops are computed."""
    nodes: list[Tensor] = [targets]
    operators: list[Operator] = []
    for _ in range(hops):
        seen = torch.zeros(operator.shape[0], dtype=torch.bool, device=targets.device)
        seen[nodes[0]] = True
        reached = torch.zeros_like(seen)
        reached[operator.indices[seen[operator.rows]].long()] = True
        nodes.insert(0, torch.cat([nodes[0], (reached & ~seen).nonzero()[:, 0]]))
        operators.insert(0, operator.select(nodes[1], nodes[0]))
    return Blocks(tuple(nodes), tuple(operators))


def ppr_rows(operator: Operator, rows: Tensor, *, alpha: float, steps: int | None) -> Tensor:  # -> [len(rows), n]
    """Rows of personalised PageRank over `operator`, dense: `steps` power iterations as APPNP does, None for the limit.

    The limit is alpha (I - b A)^-1 with b = 1 - alpha; K steps give alpha sum_{k<K} b^k A^k + b^K A^K.
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
