"""Checks that every model must pass; tests of a model ask for them as fixtures and hand them the model."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from wtawp.base import rng
from wtawp.models.dropout import masks

CheckRows = Callable[[nn.Module, Tensor, Tensor, Tensor], None]
CheckStack = Callable[[Sequence[nn.Module], Tensor, Tensor], None]
CheckModel = Callable[[nn.Module], None]


def assert_equal(first: Sequence[Tensor], second: Sequence[Tensor]) -> None:
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


@pytest.fixture(scope="session")
def check_rows() -> CheckRows:
    """What is prepared for some rows has the loss and gradients of the whole graph, under the same masks."""

    def check(model: nn.Module, x: Tensor, edges: Tensor, rows: Tensor) -> None:
        results = []
        for arguments, taken in ((model.prepare(x, edges, rows), slice(None)), ((x, edges), rows)):
            with masks(torch.tensor(12345)):  # the same, whether a node is one of four or one of two thousand
                loss = model(*arguments)[taken].logsumexp(1).sum()
            results.append([loss, *torch.autograd.grad(loss, list(model.parameters()))])
        assert_equal(*results)

    return check


@pytest.fixture(scope="session")
def check_stack() -> CheckStack:
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
def check_edge_weights() -> CheckModel:
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
def check_dropout() -> Callable[[nn.Module, Tensor, Tensor], None]:
    """Dropout works in training, and only there."""

    def check(model: nn.Module, x: Tensor, edges: Tensor) -> None:
        assert torch.equal(model.eval()(x, edges), model(x, edges))
        with torch.random.fork_rng():
            model.train()
            assert not torch.equal(model(x, edges), model(x, edges))

    return check
