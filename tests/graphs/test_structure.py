from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from wtawp.base import DataError, rng
from wtawp.graphs import structure

Entry = tuple[int, int, float]


@pytest.fixture(params=[False, True], ids=["torch", "numba"])
def compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Each test runs with the compiled loops, where there are any, and without."""
    if request.param and not structure.HAS_NUMBA:
        pytest.skip("the extra `fast` is not installed")
    monkeypatch.setattr(structure, "HAS_NUMBA", request.param)
    return bool(request.param)


def entries(rows: int, cols: int, count: int, *, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Random coordinates, some of them equal, with distinct values."""
    g = rng("entries", rows, cols, count, seed)
    r, c = torch.randint(rows, (count,), generator=g), torch.randint(cols, (count,), generator=g)
    return r, c, torch.rand(count, generator=g)


def naive_csr(listed: list[Entry], rows: int) -> tuple[list[int], list[int], list[float]]:
    """CSR form from a sorted list of entries, one row after another."""
    pointers = [0]
    for i in range(rows):
        pointers.append(pointers[-1] + sum(r == i for r, _, _ in listed))
    return pointers, [c for _, c, _ in listed], [v for _, _, v in listed]


def listed(rows: Tensor, cols: Tensor, values: Tensor) -> list[Entry]:
    """The entries as Python numbers, sorted by Python, which keeps equal ones in their order."""
    return sorted(zip(rows.tolist(), cols.tolist(), values.tolist(), strict=True), key=lambda entry: entry[:2])


SHAPES = [(5, 7, 20), (7, 5, 0), (1, 300, 200), (3, 90, 400), (40, 3, 15), (1, 1, 4)]  # some rows are long, some empty


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(("rows", "cols", "count"), SHAPES)
def test_entries_are_sorted_as_python_sorts_them(rows: int, cols: int, count: int) -> None:
    r, c, v = entries(rows, cols, count)
    expected = naive_csr(listed(r, c, v), rows)
    indptr, indices, values = structure.sort_entries(r, c, v, (rows, cols))
    assert (indptr.tolist(), indices.tolist(), values.tolist()) == expected
    assert indptr.dtype == indices.dtype == torch.int32
    again = structure.sort_entries(structure.row_of_entries(indptr, count), indices, values, (rows, cols))
    assert all(torch.equal(a, b) for a, b in zip(again, (indptr, indices, values), strict=True))  # sorted ones stay
    assert not count or again[2].data_ptr() != values.data_ptr()  # a copy, as if they had been moved


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(("rows", "cols", "count"), SHAPES)
def test_a_transpose_is_the_matrix_read_by_columns(rows: int, cols: int, count: int) -> None:
    r, c, v = entries(rows, cols, count)
    indptr, indices, values = structure.sort_entries(r, c, v, (rows, cols))
    t_indptr, t_indices, order = structure.transpose(indptr, indices, (rows, cols))
    turned = sorted(((c, r, v) for r, c, v in listed(r, c, v)), key=lambda entry: entry[:2])
    assert (t_indptr.tolist(), t_indices.tolist(), values[order].tolist()) == naive_csr(turned, cols)
    assert torch.equal(structure.inverse(order)[order], torch.arange(count))


