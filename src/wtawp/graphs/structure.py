"""Where the entries of a sparse matrix are: sort them into CSR form, transpose it, cut rows and columns out of it.

Time grows linearly with the entries; those of a row are sorted among themselves, unless they are sorted already. The
loops are compiled by numba on the CPU; on a GPU, and without numba, torch operations give the same arrays.

Positions have no derivatives, so everything but the last step, which moves the values, is done outside of the
transforms of `torch.func`: what is kept stays usable after them.

Row pointers are int32 as long as they fit, and int64 beyond; `pointer_dtype` is the only place that decides. Columns
are always int32.
"""

import numpy as np
import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from wtawp.base import DataError
from wtawp.graphs.kernels import HAS_NUMBA, is_differentiated, is_plain

if HAS_NUMBA:
    from wtawp.graphs import structure_numba

INT32_ENTRIES = 2**31 - 1024  # up to which row pointers are int32; a GPU's programs step a little beyond the last entry
RUNS = 4  # of rising columns, up to which a selection takes them one after another; receptive fields have one a hop
INT32_SIZE = 2**31 - 1  # largest number of rows and of columns


def pointer_dtype(num_entries: int) -> torch.dtype:
    """Choose the integer type of row pointers.

    Args:
        num_entries: Number of entries of the matrix.

    Returns:
        int32 where it can count the entries, int64 beyond.

    Example:
        >>> pointer_dtype(10**9), pointer_dtype(10**10)
        (torch.int32, torch.int64)
    """
    return torch.int32 if num_entries <= INT32_ENTRIES else torch.int64


def check_size(shape: tuple[int, int]) -> None:
    """Refuse a matrix whose rows or columns int32 cannot number.

    Args:
        shape: Number of rows and of columns.

    Raises:
        DataError: If one of them is too large.
    """
    if max(shape) > INT32_SIZE:
        raise DataError(
            f"a sparse matrix can have up to {INT32_SIZE} rows and columns, got {list(shape)}; divide the graph into"
            " parts, or train on samples of it"
        )


def row_pointers(rows: Tensor, size: int) -> Tensor:  # [e] -> [n + 1]
    """Find where the entries of each row start once they are sorted by row.

    Args:
        rows: Row of each entry, in any order, [e].
        size: Number of rows n.

    Returns:
        The start of each row, and last the number of entries, [n + 1].
    """
    counts = torch.bincount(rows, minlength=size)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(pointer_dtype(len(rows)))


def sort_entries(
    rows: Tensor, cols: Tensor, values: Tensor, shape: tuple[int, int]
) -> tuple[Tensor, Tensor, Tensor]:  # [e], [e], [e]
    """Sort entries by row, then by column. Entries with equal coordinates stay in the order in which they come.

    Args:
        rows: Row of each entry, inside the matrix, [e].
        cols: Column of each entry, likewise, [e].
        values: Value of each entry, [e].
        shape: Number of rows n and of columns m.

    Returns:
        Row pointers [n + 1], columns [e] int32, and the values in that order [e], a copy that gradients pass.
    """
    carried = _carried(values)
    with temporarily_clear_interpreter_stack():
        sort = _sort_compiled if _is_compiled(rows) else _sort_in_torch
        indptr, indices, moved = sort(rows.detach().long(), cols.detach().long(), carried, shape)
    return indptr, indices, moved if carried is values else values[moved]


