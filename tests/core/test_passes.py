"""The passes of one step: whose backward differentiates, what hooks meet, and what stays behind."""

import copy
import threading

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


@pytest.mark.parametrize("lam", [0.4, 0.0, "auto"])
def test_the_returned_loss_is_the_natural_one_also_if_backward_divides_it_in_place(lam: float | str) -> None:
    def backward(loss: Tensor) -> None:
        loss /= 4
        loss.backward()

    model, plain = network(), network()
    expected = WTAWP(plain, rho=1.0, lam=lam).backward(
        lambda: plain(X).square().mean(), backward=lambda loss: (loss / 4).backward()
    )
    met: list[float] = []
    awp = WTAWP(model, rho=1.0, lam=lam)
    awp.register_step_hook(lambda step: met.append(step.natural_loss))
    assert torch.equal(awp.backward(lambda: model(X).square().mean(), backward=backward), expected)
    assert met == [float(expected)]
    assert lam != "auto" or awp.state_dict()["auto"]["first_loss"] == float(expected)
    torch.testing.assert_close(gradients(model), gradients(plain))


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


def test_gradients_of_others_do_not_matter_where_reentrant_checkpointing_hides_leaves() -> None:
    """Neither what is NaN after an overflow, nor what has no values, nor what another thread computes meanwhile."""
    model, outer = network(), nn.Linear(5, 1)
    overflown, empty, other = nn.Linear(3, 3), nn.Linear(3, 3, device="meta"), nn.Linear(3, 3)
    overflown.weight.grad = torch.full((3, 3), torch.nan)
    empty.weight.grad = torch.empty(3, 3, device="meta")

    def train(_: Tensor) -> None:
        thread = threading.Thread(target=lambda: other(torch.ones(1, 3)).sum().backward())
        thread.start()
        thread.join()

    outer.weight.register_hook(train)
    both = nn.ModuleList([model, outer])
    WTAWP(both, rho=0.8, lam=0.7, layers=["0.0.weight"]).backward(
        lambda: outer(checkpoint(lambda h: model[0](h), X.clone().requires_grad_(), use_reentrant=True)).square().mean()
    )
    assert overflown.weight.grad.isnan().all()
    assert torch.equal(other.weight.grad, 2 * torch.ones(3, 3))  # the hook ran in both passes
    assert model[0].weight.grad is not None
