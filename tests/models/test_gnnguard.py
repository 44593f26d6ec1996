import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from wtawp.base import DataError, rng
from wtawp.graphs import sparse_features
from wtawp.models import GNNGuard

X = torch.randn(12, 9, generator=rng("x"), dtype=torch.float64)
PAIRS = torch.tensor([[i, j] for i in range(12) for j in range(i + 1, 12) if (i + 2 * j) % 3]).T
EDGES = torch.cat([PAIRS, PAIRS.flip(0)], 1)


def small(**options: float) -> GNNGuard:
    return GNNGuard(9, 3, hidden=(5,), generator=rng("init"), **options).double().eval()


def slow_logits(model: GNNGuard, x: Tensor, edges: Tensor, weight: Tensor, threshold: float) -> Tensor:
    """Dense and edge by edge, by the formulas."""
    n, all_edges = len(x), dict(zip(map(tuple, edges.T.tolist()), weight, strict=True))
    alive = all_edges
    for layer, conv in enumerate(model.convs):
        alive = alive if model.reuses_pruned else all_edges
        cosine = {
            (j, i): x[i] @ x[j] / (x[i].norm() * x[j].norm()) if x[i].norm() * x[j].norm() > 0 else x.new_zeros(())
            for j, i in alive
        }
        alive = {edge: w for edge, w in alive.items() if cosine[edge] >= threshold}
        rows = []
        for i in range(n):
            into = [edge for edge in alive if edge[1] == i]
            total = sum(alive[edge] * cosine[edge] for edge in into)
            degree = sum(alive[edge] for edge in into)
            row = [x.new_zeros(())] * n
            for edge in into:
                row[edge[0]] = alive[edge] * torch.exp(alive[edge] * cosine[edge] / total)
            row[i] = torch.exp(1 / (x.new_ones(()) + degree))
            rows.append(torch.stack(row))
        w = torch.stack(rows)
        scale = w.sum(1).rsqrt()
        x = (scale[:, None] * w * scale) @ x @ conv.weight + conv.bias
        x = x.relu() if layer + 1 < len(model.convs) else x
    return x


@pytest.mark.parametrize("reuses_pruned", [True, False])
@pytest.mark.parametrize("threshold", [0.02, 0.1, 0.3])
def test_logits_and_gradients_by_the_formulas(threshold: float, reuses_pruned: bool) -> None:
    model = small(threshold=threshold, reuses_pruned=reuses_pruned)
    weight = (torch.rand(EDGES.shape[1], generator=rng("w")).double() + 0.5).requires_grad_()
    found = [
        [logits, *torch.autograd.grad(logits.logsumexp(1).sum(), [*model.parameters(), weight])]
        for logits in (model(X, EDGES, weight), slow_logits(model, X, EDGES, weight, threshold))
    ]
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)
    ones = torch.ones(EDGES.shape[1]).double()
    torch.testing.assert_close(model(X, EDGES), slow_logits(model, X, EDGES, ones, threshold), rtol=0, atol=1e-9)


def test_edges_that_the_first_layer_prunes_may_come_back() -> None:
    by_code, by_paper = small(threshold=0.3), small(threshold=0.3, reuses_pruned=False)
    assert not torch.allclose(by_code(X, EDGES), by_paper(X, EDGES))


def test_an_edge_between_dissimilar_nodes_is_as_good_as_none() -> None:
    x = X.abs()
    x[3] = -x[5]
    model, pair = small(), torch.tensor([[3, 5], [5, 3]])
    torch.testing.assert_close(
        model(x, torch.cat([EDGES[:, EDGES.amin(0) > 5], pair], 1)), model(x, EDGES[:, EDGES.amin(0) > 5])
    )


def test_edge_weights_of_0_and_1_take_edges_away() -> None:
    model, kept = small(), torch.rand(EDGES.shape[1], generator=rng("kept")) < 0.6
    torch.testing.assert_close(model(X, EDGES, kept.double()), model(X, EDGES[:, kept]))
    assert model(X, EDGES[:, :0]).isfinite().all()


def test_the_weights_follow_features_and_edges() -> None:
    model, ones = small(), torch.ones(EDGES.shape[1]).double()
    changed = X.clone()
    for _ in range(2):
        torch.testing.assert_close(model(changed, EDGES), slow_logits(model, changed, EDGES, ones, 0.1))
        changed[0] = -changed[0]


def test_sparse_features_and_copies_give_the_same(tmp_path: Path) -> None:
    model, x = small(), X * (X > 0.3)
    x[4] = 0
    expected = model(x, EDGES)
    for arguments in ((sparse_features(x), EDGES), (x.to_sparse(), EDGES), model.prepare(x, EDGES, None)):
        torch.testing.assert_close(model(*arguments), expected, rtol=0, atol=1e-9)
    rows = torch.tensor([7, 2])
    torch.testing.assert_close(model(*model.prepare(x, EDGES, rows)), expected[rows], rtol=0, atol=1e-9)
    torch.testing.assert_close(copy.deepcopy(model)(x, EDGES), expected)
    torch.save(model, tmp_path / "model.pt")
    torch.testing.assert_close(torch.load(tmp_path / "model.pt", weights_only=False)(x, EDGES), expected)


def test_a_stack_computes_what_its_members_compute(check_stack: Callable[..., None]) -> None:
    members = [GNNGuard(9, 3, hidden=(5,), generator=rng("init", i)).double() for i in range(3)]
    check_stack(members, X, EDGES)


def test_it_learns_its_first_layer_is_perturbed_and_it_can_be_attacked(
    check_defence_learns: Callable[..., None],
) -> None:
    check_defence_learns(GNNGuard)


def test_many_together_end_as_each_alone(check_many_end_as_alone: Callable[..., None]) -> None:
    check_many_end_as_alone(GNNGuard)


def test_bad_arguments_say_what_is_wrong() -> None:
    with pytest.raises(DataError, match="GNNGuard needs features that neighbours share"):
        GNNGuard(12, 3, generator=rng("init"))(torch.eye(12), EDGES)
    with pytest.raises(ValueError, match=r"threshold must lie in \[0, 1\], got 2"):
        small(threshold=2)
    with pytest.raises(ValueError, match="reuses_pruned must be True or False, got 1"):
        small(reuses_pruned=1)
    with pytest.raises(ValueError, match=r"dropout must lie in \[0, 1\), got 1"):
        small(dropout=1.0)
    with pytest.raises(DataError, match=r"entries must lie inside a matrix of shape \[3, 3\]"):
        small()(X[:3], EDGES)