def transpose(indptr: Tensor, indices: Tensor, shape: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Transpose a matrix in CSR form.

    Args:
        indptr: Row pointers, [n + 1].
        indices: Column of each entry, [e] int32.
        shape: Number of rows n and of columns m.

    Returns:
        Row pointers [m + 1] and columns [e] of the transpose, sorted as those of the matrix are, and which entry of
        the matrix each entry of the transpose is, [e] int64.
    """
    with temporarily_clear_interpreter_stack():
        return _transpose(indptr, indices, shape)


def select_entries(
    indptr: Tensor, indices: Tensor, values: Tensor, shape: tuple[int, int], rows: Tensor, cols: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Cut some rows and columns out of a matrix in CSR form.

    Args:
        indptr: Row pointers, [n + 1].
        indices: Column of each entry, [e] int32.
        values: Value of each entry, [e].
        shape: Number of rows n and of columns m.
        rows: The rows to keep, in the order they shall have, [r].
        cols: The columns to keep, distinct, likewise, [c].

    Returns:
        Row pointers [r + 1], columns [k] int32 and values [k] of the submatrix; gradients reach `values`.

    Raises:
        DataError: If a row or column is not one of the matrix.
    """
    for name, chosen, size in (("rows", rows, shape[0]), ("columns", cols, shape[1])):
        check_positions(name, chosen, size)
    carried = _carried(values)
    with temporarily_clear_interpreter_stack():
        select = _select_compiled if _is_compiled(indices) else _select_in_torch
        new_indptr, new_indices, moved = select(indptr, indices, carried, shape[1], rows.long(), cols.long())
    return new_indptr, new_indices, moved if carried is values else values[moved]


def columns_of_rows(
    indptr: Tensor, indices: Tensor, shape: tuple[int, int], rows: Tensor
) -> Tensor:  # [n + 1], [e], [r] -> [m]
    """Tell in which columns some rows of a matrix in CSR form have entries.

    Args:
        indptr: Row pointers, [n + 1].
        indices: Column of each entry, [e] int32.
        shape: Number of rows n and of columns m.
        rows: The rows, [r].

    Returns:
        True at the columns of their entries, [m] bool.

    Raises:
        DataError: If a row is not one of the matrix.
    """
    check_positions("rows", rows, shape[0])
    with temporarily_clear_interpreter_stack():
        reached = torch.zeros(shape[1], dtype=torch.bool, device=indices.device)
        if _is_compiled(indices):
            arrays = (t.numpy() for t in (indptr, indices, rows.long().contiguous(), reached))
            structure_numba.mark_columns(*arrays)
        else:
            reached[indices[_entries_of_rows(indptr, rows)[0]].long()] = True
        return reached


def row_of_entries(indptr: Tensor, num_entries: int) -> Tensor:  # [n + 1] -> [e]
    """List the row of each entry of a matrix in CSR form.

    Args:
        indptr: Row pointers, [n + 1].
        num_entries: Number of entries, which is the last pointer; with it, a GPU need not be waited for.

    Returns:
        The rows, [e] int64.
    """
    counts = indptr.diff().long()
    return torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts, output_size=num_entries)


def inverse(order: Tensor) -> Tensor:  # [e] -> [e]
    """Invert a permutation.

    Args:
        order: The permutation, [e] int64.

    Returns:
        The permutation that undoes it, [e] int64.
    """
    with temporarily_clear_interpreter_stack():
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        return back


def check_positions(name: str, chosen: Tensor, size: int) -> None:
    """Refuse rows or columns that a matrix does not have.

    Args:
        name: What they are, for the message.
        chosen: Their numbers, [k].
        size: How many of them the matrix has.

    Raises:
        DataError: If a number is negative or too large, or if these are not whole numbers.
    """
    if chosen.dim() != 1 or chosen.is_floating_point() or chosen.dtype == torch.bool:
        raise DataError(f"{name} must be a list of positions, got {chosen.dtype} of shape {list(chosen.shape)}")
    if not len(chosen):
        return
    low, high = (int(t) for t in torch.aminmax(chosen))
    if low < 0 or high >= size:
        raise DataError(f"{name} must lie between 0 and {size - 1}, got {low} to {high}")


def _is_compiled(positions: Tensor) -> bool:
    """Whether there are compiled loops for a matrix on this device."""
    return HAS_NUMBA and positions.device.type == "cpu"


def _carried(values: Tensor) -> Tensor:
    """What is moved along with the entries: the values themselves, or else the numbers of the entries."""
    is_movable = is_plain(values) if _is_compiled(values) else not is_differentiated(values)
    return values if is_movable else torch.arange(len(values), device=values.device)


def _sort_compiled(
    rows: Tensor, cols: Tensor, carried: Tensor, shape: tuple[int, int]
) -> tuple[Tensor, Tensor, Tensor]:
    """See `sort_entries`."""
    rows, cols = rows.contiguous(), cols.contiguous()
    indptr = torch.zeros(shape[0] + 1, dtype=pointer_dtype(len(rows)))
    if structure_numba.count_rows(rows.numpy(), cols.numpy(), indptr.numpy()):
        return indptr, cols.int(), carried.clone()
    indices, moved = torch.empty(len(rows), dtype=torch.int32), torch.empty_like(carried)
    arrays = (t.numpy() for t in (rows, cols, carried.contiguous(), indptr[:-1].clone(), indices, moved))
    structure_numba.distribute(*arrays)
    structure_numba.sort_rows(indptr.numpy(), indices.numpy(), moved.numpy())
    return indptr, indices, moved


