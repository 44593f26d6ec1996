"""The passes of one step: whose backward differentiates, what hooks meet, and what stays behind."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from wtawp.core import WTAWP
from wtawp.core import passes as module
from wtawp.core.passes import ascent_gradient


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


X = torch.randn(7, 6, generator=torch.Generator().manual_seed(1))


def gradients(model: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def test_the_factor_of_backward_scales_the_gradient_and_nothing_else() -> None:
    results = []
    for factor in (1.0, 256.0):
        model = network()
        awp = WTAWP(model, rho=0.01, lam=0.4, steps=3, projection="ball")  # depends on the gradient's length
        loss = awp.backward(
            lambda model=model: model(X).square().mean(), backward=lambda loss, f=factor: (loss * f).backward()
        )
        results.append((loss, gradients(model) / factor))
    assert results[0][0] == results[1][0]
    torch.testing.assert_close(results[0][1], results[1][1], rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("backward", "message"),
    [
        (lambda _: None, "gradients passed the loss 0 times"),
        (lambda loss: [loss.backward(retain_graph=True) for _ in range(2)], "gradients passed the loss 2 times"),
    ],
)
def test_a_backward_that_differentiates_not_once_is_refused_and_nothing_stays(backward: object, message: str) -> None:
    model = network()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=message):
        WTAWP(model, rho=1.0, lam=0.5).backward(lambda: model(X).square().mean(), backward=backward)
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(v, before[n]) for n, v in model.state_dict().items())


def test_a_backward_that_steps_the_optimizer_is_refused() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def backward(loss: Tensor) -> None:
        loss.backward()
        optimizer.step()

    with pytest.raises(ValueError, match=r"call optimizer.step\(\) after awp.backward\(\)"):
        WTAWP(model, rho=1.0, lam=0.5).backward(lambda: model(X).square().mean(), backward=backward)


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


def test_natural_gradients_that_are_recovered_equal_those_that_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for large in (1, 1 << 20):
        monkeypatch.setattr(module, "LARGE", large)
        model = network()
        for _ in range(2):  # the second call adds to the first one's
            WTAWP(model, rho=1.0, lam=0.3, layers="all").backward(lambda model=model: model(X).square().mean())
        results.append(gradients(model))
    assert not torch.equal(*results)  # one of them was recovered
    assert (results[0] - results[1]).norm() < 2e-7 * results[1].norm()


@pytest.mark.parametrize("weight", [0.0, torch.nan])
def test_a_gradient_of_weights_that_cannot_move_is_not_recovered(
    monkeypatch: pytest.MonkeyPatch, weight: float
) -> None:
    monkeypatch.setattr(module, "LARGE", 1)
    model = network()
    with torch.no_grad():
        model[0].weight.fill_(weight)
    WTAWP(model, rho=1.0, lam=0.3).backward(lambda: model(X).square().mean())
    gradient = model[0].weight.grad
    assert gradient.isnan().all() if weight != 0 else gradient.isfinite().all() and gradient.any()


def test_an_overflow_leaves_the_weights_at_theta_and_a_gradient_that_is_not_finite() -> None:
    model = network()
    weights = []

    def closure() -> Tensor:
        weights.append(model[0].weight.detach().clone())
        return model(X).square().mean()

    WTAWP(model, rho=1.0, lam=0.5).backward(closure, backward=lambda loss: (loss * 3e38 * 3e38).backward())
    assert torch.equal(*weights)
    assert not gradients(model).isfinite().any()


def test_the_ascent_is_dense_and_wide() -> None:
    p = torch.ones(2, dtype=torch.float16)
    sparse = torch.tensor([0.0, 6.0]).to_sparse()
    result = ascent_gradient({p: torch.full((2,), 8.0, dtype=torch.float16)}, torch.tensor(2.0))
    assert result[p].dtype == torch.float32
    assert result[p].tolist() == [4, 4]
    assert ascent_gradient({p: sparse}, None)[p].tolist() == [0, 6]


def test_every_second_step_is_plain_and_its_counter_is_saved() -> None:
    model, plain = network(), network()
    awp = WTAWP(model, rho=1.0, lam=0.5, every=2)
    plain(X).square().mean().backward()
    expected = gradients(plain)
    is_plain = []
    for _ in range(4):
        model.zero_grad()
        awp.backward(lambda: model(X).square().mean())
        is_plain.append(torch.equal(gradients(model), expected))
    assert is_plain == [False, True, False, True]
    model.zero_grad()
    awp.backward(lambda: model(X).square().mean())  # the next one is plain
    resumed = WTAWP(model, rho=1.0, lam=0.5, every=2)
    resumed.load_state_dict(awp.state_dict())
    model.zero_grad()
    resumed.backward(lambda: model(X).square().mean())
    assert torch.equal(gradients(model), expected)
    with pytest.raises(ValueError, match=r"expected what WTAWP.state_dict\(\) returned"):
        resumed.load_state_dict({"calls": 3})


def test_weights_that_the_forward_pass_itself_changes_stay_changed() -> None:
    model = nn.Sequential(nn.Embedding(4, 3, max_norm=0.5), nn.Linear(3, 2))
    rows, plain = torch.tensor([0, 2]), copy.deepcopy(model)
    plain(rows)
    WTAWP(model, rho=1.0, lam=0.5).backward(lambda: model(rows).square().mean())
    assert torch.equal(model[0].weight, plain[0].weight)
    assert model[0].weight.grad.any()


@pytest.mark.parametrize("options", [{}, {"steps": 2}])
def test_a_loss_that_was_computed_beforehand_is_refused(options: dict[str, int]) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))
    loss = model(torch.ones(4, 2)).square().mean()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match="the closure returned the same loss again; compute it inside"):
        WTAWP(model, rho=0.5, lam=0.5, **options).backward(lambda: loss)
    assert all(torch.equal(before[name], w) for name, w in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_parameters_and_buffers_are_found_under_all_their_names_and_in_the_order_of_the_modules() -> None:
    shared = nn.Linear(3, 3)
    model = nn.Sequential(nn.Sequential(shared, nn.BatchNorm1d(3)), shared, nn.ModuleDict({"head": nn.Linear(3, 2)}))
    model.register_module("nothing", None)
    model[2]["head"].weight = shared.weight  # one parameter under two names
    model[2]["head"].bias.requires_grad_(False)
    passes = module.Passes(model, lambda: model(X).sum())
    by_torch = {n: p for n, p in model.named_parameters(remove_duplicate=False) if p.requires_grad}
    first_names = {n: p for n, p in model.named_parameters() if p.requires_grad}
    assert passes.named.keys() == by_torch.keys() - {"1.weight", "1.bias"}  # a shared module has one name
    assert all(passes.named[n] is by_torch[n] for n in passes.named)
    assert [id(p) for p in passes.parameters] == [id(p) for p in first_names.values()]
    found = [b for slots in passes.state._buffers for b in slots.values()]
    assert [id(b) for b in found] == [id(b) for b in model.buffers()]


def test_the_returned_loss_is_the_natural_one_also_if_backward_divides_it_in_place() -> None:
    def backward(loss: Tensor) -> None:
        loss /= 4
        loss.backward()

    model, plain = network(), network()
    expected = WTAWP(plain, rho=1.0, lam=0.4).backward(
        lambda: plain(X).square().mean(), backward=lambda loss: (loss / 4).backward()
    )
    met: list[float] = []
    awp = WTAWP(model, rho=1.0, lam=0.4)
    awp.register_step_hook(lambda step: met.append(step.natural_loss))
    assert torch.equal(awp.backward(lambda: model(X).square().mean(), backward=backward), expected)
    assert met == [float(expected)]
    torch.testing.assert_close(gradients(model), gradients(plain))


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


@pytest.mark.parametrize("has_prior", [False, True])
def test_a_parameter_outside_of_the_model_that_reentrant_checkpointing_hides_is_refused(has_prior: bool) -> None:
    model, temperature = network(), nn.Parameter(torch.full((6,), 1.3))
    prior = torch.ones(6) if has_prior else None
    temperature.grad = prior

    def closure(use_reentrant: bool) -> Tensor:
        x = X.clone().requires_grad_()
        return checkpoint(lambda h: model(h * temperature), x, use_reentrant=use_reentrant).square().mean()

    awp = WTAWP(model, rho=0.8, lam=0.7)
    with pytest.raises(ValueError, match=r"shape \[6\], which is none of the model's.*use_reentrant=False"):
        awp.backward(lambda: closure(use_reentrant=True))
    assert temperature.grad is prior
    assert prior is None or torch.equal(prior, torch.ones(6))
    assert model[0].weight.grad is None
    temperature.grad = None
    awp.backward(lambda: closure(use_reentrant=False))
    by_hand, plain = network(), nn.Parameter(torch.full((6,), 1.3))
    WTAWP(by_hand, rho=0.8, lam=0.7).backward(lambda: by_hand(X * plain).square().mean())
    torch.testing.assert_close(temperature.grad, plain.grad)
