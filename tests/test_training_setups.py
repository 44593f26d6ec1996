"""Training loops as users write them: their own backward, scalers, accumulation, resuming, failures.

Every expected gradient is computed by the loops of `reference_step`, which share no code with the package.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from reference_step import Named, gradients_of, reference_step, relative_error, same_bits, weights_of
from small_training import REFUSAL, X, Y, assert_step, loss_of, network, setting_of
from torch import Tensor, nn
from torch.nn import functional as F

from wtawp.core import WTAWP, AwpConfig

# The caller's own backward


@pytest.mark.parametrize("steps", [1, 3])
def test_the_caller_s_backward_gets_the_unscaled_loss_once_a_pass(steps: int) -> None:
    model, given = network(), []

    def backward(loss: Tensor) -> None:
        given.append(float(loss.detach()))
        (loss * 1024 / 5).backward()

    awp = WTAWP(model, rho=0.4, lam=0.5, steps=steps)
    natural = float(loss_of(model)().detach())
    found = awp.backward(loss_of(model), backward=backward)
    assert float(found) == pytest.approx(natural, rel=1e-12)
    assert not found.requires_grad
    assert len(given) == steps + 1
    assert given[0] == pytest.approx(natural, rel=1e-12)


@pytest.mark.parametrize("projection", ["sphere", "ball"])
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("factor", [1e-3, 0.25, 65536.0])
def test_the_factor_that_arrives_does_not_change_the_perturbation(factor: float, steps: int, projection: str) -> None:
    model = network()
    awp = WTAWP(model, rho=0.2, lam=0.7, steps=steps, projection=projection)
    assert_step(
        model,
        loss_of(model),
        awp,
        run=lambda: awp.backward(loss_of(model), backward=lambda loss: (factor * loss).backward()),
        scaled=lambda loss: factor * loss,
    )


@pytest.mark.parametrize("options", [{"lam": 0.0, "rho": 1.0}, {"lam": 0.5, "rho": 0.0}])
def test_plain_options_with_the_caller_s_backward_are_plain_training(options: dict[str, float]) -> None:
    model, plain, calls = network(), network(), 0

    def closure() -> Tensor:
        nonlocal calls
        calls += 1
        return loss_of(model)()

    WTAWP(model, **options).backward(closure, backward=lambda loss: (loss / 3).backward())
    (loss_of(plain)() / 3).backward()
    assert calls == 1
    assert same_bits(gradients_of(model), gradients_of(plain))


def test_a_backward_that_steps_the_optimizer_is_refused() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def backward(loss: Tensor) -> None:
        loss.backward()
        optimizer.step()

    with pytest.raises(REFUSAL, match="step"):
        WTAWP(model, rho=0.4, lam=0.5).backward(loss_of(model), backward=backward)
    assert not gradients_of(model)


@pytest.mark.parametrize("backward", [lambda _: None, lambda loss: loss.detach()])
def test_a_backward_that_never_differentiates_the_loss_is_refused(backward: Callable[[Tensor], object]) -> None:
    model = network()
    before = weights_of(model)
    with pytest.raises(REFUSAL, match="backward"):
        WTAWP(model, rho=0.4, lam=0.5).backward(loss_of(model), backward=backward)
    assert same_bits(weights_of(model), before)


def test_an_own_perturbation_for_each_rank_is_refused_without_ranks() -> None:
    model = network()
    with pytest.raises(REFUSAL, match="no_sync"):
        WTAWP(model, rho=0.4, lam=0.5).backward(loss_of(model), sync=False)


def test_exact_is_refused_with_the_caller_s_backward() -> None:
    model = network()
    with pytest.raises(REFUSAL, match="exact"):
        WTAWP(model, rho=0.4, lam=0.5, exact=True).backward(loss_of(model), backward=lambda loss: loss.backward())


# Gradient scalers


def half_network() -> nn.Sequential:
    return network().float()


def half_loss(model: nn.Module, size: float = 1.0, dtype: torch.dtype | None = torch.float16) -> Callable[[], Tensor]:
    def closure() -> Tensor:
        with torch.autocast("cpu", dtype or torch.float16, enabled=dtype is not None):
            logits = model(X.float())
        return F.cross_entropy(logits.float(), Y) * size

    return closure


@pytest.mark.parametrize("options", [{}, {"projection": "ball"}, {"steps": 2}])
def test_grad_scaler_in_the_closure_is_refused_and_the_way_that_works_is_named(options: dict[str, Any]) -> None:
    model, scaler = half_network(), torch.amp.GradScaler("cpu")
    before = weights_of(model)
    with pytest.raises(REFUSAL, match=r"backward=lambda \w+: scaler\.scale\(\w+\)\.backward\(\)"):
        WTAWP(model, rho=0.4, lam=0.5, **options).backward(lambda: scaler.scale(half_loss(model)()))
    assert same_bits(weights_of(model), before)
    assert not gradients_of(model)


def test_a_loss_with_a_weight_is_not_taken_for_a_scaled_one() -> None:
    model, scaler = network(), torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(torch.ones(()))
    awp = WTAWP(model, rho=0.4, lam=0.5)
    weight = torch.tensor(2.0, dtype=torch.float64)
    assert_step(model, lambda: loss_of(model)() * weight, awp)


@pytest.mark.parametrize("options", [{}, {"projection": "ball"}, {"steps": 2}])
def test_a_loss_too_small_for_half_precision_is_differentiated_through_the_scaler(options: dict[str, Any]) -> None:
    model, scaler = half_network(), torch.amp.GradScaler("cpu", init_scale=2.0**24)
    awp = WTAWP(model, rho=0.2, lam=0.7, **options)
    awp.backward(half_loss(model, 1e-6), backward=lambda loss: scaler.scale(loss).backward())
    expected = reference_step(model, half_loss(model, 1e-6, None), setting_of(awp)).gradient
    found = {n: g / 2.0**24 for n, g in gradients_of(model).items()}
    assert relative_error(found, expected) <= 1.6e-2


def test_the_loss_form_in_half_precision_is_refused_without_its_scale() -> None:
    model = half_network()
    with pytest.raises(REFUSAL, match="scale"):
        WTAWP(model, rho=0.2, lam=0.7).loss(half_loss(model, 1e-6))


@pytest.mark.parametrize("as_tensor", [False, True])
def test_the_loss_form_in_half_precision_is_right_with_its_scale(as_tensor: bool) -> None:
    model, scaler = half_network(), torch.amp.GradScaler("cpu", init_scale=2.0**24)
    awp = WTAWP(model, rho=0.2, lam=0.7)
    scaler.scale(torch.ones(()))  # the scale exists from the first use on
    scale = torch.tensor(scaler.get_scale()) if as_tensor else scaler.get_scale()
    objective = awp.loss(half_loss(model, 1e-6), scale=scale)
    scaler.scale(objective).backward()
    reference = reference_step(model, half_loss(model, 1e-6, None), setting_of(awp))
    found = {n: g / 2.0**24 for n, g in gradients_of(model).items()}
    assert relative_error(found, reference.gradient) <= 1.6e-2
    assert 0.3e-6 * float(reference.loss) < float(objective.detach()) < 1e-5


def test_double_unscale_clip_grad_norm_after_unscale() -> None:
    """davda54/sam issues 7 and 78: one `unscale_` a step is all that is needed, and the clipped norm is true."""
    model, scaler = network().float(), torch.amp.GradScaler("cpu", init_scale=4096.0)
    optimizer, awp = torch.optim.Adam(model.parameters(), lr=0.01), WTAWP(model, rho=0.4, lam=0.7)
    for _ in range(3):
        optimizer.zero_grad()
        expected = reference_step(model, loss_of(model), setting_of(awp)).gradient
        awp.backward(loss_of(model), backward=lambda loss: scaler.scale(loss).backward())
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        length = torch.cat([g.flatten() for g in expected.values()]).norm()
        assert float(norm) == pytest.approx(float(length), rel=1e-5)
        clipped = {n: g * (0.1 / length) for n, g in expected.items()}
        assert length > 0.1
        assert relative_error(gradients_of(model), clipped) < 1e-4  # clip_grad_norm_ adds 1e-6 to the norm
        scaler.step(optimizer)
        scaler.update()


@pytest.mark.parametrize("pass_number", [1, 2])
@pytest.mark.parametrize("value", [torch.inf, torch.nan])
@pytest.mark.parametrize("lam", [0.7, 1.0])
def test_an_overflow_in_any_pass_makes_the_scaler_skip_and_back_off(pass_number: int, value: float, lam: float) -> None:
    model, scaler = network(nn.BatchNorm1d(6)).float(), torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer, awp = torch.optim.Adam(model.parameters(), lr=0.01), WTAWP(model, rho=0.4, lam=lam)
    before, calls = weights_of(model), 0

    def closure() -> Tensor:
        nonlocal calls
        calls += 1
        return loss_of(model)() * (value if calls == pass_number else 1.0)

    awp.backward(closure, backward=lambda loss: scaler.scale(loss).backward())
    assert same_bits(weights_of(model), before)
    assert not all(g.isfinite().all() for g in gradients_of(model).values())
    scaler.step(optimizer)
    scaler.update()
    assert same_bits(weights_of(model), before)
    assert scaler.get_scale() == 512.0
    assert all(b.isfinite().all() for b in model.buffers())
    optimizer.zero_grad()
    awp.backward(closure, backward=lambda loss: scaler.scale(loss).backward())  # and the next step is healthy
    scaler.step(optimizer)
    assert not same_bits(weights_of(model), before)
    assert all(w.isfinite().all() for w in weights_of(model).values())


def test_a_perturbation_that_is_not_finite_counts_as_zero() -> None:
    model, seen, calls = network(), [], 0

    def closure() -> Tensor:
        nonlocal calls
        calls += 1
        seen.append(weights_of(model))
        return loss_of(model)() * (torch.inf if calls == 1 else 1.0)

    WTAWP(model, rho=0.4, lam=0.7).backward(closure)
    assert same_bits(seen[1], seen[0])


# What users of other libraries complain of


def test_bn_counted_twice() -> None:
    """davda54/sam issue 79: batch norm sees each batch once, in the natural pass."""
    model, plain = network(nn.BatchNorm1d(6)), network(nn.BatchNorm1d(6))
    awp = WTAWP(model, rho=0.4, lam=0.7, steps=2)
    for number in range(1, 4):
        awp.backward(loss_of(model), backward=lambda loss: (loss / 3).backward())
        loss_of(plain)()
        assert int(model[2].num_batches_tracked) == number
        assert same_bits(dict(model.named_buffers()), dict(plain.named_buffers()))


def test_accumulation_refused() -> None:
    """Lightning issue 17650 and timm 1366: micro-batches add up, each with its own perturbation."""
    model = network()
    awp = WTAWP(model, rho=0.4, lam=0.7)
    expected: Named = {}
    for rows in (slice(0, 4), slice(4, 8), slice(8, 12)):
        closure = loss_of(model, X[rows], Y[rows])
        expected = reference_step(
            model, closure, setting_of(awp), scaled=lambda loss: loss / 3, prior=expected
        ).gradient
        awp.backward(closure, backward=lambda loss: (loss / 3).backward())
    assert relative_error(gradients_of(model), expected) < 1e-12


def test_adam_state_lost_and_groups_diverging_after_load() -> None:
    """davda54/sam issue 97: the optimizer is the user's own, so that its state and its groups are all there is."""

    def build() -> tuple[nn.Sequential, torch.optim.Optimizer, Any, WTAWP]:
        model = network()
        groups = [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[2:].parameters(), "lr": 0.01}]
        optimizer = torch.optim.Adam(groups)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        return model, optimizer, scheduler, WTAWP(model, rho=0.4, lam=0.7, every=2)

    def train(parts: tuple[Any, ...], updates: int) -> None:
        model, optimizer, scheduler, awp = parts
        for _ in range(updates):
            optimizer.zero_grad()
            awp.backward(loss_of(model))
            optimizer.step()
            scheduler.step()

    whole, stopped, resumed = build(), build(), build()
    train(whole, 9)
    train(stopped, 5)
    for part, state in zip(resumed, copy.deepcopy([part.state_dict() for part in stopped]), strict=True):
        part.load_state_dict(state)
    train(resumed, 4)
    assert same_bits(weights_of(whole[0]), weights_of(resumed[0]))
    rates = [[g["lr"] for g in parts[1].param_groups] for parts in (whole, resumed)]
    assert rates[0] == rates[1] == [0.1 * 0.5**4, 0.01 * 0.5**4]
    moments = [[s["exp_avg"] for s in parts[1].state.values()] for parts in (whole, resumed)]
    assert len(moments[0]) == 6
    assert all(torch.equal(a, b) for a, b in zip(*moments, strict=True))


