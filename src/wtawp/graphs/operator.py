"""The `Operator`: a sparse matrix as models multiply with it.

It carries CSR and that of its transpose, which is built once, when it is first used: no backward pass builds it again.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from wtawp.base import DataError
from wtawp.graphs import structure


class Transposed:
    """The CSR form of a transpose, built when it is first used. Operators that differ in their values share it.

    Args:
        shape: Shape of the matrix that is transposed.
        indptr: Its row pointers.
        indices: The column of each of its entries.
        mirror: If that matrix is itself a transpose, the one of the matrix it was made from; there is then nothing to
            build.
    """

    def __init__(
        self, shape: tuple[int, int], indptr: Tensor, indices: Tensor, mirror: "Transposed | None" = None
    ) -> None:
        self.shape, self.indptr, self.indices, self.mirror = shape, indptr, indices, mirror

    @cached_property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """The transpose's row pointers, columns, and which entry of the matrix each of its entries is."""
        if self.mirror is not None:
            return self.mirror.indptr, self.mirror.indices, self.mirror.back
        with torch.inference_mode(False):  # or they could not be used in training afterwards
            return structure.transpose(self.indptr, self.indices, self.shape)

    @cached_property
    def back(self) -> Tensor:
        """Which entry of the transpose each entry of the matrix is."""
        if self.mirror is not None:
            return self.mirror.parts[2]
        with torch.inference_mode(False):
            return structure.inverse(self.parts[2])


@dataclass(frozen=True, eq=False)
class Operator:
    """A sparse [n, m] matrix in CSR form, together with the CSR form of its transpose.

    Build one with `Operator.from_entries`, `sparse_features` or one of the functions that turn edges into operators,
    such as `gcn_operator`.

    Attributes:
        shape: Number of rows n and of columns m.
        indptr: Where the entries of each row start, [n + 1]; int32, or int64 if there are 2^31 entries or more.
        indices: Column of each entry, [e] int32; they rise within a row.
        values: Value of each entry, [e].
        transposed: The structure of the transpose, if it is known; otherwise it is built when it is first used.

    Example:
        >>> Operator.from_entries(torch.tensor([0, 1]), torch.tensor([1, 0]), torch.ones(2), (2, 3)).to_dense()
        tensor([[0., 1., 0.],
                [1., 0., 0.]])
    """

    shape: tuple[int, int]
    indptr: Tensor
    indices: Tensor
    values: Tensor
    transposed: Transposed | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.transposed is None:
            object.__setattr__(self, "transposed", Transposed(self.shape, self.indptr, self.indices))

    @property
    def _transposed(self) -> Transposed:
        """The structure of the transpose, which every operator has once it is made."""
        assert self.transposed is not None
        return self.transposed

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
        structure.check_size(shape)
        if len(rows):
            (low, high), (first, last) = ([int(t) for t in torch.aminmax(ends)] for ends in (rows, cols))
            if not (0 <= low <= high < shape[0] and 0 <= first <= last < shape[1]):
                extent = f"rows {low} to {high}, columns {first} to {last}"
                raise DataError(f"entries must lie inside a matrix of shape {list(shape)}, got {extent}")
        return Operator(shape, *_sum_duplicates(*structure.sort_entries(rows, cols, values, shape)))

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
        structure.check_size((size, size))
        starts = torch.arange(size + 1, device=device, dtype=structure.pointer_dtype(size))
        columns = torch.arange(size, device=device, dtype=torch.int32)
        ones = torch.ones(size, dtype=dtype, device=device)
        return Operator((size, size), starts, columns, ones)

    @property
    def t_indptr(self) -> Tensor:
        """Where the entries of each row of the transpose start, [m + 1], int32 or int64 as `indptr`."""
        return self._transposed.parts[0]

    @property
    def t_indices(self) -> Tensor:
        """Column of each entry of the transpose, which is its row here, [e] int32."""
        return self._transposed.parts[1]

    @property
    def order(self) -> Tensor:
        """Entry i of the transpose is entry `order[i]` of this matrix, [e] int64."""
        return self._transposed.parts[2]

    @property
    def back(self) -> Tensor:
        """The inverse permutation of `order`, [e] int64."""
        return self._transposed.back

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
        return self._mirrored

    @cached_property
    def _mirrored(self) -> "Operator":
        """What `mirrored` returns."""
        turned = self.shape[::-1]
        mirror = Transposed(turned, self.t_indptr, self.t_indices, mirror=self._transposed)
        return Operator(turned, self.t_indptr, self.t_indices, self.values, mirror)

    @cached_property
    def arrays(self) -> tuple[Any, Any, Any]:
        """`indptr`, `indices` and `values` as NumPy arrays in the same memory, for compiled loops on the CPU."""
        indptr, indices, values = (t.detach().contiguous().numpy() for t in (self.indptr, self.indices, self.values))
        return indptr, indices, values

    @cached_property
    def rows(self) -> Tensor:
        """The row of each entry, [e]."""
        return structure.row_of_entries(self.indptr, len(self.indices))

    def select(self, rows: Tensor, cols: Tensor) -> "Operator":
        """The submatrix of some rows and columns.

        Args:
            rows: The rows to keep, distinct, in the order they shall have, [r].
            cols: The columns to keep, likewise, [c].

        Returns:
            The operator of shape [r, c]. Gradients reach the values of this one.

        Raises:
            DataError: If a row or column is not one of this matrix.
        """
        parts = structure.select_entries(self.indptr, self.indices, self.values, self.shape, rows, cols)
        return Operator((len(rows), len(cols)), *parts)

    def to(self, target: torch.device | torch.dtype | str) -> "Operator":
        """The same operator on another device, or with values of another type.

        Args:
            target: A device, its name, or a floating-point type.

        Returns:
            The converted operator; unchanged tensors are shared.
        """
        if isinstance(target, torch.dtype):
            return replace(self, values=self.values.to(target))
        indptr, indices, values = (t.to(target) for t in (self.indptr, self.indices, self.values))
        return self if values is self.values else Operator(self.shape, indptr, indices, values)

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


def _sum_duplicates(indptr: Tensor, indices: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sum the values of neighbouring entries with equal coordinates; the entries are sorted."""
    is_new = torch.ones(len(indices), dtype=torch.bool, device=indices.device)
    torch.ne(indices[1:], indices[:-1], out=is_new[1:])
    starts = indptr[:-1].long()
    is_new[starts[starts < len(indices)]] = True  # equal columns in two rows are no duplicates
    if bool(is_new.all()):
        return indptr, indices, values
    number = is_new.cumsum(0)  # entries that remain, up to and including each
    summed = values.new_zeros(int(number[-1])).index_add(0, number - 1, values)
    before = torch.cat([number.new_zeros(1), number])
    return before[indptr.long()].to(structure.pointer_dtype(len(summed))), indices[is_new], summed
