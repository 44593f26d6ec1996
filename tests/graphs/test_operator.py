from dataclasses import replace

import pytest
import torch
from torch import Tensor

from wtawp.base import DataError, rng
from wtawp.graphs import Operator, gcn_operator, load, sparse_features, spmm, structure


def test_an_operator_is_its_dense_matrix_and_so_is_its_transpose(random_matrix: Tensor) -> None:
    dense = random_matrix
    operator = sparse_features(dense)
    assert torch.equal(operator.to_dense(), dense)
    assert torch.equal(operator.T.to_dense(), dense.T)
    assert torch.equal(operator.T.T.to_dense(), dense)
    assert operator.indices.dtype == operator.indptr.dtype == torch.int32
    rows, cols = torch.tensor([4, 0, 6]), torch.tensor([2, 1])
    assert torch.equal(operator.select(rows, cols).to_dense(), dense[rows][:, cols])
    assert torch.equal(operator.to(torch.float32).to_dense(), dense.float())


def test_entries_in_one_place_are_summed_and_outside_the_matrix_refused() -> None:
    rows, cols = torch.tensor([1, 1, 0]), torch.tensor([0, 0, 1])
    assert Operator.from_entries(rows, cols, torch.tensor([1.0, 2.0, 4.0]), (2, 2)).to_dense().tolist() == [
        [0, 4],
        [3, 0],
    ]
    for bad in (torch.tensor([1, 1, 5]), torch.tensor([-1, 1, 0])):
        with pytest.raises(DataError, match=r"entries must lie inside a matrix of shape \[2, 2\], got rows"):
            Operator.from_entries(bad, cols, torch.ones(3), (2, 2))


def test_the_transpose_is_built_once_when_it_is_first_used(
    random_matrix: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, transpose = [], structure.transpose
    monkeypatch.setattr(structure, "transpose", lambda *parts: built.append(parts) or transpose(*parts))
    operator = sparse_features(random_matrix)
    other = replace(operator, values=2 * operator.values)  # the same structure
    assert spmm(operator, random_matrix.T).shape == (7, 7)
    assert not built
    x = random_matrix.T.clone().requires_grad_()
    for matrix in (operator, other, other.T.T):
        (gradient,) = torch.autograd.grad(spmm(matrix, x).sum(), x)
        torch.testing.assert_close(gradient, matrix.to_dense().T @ torch.ones(7, 7, dtype=torch.float64))
    assert torch.equal(operator.order[operator.back], torch.arange(len(operator.values)))
    assert torch.equal(operator.T.order, operator.back)
    assert torch.equal(operator.T.back, operator.order)
    assert len(built) == 1


@pytest.mark.parametrize("first", ["inference mode", "torch.func.grad"])
def test_a_transpose_that_was_built_anywhere_serves_training(random_matrix: Tensor, first: str) -> None:
    operator = sparse_features(random_matrix)
    x = random_matrix.T.contiguous()

    def square(x: Tensor) -> Tensor:
        return spmm(operator, x).square().sum()

    if first == "inference mode":
        with torch.inference_mode():
            assert torch.equal(operator.T.to_dense(), random_matrix.T)
    else:
        torch.testing.assert_close(torch.func.grad(square)(x), 2 * random_matrix.T @ random_matrix @ x)
    leaf = x.clone().requires_grad_()
    square(leaf).backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(leaf.grad, 2 * random_matrix.T @ random_matrix @ x)


def test_an_operator_built_inside_a_transform_is_the_one_built_outside() -> None:
    data, kept = load("wine"), []

    def degrees(weight: Tensor) -> Tensor:
        kept.append(gcn_operator(data.edge_index, None, 178))
        return gcn_operator(data.edge_index, weight, 178).values.sum()

    weight = torch.rand(data.num_edges, generator=rng("weight"))
    leaf = weight.clone().requires_grad_()
    (expected,) = torch.autograd.grad(degrees(leaf), leaf)
    torch.testing.assert_close(torch.func.grad(degrees)(weight), expected)
    outside, inside = kept
    assert torch.equal(outside.to_dense(), inside.to_dense())
    x = torch.rand(178, 3, generator=rng("x"))
    assert torch.equal(spmm(outside, x), spmm(inside, x))


def test_int64_pointers_give_the_bits_of_int32_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def identity_and_random() -> list[Operator]:
        g = rng("int64")
        rows, cols = torch.randint(30, (2, 300), generator=g)  # some twice
        some = Operator.from_entries(rows, cols, torch.rand(300, generator=g), (30, 30))
        return [
            Operator.identity(30, torch.float32, torch.device("cpu")),
            some,
            some.T,
            some.select(rows[:1], cols[:1]),
        ]

    def measured(operator: Operator) -> list[Tensor]:
        x = torch.rand(operator.shape[1], 70, generator=rng("x"), requires_grad=True)
        values = operator.values.clone().requires_grad_()
        product = spmm(operator, x, values)
        gradients = torch.autograd.grad(product.square().sum(), [x, values])
        return [product.detach(), *gradients, spmm(operator, x.detach()), operator.to_dense()]

    narrow = [(operator, measured(operator)) for operator in identity_and_random()]
    assert all(o.indptr.dtype == o.t_indptr.dtype == torch.int32 for o, _ in narrow)
    monkeypatch.setattr(structure, "INT32_ENTRIES", -1)
    for wide, (_, expected) in zip(identity_and_random(), narrow, strict=True):
        assert wide.indptr.dtype == wide.t_indptr.dtype == torch.int64
        assert wide.indices.dtype == wide.t_indices.dtype == torch.int32
        assert all(torch.equal(p, q) for p, q in zip(measured(wide), expected, strict=True))


def test_a_matrix_that_int32_cannot_number_is_refused() -> None:
    nothing = torch.empty(0, dtype=torch.int64)
    with pytest.raises(DataError, match=r"can have up to 2147483647 rows and columns, got \[3000000000, 2\]"):
        Operator.from_entries(nothing, nothing, torch.empty(0), (3_000_000_000, 2))