# `every`


def test_every_second_call_is_plain() -> None:
    model, plain = network(), network()
    awp, calls = WTAWP(model, rho=0.4, lam=0.7, every=2), []
    loss_of(plain)().backward()
    for number in range(5):
        model.zero_grad()
        expected = reference_step(model, loss_of(model), setting_of(awp)).gradient
        calls.append(0)

        def closure() -> Tensor:
            calls[-1] += 1
            return loss_of(model)()

        awp.backward(closure)
        if number % 2:
            assert same_bits(gradients_of(model), gradients_of(plain))
        else:
            assert relative_error(gradients_of(model), expected) < 1e-12
    assert calls == [2, 1, 2, 1, 2]


def test_the_state_of_every_is_saved_and_loaded() -> None:
    model = network()
    awp, calls = WTAWP(model, rho=0.4, lam=0.7, every=3), []
    for _ in range(2):
        awp.backward(loss_of(model))
    resumed = WTAWP(model, rho=0.4, lam=0.7, every=3)
    resumed.load_state_dict(copy.deepcopy(awp.state_dict()))

    def closure() -> Tensor:
        calls[-1] += 1
        return loss_of(model)()

    for _ in range(4):
        calls.append(0)
        resumed.backward(closure)
    assert calls == [1, 2, 1, 1]


