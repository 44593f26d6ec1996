import pytest
import torch
from torch import Tensor

from wtawp.base import DataError, rng
from wtawp.graphs import LowRank, low_rank_operator

PAIRS = torch.tensor([[i, j] for i in range(12) for j in range(i + 1, 12) if (i * i + 2 * j) % 3 == 1]).T
EDGES = torch.cat([PAIRS, PAIRS.flip(0)], 1)
WEIGHT = (
    torch.rand(EDGES.shape[1], generator=rng("w"), dtype=torch.float64) + 0.5
)  # so that no singular values are equal


def dense(weight: Tensor, rank: int) -> Tensor:
    """The formula, written out."""
    adjacency = torch.zeros(12, 12, dtype=torch.float64)
    adjacency[EDGES[1], EDGES[0]] = weight
    u, s, v = torch.linalg.svd(adjacency)
    cut = (u[:, :rank] * s[:rank]) @ v[:rank] + torch.eye(12)
    scale = torch.where(cut.sum(1) > 0, cut.sum(1), torch.inf).rsqrt()
    return scale[:, None] * cut * scale


def low_rank(weight: Tensor = WEIGHT, rank: int = 4) -> LowRank:
    return low_rank_operator(EDGES, weight, 12, torch.float64, rank)


@pytest.mark.parametrize("rank", [1, 4, 11, 12, 50])
def test_it_is_the_dense_formula(rank: int) -> None:
    torch.testing.assert_close(low_rank(rank=rank).to_dense(), dense(WEIGHT, rank), rtol=0, atol=1e-9)


def test_nodes_with_a_row_sum_that_is_not_positive_are_cut_off() -> None:
    signed = WEIGHT * torch.where(torch.arange(len(WEIGHT)) % 4 == 0, -3, 1)
    operator = low_rank(signed)
    assert (operator.diagonal == 0).any()
    torch.testing.assert_close(operator.to_dense(), dense(signed, 4), rtol=0, atol=1e-9)


def test_rows_and_stacks() -> None:
    operator, rows = low_rank(), torch.tensor([7, 2, 9])
    x = torch.randn(3, 12, 5, generator=rng("x"), dtype=torch.float64)
    torch.testing.assert_close(operator @ x, operator.to_dense() @ x)
    torch.testing.assert_close(operator.select(rows) @ x, (operator @ x)[:, rows])
    assert operator.select(rows).shape == (3, 12)


def test_the_same_edges_give_the_same_factors() -> None:
    assert torch.equal(low_rank().left, low_rank().left)


def test_what_has_no_answer_is_refused() -> None:
    with pytest.raises(ValueError, match="has no gradient with respect to edge weights"):
        low_rank(WEIGHT.clone().requires_grad_())
    with pytest.raises(DataError, match="a graph without edges has no singular vectors"):
        low_rank_operator(EDGES[:, :0], None, 12, torch.float64, 4)