def kept_sorted(g: torch.Generator, size: int) -> Tensor:
    return torch.randperm(size, generator=g)[: size // 2 + 1].sort().values


def kept_in_runs(g: torch.Generator, size: int) -> Tensor:
    """As the nodes of a receptive field: rising targets, then rising others."""
    shuffled = torch.randperm(size, generator=g)
    return torch.cat([shuffled[: size // 3].sort().values, shuffled[size // 3 : size - 1].sort().values])


def kept_shuffled(g: torch.Generator, size: int) -> Tensor:
    return torch.randperm(size, generator=g)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("keep", [kept_sorted, kept_in_runs, kept_shuffled])
@pytest.mark.parametrize(("rows", "cols", "count"), [(5, 7, 20), (1, 300, 200), (3, 90, 400), (40, 6, 90)])
def test_a_selection_holds_the_entries_of_its_rows_and_columns(
    keep: Callable[[torch.Generator, int], Tensor], rows: int, cols: int, count: int
) -> None:
    r, c, v = entries(rows, cols, count)
    matrix = structure.sort_entries(r, c, v, (rows, cols))
    g = rng("selection", rows, cols)
    some_rows, some_cols = torch.randperm(rows, generator=g)[: rows // 2 + 1], keep(g, cols)
    row_number = {row: i for i, row in enumerate(some_rows.tolist())}
    column_number = {col: i for i, col in enumerate(some_cols.tolist())}
    cut = [
        (row_number[a], column_number[b], w) for a, b, w in listed(r, c, v) if a in row_number and b in column_number
    ]
    expected = naive_csr(sorted(cut, key=lambda entry: entry[:2]), len(some_rows))
    indptr, indices, values = structure.select_entries(*matrix, (rows, cols), some_rows, some_cols)
    assert (indptr.tolist(), indices.tolist(), values.tolist()) == expected
    reached = structure.columns_of_rows(*matrix[:2], (rows, cols), some_rows)
    assert set(reached.nonzero()[:, 0].tolist()) == {b for a, b, _ in listed(r, c, v) if a in row_number}


@pytest.mark.usefixtures("compiled")
def test_gradients_of_every_kind_reach_values_that_are_sorted_and_selected() -> None:
    r, c, v = entries(4, 6, 12)
    v = v.double()

    def moved(values: Tensor) -> Tensor:
        matrix = structure.sort_entries(r, c, values, (4, 6))
        return structure.select_entries(*matrix, (4, 6), torch.tensor([3, 0, 1]), torch.tensor([5, 2, 0, 1]))[2]

    jacobian = torch.stack([moved(unit) for unit in torch.eye(12, dtype=torch.float64)], 1)  # it is linear
    leaf = v.clone().requires_grad_()
    weight = torch.rand(len(jacobian), generator=rng("weight"), dtype=torch.float64)
    (gradient,) = torch.autograd.grad(moved(leaf) @ weight, leaf)
    torch.testing.assert_close(gradient, weight @ jacobian)
    torch.testing.assert_close(torch.func.jvp(moved, (v,), (v,))[1], jacobian @ v)
    torch.testing.assert_close(torch.func.vmap(moved)(torch.stack([v, 2 * v])), torch.stack([moved(v), 2 * moved(v)]))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(v, v)
        tangent = torch.autograd.forward_ad.unpack_dual(moved(dual)).tangent
    torch.testing.assert_close(tangent, jacobian @ v)
    assert torch.equal(moved(v.bfloat16()), moved(v).bfloat16())  # a type that numpy does not have


@pytest.mark.usefixtures("compiled")
def test_coordinates_of_other_integer_types_do_not_overflow() -> None:
    rows = torch.tensor([70_000, 3, 70_000, 65_537], dtype=torch.int32)
    indptr, indices, values = structure.sort_entries(rows, rows, torch.arange(4.0), (70_001, 70_001))
    assert indices.tolist() == [3, 65_537, 70_000, 70_000]
    assert values.tolist() == [1, 3, 0, 2]
    assert int(indptr[-1]) == 4


@pytest.mark.usefixtures("compiled")
def test_pointers_are_int64_where_int32_cannot_count_and_hold_the_same_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    r, c, v = entries(20, 30, 200)
    rows, cols = torch.tensor([7, 3, 11, 0]), torch.arange(29, -1, -1)

    def everything() -> list[Tensor]:
        matrix = structure.sort_entries(r, c, v, (20, 30))
        cut = structure.select_entries(*matrix, (20, 30), rows, cols)
        return [*matrix, *structure.transpose(*matrix[:2], (20, 30)), *cut, structure.row_pointers(r, 20)]

    narrow = everything()
    monkeypatch.setattr(structure, "INT32_ENTRIES", 10)
    wide = everything()
    assert [t.dtype for t in wide] != [t.dtype for t in narrow]
    for i, (a, b) in enumerate(zip(narrow, wide, strict=True)):
        is_pointer = i in (0, 3, 6, 9)
        assert (a.dtype, b.dtype) == ((torch.int32, torch.int64) if is_pointer else (a.dtype, a.dtype))
        assert torch.equal(a.to(b.dtype), b)


def test_pointers_change_their_type_before_int32_overflows() -> None:
    assert structure.pointer_dtype(2**31 - 1) == structure.pointer_dtype(2**40) == torch.int64
    assert structure.pointer_dtype(2_000_000_000) == torch.int32


@pytest.mark.usefixtures("compiled")
def test_positions_outside_the_matrix_are_refused() -> None:
    matrix = structure.sort_entries(*entries(4, 6, 12), (4, 6))
    inside = torch.tensor([0])
    for bad in (torch.tensor([0, 6]), torch.tensor([-1])):
        with pytest.raises(DataError, match=r"columns must lie between 0 and 5, got -?\d to -?\d"):
            structure.select_entries(*matrix, (4, 6), inside, bad.clamp_max(6))
        with pytest.raises(DataError, match="rows must lie between 0 and 3"):
            structure.select_entries(*matrix, (4, 6), bad, inside)
        with pytest.raises(DataError, match="rows must lie between 0 and 3"):
            structure.columns_of_rows(*matrix[:2], (4, 6), bad)
    with pytest.raises(DataError, match=r"rows must be a list of positions, got torch\.bool"):
        structure.columns_of_rows(*matrix[:2], (4, 6), torch.ones(4, dtype=torch.bool))
    with pytest.raises(DataError, match=r"up to 2147483647 rows and columns, got \[3, 4294967296\]"):
        structure.check_size((3, 2**32))