@pytest.mark.parametrize("every", [0, -1, 1.5, "2"])
def test_every_must_be_a_whole_number(every: object) -> None:
    with pytest.raises(ValueError, match="every"):
        AwpConfig(rho=0.4, lam=0.7, every=every)


# Failures


class Stop(BaseException):
    """Like KeyboardInterrupt, not an `Exception`."""


@pytest.mark.parametrize("has_gradients", [False, True])
@pytest.mark.parametrize("place", ["closure", "before backward", "after backward", "in backward"])
@pytest.mark.parametrize("pass_number", [1, 2, 3])
@pytest.mark.parametrize("error", [RuntimeError, Stop])
def test_a_failure_in_any_pass_restores_everything(
    place: str, pass_number: int, has_gradients: bool, error: type[BaseException]
) -> None:
    model = network(nn.BatchNorm1d(6))
    if has_gradients:
        loss_of(model)().backward()
        model[0].bias.grad = None
    awp, calls = WTAWP(model, rho=0.4, lam=0.7, steps=2), 0
    before, identities = copy.deepcopy(model.state_dict()), [(p, p.grad) for p in model.parameters()]
    gradient, buffers = gradients_of(model), list(model.buffers())

    def fail(*_: object) -> None:
        raise error

    def closure() -> Tensor:
        nonlocal calls
        calls += 1
        hidden = model[:2](X)
        if place == "in backward" and calls == pass_number:
            hidden.register_hook(fail)
        loss = F.cross_entropy(model[2:](hidden), Y)
        if place == "closure" and calls == pass_number:
            fail()
        return loss

    def backward(loss: Tensor) -> None:
        if place == "before backward" and calls == pass_number:
            fail()
        (2 * loss).backward()
        if place == "after backward" and calls == pass_number:
            fail()

    with pytest.raises(error):
        awp.backward(closure, backward=backward)
    assert calls == pass_number
    assert same_bits(weights_of(model), {n: before[n] for n, _ in model.named_parameters()}), "weights"
    assert same_bits(model.state_dict(), before), "buffers"
    assert same_bits(gradients_of(model), gradient), "gradients"
    assert all(p is q and p.grad is g for p, (q, g) in zip(model.parameters(), identities, strict=True))
    assert all(a is b for a, b in zip(model.buffers(), buffers, strict=True))
    closure_calls = calls
    assert_step(model, loss_of(model), awp)  # and the object can be used again
    assert calls == closure_calls