def _sort_in_torch(
    rows: Tensor, cols: Tensor, carried: Tensor, shape: tuple[int, int]
) -> tuple[Tensor, Tensor, Tensor]:
    """See `sort_entries`."""
    width = max(shape[1], 1)
    codes = rows * width + cols
    if bool((codes.diff() >= 0).all()):
        carried = carried.clone()
    else:
        codes, entry = codes.sort(stable=True)
        carried = carried[entry]
        del entry  # large graphs: nothing is kept that is not needed any more
    return row_pointers(codes // width, shape[0]), (codes % width).int(), carried


def _transpose(indptr: Tensor, indices: Tensor, shape: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """See `transpose`."""
    if not _is_compiled(indices):
        t_indptr = row_pointers(indices, shape[1])
        order = torch.argsort(indices, stable=True)
        return t_indptr, row_of_entries(indptr, len(indices))[order].int(), order
    t_indptr = torch.zeros(shape[1] + 1, dtype=pointer_dtype(len(indices)))
    t_indices, order = torch.empty_like(indices), torch.empty(len(indices), dtype=torch.int64)
    structure_numba.transpose(*(t.numpy() for t in (indptr, indices, t_indptr, t_indices, order)))
    return t_indptr, t_indices, order


def _select_compiled(
    indptr: Tensor, indices: Tensor, carried: Tensor, width: int, rows: Tensor, cols: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """See `select_entries`; `width` is the number of columns of the matrix."""
    rows, carried, new_column = rows.contiguous(), carried.contiguous(), _new_numbers(cols, width)
    most = int((indptr[rows + 1].long() - indptr[rows]).sum())
    new_indptr = torch.zeros(len(rows) + 1, dtype=pointer_dtype(most))
    new_indices, moved = torch.empty(most + 1, dtype=torch.int32), carried.new_empty(most + 1)
    arrays = [t.numpy() for t in (indptr, indices, carried, rows, new_column, new_indptr, new_indices, moved)]
    runs = [0, *((cols.diff() < 0).nonzero()[:, 0] + 1)[:RUNS].tolist(), len(cols)]
    if len(runs) - 1 > RUNS:
        kept = structure_numba.select_and_sort(*arrays)
    else:
        kept = structure_numba.select_by_runs(np.array(runs, dtype=np.int32), *arrays)
    new_indices, moved = new_indices[:kept], moved[:kept]
    if kept < most:  # copies, so that no memory is held for entries that were cut off
        new_indices, moved = new_indices.clone(), moved.clone()
    return new_indptr.to(pointer_dtype(kept)), new_indices, moved


def _select_in_torch(
    indptr: Tensor, indices: Tensor, carried: Tensor, width: int, rows: Tensor, cols: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """See `select_entries`; `width` is the number of columns of the matrix."""
    entry, row = _entries_of_rows(indptr, rows)
    column = _new_numbers(cols, width)[indices[entry].long()].long()
    kept = column >= 0
    if not bool(kept.all()):
        entry, row, column = entry[kept], row[kept], column[kept]
    return _sort_in_torch(row, column, carried[entry], (len(rows), len(cols)))


def _new_numbers(chosen: Tensor, size: int) -> Tensor:  # [k] -> [size]
    """The place of each of `size` columns among the chosen ones, int32; -1 for the others."""
    numbers = torch.full((size,), -1, dtype=torch.int32, device=chosen.device)
    numbers[chosen] = torch.arange(len(chosen), dtype=torch.int32, device=chosen.device)
    return numbers


def _entries_of_rows(indptr: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The positions of the entries of some rows, one row after another, and the place of each one's row in `rows`."""
    start = indptr[rows].long()
    counts = indptr[rows + 1].long() - start
    ends = counts.cumsum(0)
    total = int(ends[-1]) if len(ends) else 0
    row = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), counts, output_size=total)
    return (start - (ends - counts))[row] + torch.arange(total, device=rows.device), row
