"""The `Operator`: a sparse matrix as models multiply with it.

It carries int32 CSR and its transpose, built once, so that no backward pass transposes again.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from wtawp.base import DataError


@dataclass(frozen=True, eq=False)
class Operator:
    """A sparse [n, m] matrix in CSR form, together with the CSR form of its transpose.

    Build one with `Operator.from_entries`, `sparse_features` or one of the functions that turn edges into operators,
    such as `gcn_operator`.

    Attributes:
        shape: Number of rows n and of columns m.
        indptr: Where the entries of each row start, [n + 1] int32.
        indices: Column of each entry, [e] int32.
        values: Value of each entry, [e].
        t_indptr: Where the entries of each row of the transpose start, [m + 1] int32.
        t_indices: Column of each entry of the transpose, which is its row here, [e] int32.
        order: Entry i of the transpose is entry `order[i]` of this matrix, [e] int64.
        back: The inverse permutation of `order`, [e] int64.

    Example:
        >>> Operator.from_entries(torch.tensor([0, 1]), torch.tensor([1, 0]), torch.ones(2), (2, 3)).to_dense()
        tensor([[0., 1., 0.],
                [1., 0., 0.]])
    """

    shape: tuple[int, int]
    indptr: Tensor
    indices: Tensor
    values: Tensor
    t_indptr: Tensor
    t_indices: Tensor
    order: Tensor
    back: Tensor

    @staticmethod
    def from_entries(rows: Tensor, cols: Tensor, values: Tensor, shape: tuple[int, int]) -> "Operator":
        """Build an operator from coordinates in any order. Gradients reach `values`.

        Args:
            rows: Row of each entry, [e].
            cols: Column of each entry, [e].
            values: Value of each entry, [e]; values at equal coordinates are summed.
            shape: Number of rows and of columns.

        Returns:
            The operator of that shape.

        Raises:
            DataError: If a coordinate lies outside the matrix.
        """
        if len(rows) and not (
            0 <= int(rows.min()) <= int(rows.max()) < shape[0] and 0 <= int(cols.min()) <= int(cols.max()) < shape[1]
        ):
            extent = f"rows {int(rows.min())} to {int(rows.max())}, columns {int(cols.min())} to {int(cols.max())}"
            raise DataError(f"entries must lie inside a matrix of shape {list(shape)}, got {extent}")
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
        """The identity matrix.

        Args:
            size: Number of rows and of columns.
            dtype: Type of the values.
            device: Where the operator lives.

        Returns:
            The identity operator.
        """
        starts, places = torch.arange(size + 1, device=device).int(), torch.arange(size, device=device)
        ones, here = torch.ones(size, dtype=dtype, device=device), places.int()
        return Operator((size, size), starts, here, ones, starts, here, places, places)

    @property
    def T(self) -> "Operator":
        """The transpose, an operator of shape [m, n]."""
        return replace(self.mirrored(), values=self.t_values)

    @cached_property
    def t_values(self) -> Tensor:
        """The values in the transpose's order, [e]."""
        return self.values[self.order]

    def mirrored(self) -> "Operator":
        """The structure of the transpose around the same values, for use with values in the transpose's order.

        Returns:
            An operator whose `values` are not yet those of the transpose: pass `t_values`, or other values in that
            order, beside it.
        """
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
        """The submatrix of some rows and columns.

        Args:
            rows: The rows to keep, distinct, in the order they shall have, [r].
            cols: The columns to keep, likewise, [c].

        Returns:
            The operator of shape [r, c].
        """
        place = torch.full((self.shape[1],), -1, device=cols.device)
        place[cols] = torch.arange(len(cols), device=cols.device)
        of_row = torch.full((self.shape[0],), -1, device=rows.device)
        of_row[rows] = torch.arange(len(rows), device=rows.device)
        r, c = of_row[self.rows], place[self.indices.long()]
        kept = (r >= 0) & (c >= 0)
        return Operator.from_entries(r[kept], c[kept], self.values[kept], (len(rows), len(cols)))

    def to(self, target: torch.device | torch.dtype | str) -> "Operator":
        """The same operator on another device, or with values of another type.

        Args:
            target: A device, its name, or a floating-point type.

        Returns:
            The converted operator; unchanged tensors are shared.
        """
        if isinstance(target, torch.dtype):
            return replace(self, values=self.values.to(target))
        names = ("indptr", "indices", "values", "t_indptr", "t_indices", "order", "back")
        return replace(self, **{name: getattr(self, name).to(target) for name in names})

    def to_dense(self) -> Tensor:  # [n, m]
        """The matrix written out, for tests and small graphs.

        Returns:
            A dense tensor of shape [n, m]. Gradients reach `values`.
        """
        return self.values.new_zeros(self.shape).index_put((self.rows, self.indices.long()), self.values)


def sparse_features(x: Tensor) -> Operator:  # [n, d] -> [n, d]
    """Turn features into an operator, so that a first layer works on the non-zeros alone. For bags of words.

    Args:
        x: Features, dense or in one of torch's sparse layouts, [n, d].

    Returns:
        The operator of shape [n, d] with the non-zero features as entries.

    Example:
        >>> sparse_features(torch.tensor([[0.0, 2.0], [0.0, 0.0]])).values
        tensor([2.])
    """
    if x.layout != torch.strided:
        x = x.to_sparse().coalesce()
        rows, cols, values = *x.indices(), x.values()
    else:
        rows, cols = x.nonzero(as_tuple=True)
        values = x[rows, cols]
    return Operator.from_entries(rows, cols, values, (x.shape[0], x.shape[1]))


def _indptr(rows: Tensor, size: int) -> Tensor:
    """Where the entries of each row start once they are sorted by row, [size + 1] int32."""
    counts = torch.bincount(rows, minlength=size)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)]).int()
