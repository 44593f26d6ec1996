import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state
from torch.nn import functional as F

from wtawp.base import DataError, NotPerturbableError, rng
from wtawp.core import WTAWP, AwpConfig
from wtawp.graphs import load, sparse_features, stratified
from wtawp.models import GCN, RGCN
from wtawp.models.capabilities import HasExtraLoss
from wtawp.models.dropout import masks, normal
from wtawp.training import fit, fit_many

X = (torch.rand(12, 9, generator=rng("x")) < 0.3).double()
PAIRS = torch.tensor([[i, j] for i in range(12) for j in range(i + 1, 12) if (i * i + 2 * j) % 3 == 1]).T
EDGES = torch.cat([PAIRS, PAIRS.flip(0)], 1)


def small(seed: int = 0, **options: object) -> RGCN:
    return RGCN(9, 3, **{"hidden": (5,), "generator": rng("init", seed), **options}).double()


def dense(model: RGCN, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance of the logits and the extra loss, by the formulas."""
    adjacency = torch.eye(len(x), dtype=x.dtype).index_put((EDGES[1], EDGES[0]), weight)
    by_root, by_degree = (adjacency.sum(1).pow(p) for p in (-0.5, -1.0))
    a_mean = by_root[:, None] * adjacency * by_root
    a_variance = by_degree[:, None] * adjacency * by_degree
    mean, variance, extra = x, x, None
    for conv in model.convs:
        mean, variance = F.elu(mean @ conv.mean_weight), (variance @ conv.variance_weight).relu()
        if extra is None:
            kl = 0.5 * (mean**2 + variance - (variance + 1e-8).log()).mean(1).sum()
            extra = 5e-4 * kl + 5e-4 * ((conv.mean_weight**2).sum() + (conv.variance_weight**2).sum())
        attention = torch.exp(-model.convs[0].gamma * variance)
        mean, variance = a_mean @ (mean * attention), a_variance @ (variance * attention**2)
    return mean, variance, extra


@pytest.mark.parametrize("hidden", [(), (5,), (5, 4)])
def test_logits_extra_loss_and_gradients_by_dense_algebra(hidden: tuple[int, ...]) -> None:
    model = small(hidden=hidden, gamma=0.7).eval()
    weight = (torch.rand(EDGES.shape[1], generator=rng("w")).double() + 0.5).requires_grad_()
    mean, _, term = dense(model, X, weight)
    found = [
        [logits, extra, *torch.autograd.grad(logits.logsumexp(1).sum() + extra, wanted, materialize_grads=True)]
        for wanted in [
            [model.convs[0].mean_weight, model.convs[0].variance_weight, model.convs[-1].mean_weight, weight]
        ]
        for logits, extra in (model(X, EDGES, weight, with_extra_loss=True), (mean, term))
    ]
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)
    torch.testing.assert_close(model.extra_loss(X, EDGES, weight), term, rtol=0, atol=1e-9)


def test_in_training_logits_are_drawn_from_the_distribution_and_repeat_with_the_key() -> None:
    model = small(dropout=0.0)
    mean, variance, _ = dense(model, X, torch.ones(EDGES.shape[1], dtype=torch.float64))
    with masks(torch.tensor(3)):
        noise = normal(mean)
    for _ in range(2):
        with masks(torch.tensor(3)):
            logits = model(X, EDGES)
        torch.testing.assert_close(logits, mean + noise * (variance + 1e-8).sqrt(), rtol=0, atol=1e-9)
    with masks(torch.tensor(4)):
        assert not torch.allclose(model(X, EDGES), logits)


def test_with_sample_logits_are_drawn_in_evaluation_too_and_repeat_with_the_key() -> None:
    model = small(sample=True).eval()
    mean, variance, _ = dense(model, X, torch.ones(EDGES.shape[1], dtype=torch.float64))
    with masks(torch.tensor(3)):
        noise = normal(mean)
    for _ in range(2):
        with masks(torch.tensor(3)):
            logits = model(X, EDGES)
        torch.testing.assert_close(logits, mean + noise * (variance + 1e-8).sqrt(), rtol=0, atol=1e-9)
    torch.testing.assert_close(small().eval()(X, EDGES), mean, rtol=0, atol=1e-9)


def test_sparse_features_give_the_same() -> None:
    model = small().eval()
    for arguments in ((sparse_features(X), EDGES), model.prepare(X, EDGES, None)):
        torch.testing.assert_close(model(*arguments), model(X, EDGES), rtol=0, atol=1e-9)
    torch.testing.assert_close(copy.deepcopy(model)(X, EDGES), model(X, EDGES))


@pytest.mark.parametrize("hidden", [(), (5,), (5, 4)])
def test_some_rows_have_the_loss_and_gradients_of_the_whole_graph(
    hidden: tuple[int, ...], check_rows: Callable[..., None]
) -> None:
    model, rows = small(hidden=hidden), torch.tensor([7, 2, 9])
    check_rows(model, X, EDGES, rows, with_extra_loss=True)


def test_a_stack_computes_what_its_members_compute() -> None:
    members, keys = [small(i) for i in range(3)], torch.tensor([7, 8, 9])
    for x in (X, sparse_features(X)):
        with masks(keys):
            logits, extra = functional_call(
                members[0], stack_module_state(members), (x, EDGES), {"with_extra_loss": True}
            )
        assert extra.shape == (3,)
        for i, member in enumerate(members):
            with masks(keys[i]):
                alone = member(x, EDGES, with_extra_loss=True)
            torch.testing.assert_close(alone, (logits[i], extra[i]), rtol=0, atol=1e-9)


@pytest.mark.parametrize("sample", [False, True])
def test_many_learn_together_as_each_alone(sample: bool) -> None:
    data = load("citation")
    split = stratified(data.y, seed=0)
    data.x = data.x.double()
    pairs = [
        [RGCN(data.num_features, 7, sample=sample, generator=rng("init", i)).double() for i in range(2)]
        for _ in range(2)
    ]
    together = fit_many(pairs[0], data, split, seeds=[0, 1], epochs=15)
    for i, model in enumerate(pairs[1]):
        alone = fit(model, data, split, seed=i, epochs=15)
        for p, q in zip(model.parameters(), pairs[0][i].parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=0, atol=1e-9)
        assert (alone.epoch, alone.accuracy) == (together[i].epoch, together[i].accuracy)
        assert alone.history["train_loss"][-1] < alone.history["train_loss"][0]


def test_it_says_that_it_has_an_extra_loss() -> None:
    assert isinstance(small(), HasExtraLoss)
    assert not isinstance(GCN(9, 3, generator=rng("init")), HasExtraLoss)


def test_it_cannot_be_perturbed() -> None:
    data, model = load("wine"), RGCN(13, 3, generator=rng("init"))
    says = r"weights of the model \(RGCN\) are distributions and cannot be perturbed; use lam=0"
    with pytest.raises(NotPerturbableError, match=says):
        WTAWP(model, rho=1.0, lam=0.5)
    with pytest.raises(NotPerturbableError, match=says):
        fit(model, data, stratified(data.y, seed=0), seed=0, awp=AwpConfig(rho=1.0, lam=0.5), epochs=1)
    assert WTAWP(model, rho=1.0, lam=0.0).perturbed == {}


def test_bad_arguments_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="kl must be >= 0, got -1"):
        small(kl=-1)
    with pytest.raises(ValueError, match=r"dropout must lie in \[0, 1\), got 1"):
        small(dropout=1.0)
    with pytest.raises(DataError, match=r"entries must lie inside a matrix of shape \[12, 12\]"):
        small()(X, EDGES + 5)
    assert small()(X, EDGES[:, :0]).isfinite().all()
