import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from wtawp.base import DataError, rng
from wtawp.core import select
from wtawp.graphs import load, sparse_features, stratified
from wtawp.models import GCNJaccard
from wtawp.training import fit

X = (torch.rand(12, 9, generator=rng("x")) < 0.3).double()
PAIRS = torch.tensor([[i, j] for i in range(12) for j in range(i + 1, 12) if (i + 2 * j) % 3]).T
EDGES = torch.cat([PAIRS, PAIRS.flip(0)], 1)


def small(**options: float) -> GCNJaccard:
    return GCNJaccard(9, 3, hidden=(5,), generator=rng("init"), **options).double().eval()


def dense_logits(model: GCNJaccard, x: Tensor, weight: Tensor, threshold: float) -> Tensor:
    """Slowly, with sets."""
    words = [set(row.nonzero()[:, 0].tolist()) for row in x]
    adjacency = torch.eye(len(x), dtype=x.dtype)
    for (i, j), w in zip(EDGES.T.tolist(), weight, strict=True):
        if len(words[i] & words[j]) / max(len(words[i] | words[j]), 1) >= threshold:
            adjacency[j, i] = w
    scale = adjacency.sum(1).rsqrt()
    a_hat = scale[:, None] * adjacency * scale
    first, last = model.gcn.convs
    hidden = (a_hat @ x @ first.weight + first.bias).relu()
    return a_hat @ hidden @ last.weight + last.bias


@pytest.mark.parametrize("threshold", [0.01, 0.2, 0.4])
def test_logits_and_gradients_by_dense_algebra(threshold: float) -> None:
    model = small(threshold=threshold)
    weight = (torch.rand(EDGES.shape[1], generator=rng("w")).double() + 0.5).requires_grad_()
    found = []
    for logits in (model(X, EDGES, weight), dense_logits(model, X, weight, threshold)):
        wanted = [*model.parameters(), weight]
        found.append([logits, *torch.autograd.grad(logits.logsumexp(1).sum(), wanted)])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)
    ones = torch.ones(EDGES.shape[1])
    torch.testing.assert_close(model(X, EDGES), dense_logits(model, X, ones, threshold), rtol=0, atol=1e-9)


def test_the_operator_follows_the_features_and_the_edges() -> None:
    model, other = small(threshold=0.2), X.roll(1, 0)
    ones = torch.ones(EDGES.shape[1])
    for x in (X, other, X):
        torch.testing.assert_close(model(x, EDGES), dense_logits(model, x, ones, 0.2), rtol=0, atol=1e-9)
    changed = X.clone()
    model(changed, EDGES)
    changed[0] = 1 - changed[0]
    torch.testing.assert_close(model(changed, EDGES), dense_logits(model, changed, ones, 0.2), rtol=0, atol=1e-9)


def test_sparse_features_give_the_same() -> None:
    model = small(threshold=0.2)
    for x in (sparse_features(X), X.to_sparse()):
        torch.testing.assert_close(model(x, EDGES), model(X, EDGES), rtol=0, atol=1e-9)
    torch.testing.assert_close(model(*model.prepare(X, EDGES, None)), model(X, EDGES), rtol=0, atol=1e-9)


def test_blocks_give_the_loss_and_gradients_of_the_whole_graph(check_rows: Callable[..., None]) -> None:
    data = load("citation")
    rows, x = torch.tensor([3, 700, 12, 1999]), data.x.double()
    model = GCNJaccard(data.num_features, 7, generator=rng("init")).double()
    check_rows(model, x, data.edge_index, rows)


def test_a_stack_computes_what_its_members_compute(check_stack: Callable[..., None]) -> None:
    members = [GCNJaccard(9, 3, hidden=(5,), generator=rng("init", i)).double() for i in range(3)]
    check_stack(members, X, EDGES)


def test_it_learns_and_its_first_layer_is_perturbed() -> None:
    data = load("citation")
    model = GCNJaccard(data.num_features, 7, generator=rng("init"))
    assert select(model) == ("gcn.convs.0.weight",)
    result = fit(model, data, stratified(data.y, seed=0), seed=0, epochs=40)
    assert result.loss["train"] < 0.7 * result.history["train_loss"][0]


def test_it_can_be_copied_and_saved(tmp_path: Path) -> None:
    model = small(threshold=0.2)
    expected = model(X, EDGES)
    torch.testing.assert_close(copy.deepcopy(model)(X, EDGES), expected)
    torch.save(model, tmp_path / "model.pt")
    torch.testing.assert_close(torch.load(tmp_path / "model.pt", weights_only=False)(X, EDGES), expected)


def test_bad_arguments_say_what_is_wrong() -> None:
    model = GCNJaccard(12, 3, generator=rng("init"))
    with pytest.raises(DataError, match=r"all \d+ edges .* the filter needs features that neighbours share"):
        model(torch.eye(12), EDGES)
    with pytest.raises(DataError, match="edges must join nodes 0 to 2, got 0 to 11"):
        model(torch.eye(12)[:3], EDGES)
    with pytest.raises(ValueError, match=r"threshold must lie in \[0, 1\], got 2"):
        small(threshold=2)
    with pytest.raises(ValueError, match=r"dropout must lie in \[0, 1\), got 1"):
        small(dropout=1.0)
    assert model(torch.eye(12), EDGES[:, :0]).isfinite().all()
