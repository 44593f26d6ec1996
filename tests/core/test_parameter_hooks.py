"""Hooks of parameters: they run once a step, with the complete gradient, at the original weights."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from wtawp.core import WTAWP


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


X = torch.randn(7, 6, generator=torch.Generator().manual_seed(1))


def gradients(model: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize("has_prior", [False, True])
def test_hooks_run_once_with_the_complete_gradient_at_the_original_weights(has_prior: bool) -> None:
    expected, model = network(), network()
    met: dict[str, tuple[Tensor, Tensor]] = {}
    for name, p in model.named_parameters():

        def hook(p: Tensor, name: str = name) -> None:
            assert name not in met
            met[name] = p.detach().clone(), p.grad.clone()

        if has_prior:
            p.grad = torch.ones_like(p)
            expected.get_parameter(name).grad = torch.ones_like(p)
        p.register_post_accumulate_grad_hook(hook)
    for m in (expected, model):
        WTAWP(m, rho=1.0, lam=0.3).backward(lambda m=m: m(X).square().mean())
    for name, p in expected.named_parameters():
        assert torch.equal(met[name][0], p)
        torch.testing.assert_close(met[name][1], p.grad)
    assert all(len(p._post_accumulate_grad_hooks) == 1 for p in model.parameters())


@pytest.mark.parametrize("balance", [None, 2.0])
def test_hooks_of_a_parameter_outside_of_the_model_run_once_with_its_whole_gradient(balance: float | None) -> None:
    model, plain = network(), network()
    scale, other = (torch.ones((), requires_grad=True) for _ in range(2))
    WTAWP(plain, rho=1.0, lam=0.3, balance=balance).backward(lambda: (plain(X) * other).square().mean())
    met: list[Tensor] = []
    scale.register_post_accumulate_grad_hook(lambda p: met.append(p.grad.clone()))
    awp = WTAWP(model, rho=1.0, lam=0.3, balance=balance)
    if balance is not None:
        with pytest.raises(ValueError, match="remove the post-accumulate-grad hooks or use balance=None"):
            awp.backward(lambda: (model(X) * scale).square().mean())
        assert not met
        assert len(scale._post_accumulate_grad_hooks) == 1
        return
    awp.backward(lambda: (model(X) * scale).square().mean())
    assert len(met) == 1
    torch.testing.assert_close(met[0], other.grad)
    assert len(scale._post_accumulate_grad_hooks) == 1


def test_hooks_run_also_for_what_the_loss_at_perturbed_weights_does_not_use() -> None:
    model = network()
    theta = model[0].weight.detach().clone()
    met: dict[str, Tensor] = {}
    for name, p in model.named_parameters():
        p.register_post_accumulate_grad_hook(lambda p, name=name: met.update({name: p.grad.clone()}))

    def closure() -> Tensor:
        h = model(X) if torch.equal(model[0].weight, theta) else torch.tanh(model[0](X))
        return h.square().mean()

    WTAWP(model, rho=1.0, lam=0.4, layers="first").backward(closure)
    assert met.keys() == dict(model.named_parameters()).keys()
    plain = network()
    plain(X).square().mean().backward()
    torch.testing.assert_close(met["2.weight"], 0.6 * plain[2].weight.grad)


def test_a_hook_that_removes_itself_runs_once_and_does_not_come_back() -> None:
    model, calls = network(), []

    def hook(p: Tensor) -> None:
        calls.append(p)
        handle.remove()

    handle = model[0].weight.register_post_accumulate_grad_hook(hook)
    awp = WTAWP(model, rho=1.0, lam=0.3)
    for _ in range(3):
        awp.backward(lambda: model(X).square().mean())
    assert len(calls) == 1
    assert not model[0].weight._post_accumulate_grad_hooks


def test_a_hook_that_steps_for_parameters_that_are_still_moved_is_refused() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model[0].bias.register_post_accumulate_grad_hook(lambda _: optimizer.step())
    before = copy.deepcopy(model)
    with pytest.raises(ValueError, match="changed other parameters than its own while they were perturbed"):
        WTAWP(model, rho=0.5, lam=0.7, layers="*weight").backward(lambda: model(X).square().mean())
    assert torch.equal(model[2].weight, before[2].weight)
    assert model[2].weight.grad is None


def test_a_step_of_the_optimizer_in_the_last_of_all_hooks_is_the_one_after_backward() -> None:
    expected, model = network(), network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    waiting = set(model.parameters())

    def hook(p: Tensor) -> None:
        waiting.discard(p)
        if not waiting:
            optimizer.step()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)
    for m in (expected, model):
        WTAWP(m, rho=0.5, lam=0.7, layers="*weight").backward(lambda m=m: m(X).square().mean())
    torch.optim.SGD(expected.parameters(), lr=0.1).step()
    for p, q in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(p, q)


@pytest.mark.parametrize("has_hook", [False, True])
def test_a_weight_that_reentrant_checkpointing_uses_several_times(has_hook: bool) -> None:
    torch.manual_seed(0)
    expected = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 3)])
    model = copy.deepcopy(expected)

    def closure(m: nn.ModuleList, *, is_checkpointed: bool) -> Tensor:
        h = X.clone().requires_grad_()
        for _ in range(3):
            h = checkpoint(m[0], h, use_reentrant=True).tanh() if is_checkpointed else m[0](h).tanh()
        return m[1](h).square().mean()

    if has_hook:
        model[0].weight.register_post_accumulate_grad_hook(lambda _: None)
        with pytest.raises(ValueError, match=r"received its gradient twice.*use_reentrant=False"):
            WTAWP(model, rho=0.8, lam=0.7).backward(lambda: closure(model, is_checkpointed=True))
        assert torch.equal(model[0].weight, expected[0].weight)
        return
    WTAWP(model, rho=0.8, lam=0.7).backward(lambda: closure(model, is_checkpointed=True))
    WTAWP(expected, rho=0.8, lam=0.7).backward(lambda: closure(expected, is_checkpointed=False))
    torch.testing.assert_close(gradients(model), gradients(expected))
