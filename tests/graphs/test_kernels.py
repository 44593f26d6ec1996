import pytest
import torch

from wtawp.base import rng
from wtawp.graphs import kernels, sparse_features


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("values_stack", "dense_stack"), [(1, 1), (1, 3), (3, 1), (3, 3)])
def test_every_kernel_multiplies(compiled: bool, dtype: torch.dtype, values_stack: int, dense_stack: int) -> None:
    g = rng("kernel")
    matrix = torch.randn(9, 6, generator=g) * (torch.rand(9, 6, generator=g) < 0.7)
    matrix[4] = 0  # an empty row
    operator = sparse_features(matrix)
    values = torch.randn(values_stack, len(operator.values), generator=g, dtype=dtype)
    dense = torch.randn(dense_stack, 6, 5, generator=g, dtype=dtype)
    found = kernels.multiply(operator.indptr, operator.indices, values, dense, compiled=compiled)
    places = (operator.rows, operator.indices.long())
    filled = torch.stack([torch.zeros(9, 6, dtype=dtype).index_put(places, v) for v in values])
    torch.testing.assert_close(found, filled @ dense)


def test_a_transposed_dense_matrix_is_no_trap() -> None:
    operator = sparse_features(torch.eye(4))
    dense = torch.arange(16.0).view(4, 4).T[None]
    assert torch.equal(kernels.multiply(operator.indptr, operator.indices, operator.values[None], dense), dense)


@pytest.mark.parametrize("gathered", [1, 50, 1 << 18])
def test_inner_products_are_taken_some_at_a_time(gathered: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "GATHERED", (gathered, gathered))
    g = rng("inner products")
    left, right = torch.randn(3, 5, 4, generator=g), torch.randn(6, 4, generator=g)
    rows, cols = torch.randint(5, (20,), generator=g), torch.randint(6, (20,), generator=g)
    expected = torch.einsum("bnh,mh->bnm", left, right)[:, rows, cols]
    torch.testing.assert_close(kernels.inner_products(rows, cols, left, right), expected)
    assert kernels.inner_products(rows[:0], cols[:0], left, right).shape == (3, 0)


def test_inner_products_are_taken_entry_by_entry() -> None:
    left, right = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), torch.tensor([[[5.0, 6.0], [7.0, 8.0]]])
    assert kernels.inner_products(torch.tensor([0, 1]), torch.tensor([1, 0]), left, right).tolist() == [[23.0, 39.0]]


@pytest.mark.parametrize("pointers", [torch.int32, torch.int64])
@pytest.mark.parametrize("width", [1, 16, 83])
@pytest.mark.parametrize("size", [9, 300])
def test_a_block_is_multiplied_to_the_bits_of_its_parts(size: int, width: int, pointers: torch.dtype) -> None:
    g = rng("block", size, width)
    matrix = torch.randn(size, size, generator=g) * (torch.rand(size, size, generator=g) < 0.5)
    matrix[1] = 0  # an empty row; with 300 rows there are more entries than are collected at a time
    operator, dense = sparse_features(matrix), torch.randn(size, width, generator=g)
    nodes = torch.randperm(size, generator=g)
    rows = torch.cat([torch.tensor([1]), nodes[nodes != 1][: size // 2]])
    for parts in ([size // 2], [size // 4, size // 4, size // 3], [size]):
        cols = torch.cat([part.sort().values for part in nodes[: sum(parts)].split(parts)])
        arrays = operator.indptr.to(pointers), operator.indices, operator.values
        product = kernels.multiply_block(*arrays, rows, cols, dense)
        block = operator.select(rows, cols)
        expected = kernels.multiply(block.indptr, block.indices, block.values[None], dense[cols][None])[0]
        torch.testing.assert_close(expected, matrix[rows][:, cols] @ dense[cols], rtol=1e-4, atol=1e-4)
        if kernels.HAS_NUMBA:
            assert product is not None
            assert torch.equal(product, expected)


def test_a_block_without_a_compiled_loop_is_left_to_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    operator, dense = sparse_features(torch.eye(20)), torch.ones(20, 3)
    arrays, rows, cols = (operator.indptr, operator.indices, operator.values), torch.arange(5), torch.arange(20)
    assert kernels.multiply_block(*arrays, rows, cols.flip(0), dense) is None  # columns in any order
    assert kernels.multiply_block(*arrays, rows, cols, dense.double()) is None
    assert kernels.multiply_block(*arrays, rows, cols, dense.T.contiguous().T) is None
    assert kernels.multiply_block(*arrays, rows, cols, dense.clone().requires_grad_()) is None
    monkeypatch.setattr(kernels, "HAS_NUMBA", False)
    assert kernels.multiply_block(*arrays, rows, cols, dense) is None
