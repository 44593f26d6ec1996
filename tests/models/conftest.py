"""Checks that every model must pass; tests of a model ask for them as fixtures and hand them the model."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from wtawp.attacks import prbcd
from wtawp.base import rng
from wtawp.core import AwpConfig, select
from wtawp.graphs import citation, stratified
from wtawp.models.dropout import masks
from wtawp.training import evaluate, fit, fit_many

Check = Callable[..., None]
Build = Callable[..., nn.Module]  # the class of a defence: widths, options, generator -> model


def assert_equal(first: Sequence[Tensor], second: Sequence[Tensor]) -> None:
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


@pytest.fixture(scope="session")
def check_rows() -> Check:
    """What is prepared for some rows has the loss and gradients of the whole graph, under the same masks."""

    def check(model: nn.Module, x: Tensor, edges: Tensor, rows: Tensor, *, with_extra_loss: bool = False) -> None:
        results = []
        for arguments, taken in ((model.prepare(x, edges, rows), slice(None)), ((x, edges), rows)):
            with masks(torch.tensor(12345)):  # the same, whether a node is one of four or one of two thousand
                logits, extra = model(*arguments, with_extra_loss=True) if with_extra_loss else (model(*arguments), 0)
            loss = logits[taken].logsumexp(1).sum() + extra
            results.append([loss, *torch.autograd.grad(loss, list(model.parameters()))])
        assert_equal(*results)

    return check


@pytest.fixture(scope="session")
def check_stack() -> Check:
    """A stack of models computes what its members compute."""

    def check(members: Sequence[nn.Module], x: Tensor, edges: Tensor) -> None:
        keys = torch.arange(7, 7 + len(members))
        with masks(keys):
            together = functional_call(members[0], stack_module_state(list(members)), (x, edges))
        for i, member in enumerate(members):
            with masks(keys[i]):
                torch.testing.assert_close(member(x, edges), together[i], rtol=0, atol=1e-9)

    return check


@pytest.fixture(scope="session")
def check_edge_weights() -> Check:
    """Edge weights of 0 and 1 take edges away, and gradients by edge weights are finite differences (5 features)."""

    def check(model: nn.Module) -> None:
        g = rng("weights")
        x = torch.randn(7, 5, generator=g, dtype=torch.float64)
        pairs = torch.triu_indices(7, 7, 1)[:, ::2]
        edges = torch.cat([pairs, pairs.flip(0)], 1)
        kept = torch.rand(edges.shape[1], generator=g) < 0.6
        torch.testing.assert_close(model(x, edges, kept.double()), model(x, edges[:, kept]))
        torch.testing.assert_close(model(x, edges, torch.ones(len(kept)).double()), model(x, edges))
        weight = torch.rand(len(kept), generator=g, dtype=torch.float64) + 0.1
        assert torch.autograd.gradcheck(lambda w: model(x, edges, w), weight.requires_grad_())

    return check


@pytest.fixture(scope="session")
def check_dropout() -> Check:
    """Dropout works in training, and only there."""

    def check(model: nn.Module, x: Tensor, edges: Tensor) -> None:
        assert torch.equal(model.eval()(x, edges), model(x, edges))
        with torch.random.fork_rng():
            model.train()
            assert not torch.equal(model(x, edges), model(x, edges))

    return check


@pytest.fixture(scope="session")
def check_defence_learns() -> Check:
    """A defence learns, its first layer is perturbed, and it can be attacked."""

    def check(build: Build) -> None:
        data = citation(seed=0, num_nodes=200, num_words=60, topicality=0.6)
        split = stratified(data.y, seed=0, train=0.2, val=0.2)
        model = build(60, 7, hidden=(8,), generator=rng("init"))
        assert select(model) == ("convs.0.weight",)
        result = fit(model, data, split, seed=0, awp=AwpConfig(rho=0.3, lam=0.5), epochs=80)
        assert sum(result.history["gap"]) > 0
        assert result.loss["train"] < 0.7 * result.history["train_loss"][0]
        options = {"nodes": split.test, "labels": data.y, "seed": 0, "steps": 15, "block_size": 3000, "loss": "ce"}
        flips = prbcd(data, model, budget=0.1, **options)
        assert evaluate(model, flips.apply(data), split.test)[0] > evaluate(model, data, split.test)[0]

    return check


@pytest.fixture(scope="session")
def check_many_end_as_alone() -> Check:
    """Models that are trained together end as each does alone."""

    def check(build: Build) -> None:
        data = citation(seed=0, num_nodes=100, num_words=30, topicality=0.6)
        data.x, split = data.x.double(), stratified(data.y, seed=0, train=0.2, val=0.2)
        awp = AwpConfig(rho=0.3, lam=0.5)
        models, alone = ([build(30, 7, hidden=(8,), generator=rng(i)).double() for i in range(3)] for _ in range(2))
        fit_many(models, data, split, seeds=[10, 11, 12], awp=awp, epochs=10)
        for i, model in enumerate(alone):
            fit(model, data, split, seed=10 + i, awp=awp, epochs=10)
            assert_equal(list(model.parameters()), list(models[i].parameters()))

    return check
