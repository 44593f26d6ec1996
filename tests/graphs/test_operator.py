import pytest
import torch
from torch import Tensor

from wtawp.base import DataError, rng
from wtawp.graphs import Operator, sparse_features


def random_matrix(n: int = 7, m: int = 5, seed: int = 0) -> Tensor:
    g = rng("matrix", seed)
    return torch.randn(n, m, generator=g, dtype=torch.float64) * (torch.rand(n, m, generator=g) < 0.4)


def test_an_operator_is_its_dense_matrix_and_so_is_its_transpose() -> None:
    dense = random_matrix()
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
