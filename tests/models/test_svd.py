import copy
from collections.abc import Callable

import pytest
import torch

from wtawp.base import DataError, rng
from wtawp.core import select
from wtawp.graphs import load, low_rank_operator, sparse_features, stratified
from wtawp.models import GCNSVD
from wtawp.training import fit

X = (torch.rand(12, 9, generator=rng("x")) < 0.3).double()
PAIRS = torch.tensor([[i, j] for i in range(12) for j in range(i + 1, 12) if (i * i + 2 * j) % 3 == 1]).T
EDGES = torch.cat([PAIRS, PAIRS.flip(0)], 1)
WEIGHT = torch.rand(EDGES.shape[1], generator=rng("w"), dtype=torch.float64) + 0.5


def small(seed: int = 0, **options: float) -> GCNSVD:
    options = {"rank": 4, **options}
    return GCNSVD(9, 3, hidden=(5,), generator=rng("init", seed), **options).double()


def test_logits_and_gradients_by_dense_algebra() -> None:
    model = small().eval()
    adjacency = torch.zeros(12, 12, dtype=torch.float64)
    adjacency[EDGES[1], EDGES[0]] = WEIGHT
    u, s, v = torch.linalg.svd(adjacency)
    cut = (u[:, :4] * s[:4]) @ v[:4] + torch.eye(12)
    scale = cut.sum(1).rsqrt()
    assert scale.isfinite().all()
    a_hat, (first, last) = scale[:, None] * cut * scale, model.convs
    expected = a_hat @ (a_hat @ X @ first.weight + first.bias).relu() @ last.weight + last.bias
    found = [
        [logits, *torch.autograd.grad(logits.logsumexp(1).sum(), list(model.parameters()))]
        for logits in (model(X, EDGES, WEIGHT), expected)
    ]
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


def test_an_operator_or_sparse_features_may_stand_in() -> None:
    model = small().eval()
    expected = model(X, EDGES)
    torch.testing.assert_close(model(X, low_rank_operator(EDGES, None, 12, torch.float64, 4)), expected)
    torch.testing.assert_close(model(sparse_features(X), EDGES), expected)
    torch.testing.assert_close(model(*model.prepare(X, EDGES, None)), expected)
    torch.testing.assert_close(copy.deepcopy(model)(X, EDGES), expected)


@pytest.mark.parametrize("hidden", [(), (5,), (5, 4)])
def test_some_rows_have_the_loss_and_gradients_of_the_whole_graph(
    hidden: tuple[int, ...], check_rows: Callable[..., None]
) -> None:
    model, rows = GCNSVD(9, 3, hidden=hidden, rank=4, generator=rng("init")).double(), torch.tensor([7, 2, 9])
    check_rows(model, X, EDGES, rows)


def test_a_stack_computes_what_its_members_compute(check_stack: Callable[..., None]) -> None:
    check_stack([small(i) for i in range(3)], X, EDGES)


def test_it_learns_and_its_first_layer_is_perturbed() -> None:
    data = load("citation")
    model = GCNSVD(data.num_features, 7, generator=rng("init"))
    assert select(model) == ("convs.0.weight",)
    result = fit(model, data, stratified(data.y, seed=0), seed=0, epochs=40)
    assert result.loss["train"] < 0.7 * result.history["train_loss"][0]


def test_bad_arguments_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="rank must be >= 1, got 0"):
        small(rank=0)
    with pytest.raises(ValueError, match=r"dropout must lie in \[0, 1\), got 1"):
        small(dropout=1.0)
    with pytest.raises(DataError, match="a graph without edges"):
        small()(X, EDGES[:, :0])
    with pytest.raises(DataError, match=r"entries must lie inside a matrix of shape \[12, 12\]"):
        small()(X, EDGES + 5)
    with pytest.raises(ValueError, match="no gradient with respect to edge weights"):
        small()(X, EDGES, WEIGHT.clone().requires_grad_())
