import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from wtawp.base import DataError, rng
from wtawp.graphs import Operator, citation, gcn_operator, sparse_features, spmm
from wtawp.models import GCN, SoftMedianGCN
from wtawp.models.soft_median import median_columns, soft_median_entries

X = torch.randn(12, 9, generator=rng("x"), dtype=torch.float64)
PAIRS = torch.tensor([[i, j] for i in range(12) for j in range(i + 1, 12) if (i + 2 * j) % 3]).T
EDGES = torch.cat([PAIRS, PAIRS.flip(0)], 1)


def small(**options: float) -> SoftMedianGCN:
    return SoftMedianGCN(9, 3, hidden=(5,), generator=rng("init"), **options).double().eval()


def slow_median(weights: Tensor, values: Tensor) -> float:
    """The first value, in order, at which half of the weight is reached."""
    so_far = 0.0
    for v, w in sorted(zip(values.tolist(), weights.tolist(), strict=True)):
        so_far += w
        if so_far >= float(weights.sum()) / 2 * (1 - 1e-9):
            return v
    raise AssertionError


def slow_aggregate(a: Tensor, h: Tensor, temperature: float) -> Tensor:  # [n, m], [m, d] -> [n, d]
    """Node by node, by the formula."""
    out = []
    for row in a:
        near = row.nonzero()[:, 0]
        picks = [slow_median(row[near].detach(), h[near, k].detach()) for k in range(h.shape[1])]
        holders = [int(next(j for j in near if h[j, k] == v)) for k, v in enumerate(picks)]
        median = torch.stack([h[j, k] for k, j in enumerate(holders)])
        distance = (h[near] - median).norm(dim=1) / h.shape[1] ** 0.5
        share = row[near] * torch.softmax(-distance / temperature, 0)
        out.append(row.sum() * (share / share.sum()) @ h[near])
    return torch.stack(out)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("shape", [(7, 7), (5, 9)])
def test_medians_are_those_of_a_loop(seed: int, shape: tuple[int, int]) -> None:
    g = rng("median", seed)
    matrix = torch.rand(shape, generator=g) * (torch.rand(shape, generator=g) < 0.6)
    matrix[:, 0] += 0.1  # no row is empty
    if seed == 0:
        matrix = (matrix > 0).float()  # ties
    dense = torch.randn(2, shape[1], 4, generator=g)
    operator = sparse_features(matrix)
    found = dense.take_along_dim(median_columns(operator, dense), -2)
    for b in range(2):
        for i, row in enumerate(matrix):
            near = row > 0
            expected = [slow_median(row[near], dense[b, near, k]) for k in range(4)]
            assert found[b, i].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("temperature", [0.1, 0.5, 3.0])
def test_logits_and_gradients_are_those_of_a_loop(temperature: float) -> None:
    model = small(temperature=temperature)
    weight = (torch.rand(EDGES.shape[1], generator=rng("w")).double() + 0.5).requires_grad_()

    def slow(w: Tensor) -> Tensor:
        a = gcn_operator(EDGES, w, 12, torch.float64).to_dense()
        first, last = model.convs
        hidden = (slow_aggregate(a, X @ first.weight, temperature) + first.bias).relu()
        return slow_aggregate(a, hidden @ last.weight, temperature) + last.bias

    found = [
        [logits, *torch.autograd.grad(logits.logsumexp(1).sum(), [*model.parameters(), weight])]
        for logits in (model(X, EDGES, weight), slow(weight))
    ]
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


def test_limits_of_the_temperature() -> None:
    model = small(temperature=1e9)
    gcn = GCN(9, 3, hidden=(5,), generator=rng("init")).double().eval()
    torch.testing.assert_close(model(X, EDGES), gcn(X, EDGES), rtol=0, atol=1e-7)
    operator, dense = gcn_operator(EDGES, None, 12, torch.float64), X[:, :1].contiguous()
    spread = spmm(operator, dense, soft_median_entries(operator, dense, temperature=1e-9))
    median = dense.take_along_dim(median_columns(operator, dense), 0)
    torch.testing.assert_close(spread, median * operator.to_dense().sum(1, keepdim=True))


def test_an_outlier_hardly_moves_it() -> None:
    star = torch.tensor([[1, 2, 3, 4, 5], [0, 0, 0, 0, 0]])
    operator = gcn_operator(star, None, 6, torch.float64)
    dense = torch.tensor([[0.0], [0.1], [-0.1], [0.05], [-0.05], [1000.0]], dtype=torch.float64)
    assert spmm(operator, dense)[0].abs() > 50
    assert spmm(operator, dense, soft_median_entries(operator, dense, temperature=0.5))[0].abs() < 0.1


def test_edge_weights_of_0_and_1_take_edges_away() -> None:
    model, kept = small(), torch.rand(EDGES.shape[1], generator=rng("kept")) < 0.6
    torch.testing.assert_close(model(X, EDGES, kept.double()), model(X, EDGES[:, kept]))
    assert model(X, EDGES[:, :0]).isfinite().all()


def test_sparse_features_and_copies_give_the_same(tmp_path: Path) -> None:
    model, x = small(), X * (X > 0.5)
    expected = model(x, EDGES)
    for arguments in ((sparse_features(x), EDGES), (x.to_sparse(), EDGES), model.prepare(x, EDGES, None)):
        torch.testing.assert_close(model(*arguments), expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(copy.deepcopy(model)(x, EDGES), expected)
    torch.save(model, tmp_path / "model.pt")
    torch.testing.assert_close(torch.load(tmp_path / "model.pt", weights_only=False)(x, EDGES), expected)


def test_blocks_give_the_loss_and_gradients_of_the_whole_graph(check_rows: Callable[..., None]) -> None:
    data = citation(seed=0, num_nodes=300, num_words=40)
    rows, x = torch.tensor([3, 70, 12, 199]), data.x.double()
    model = SoftMedianGCN(40, 7, hidden=(8,), generator=rng("init")).double()
    check_rows(model, x, data.edge_index, rows)


def test_a_stack_computes_what_its_members_compute(check_stack: Callable[..., None]) -> None:
    members = [SoftMedianGCN(9, 3, hidden=(5,), generator=rng("init", i)).double() for i in range(3)]
    check_stack(members, X, EDGES)


def test_it_learns_its_first_layer_is_perturbed_and_it_can_be_attacked(
    check_defence_learns: Callable[..., None],
) -> None:
    check_defence_learns(SoftMedianGCN)


def test_many_together_end_as_each_alone(check_many_end_as_alone: Callable[..., None]) -> None:
    check_many_end_as_alone(SoftMedianGCN)


def test_bad_arguments_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="temperature must be positive, got 0"):
        small(temperature=0)
    with pytest.raises(ValueError, match=r"dropout must lie in \[0, 1\), got 1"):
        small(dropout=1.0)
    with pytest.raises(DataError, match=r"entries must lie inside a matrix of shape \[3, 3\]"):
        small()(X[:3], EDGES)
    assert isinstance(small().prepare(X, EDGES, None)[1], Operator)
