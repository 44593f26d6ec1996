"""The contract of WTAWP against truths that share no code with it: formulas, finite differences, naive loops."""

import contextlib
import copy
import math
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wtawp.base import VanishingGradientWarning, rng
from wtawp.core import AWP, SAM, TAWP, WAWP, WTAWP

N, D, H, C = 12, 4, 5, 3
G = rng("test_awp")
X = torch.randn(N, D, generator=G, dtype=torch.float64)
Y = torch.randint(0, C, (N,), generator=G)


def network(*extra: nn.Module) -> nn.Sequential:
    """A 2-layer net in float64; biases included, so that one sees them left alone."""
    model = nn.Sequential(nn.Linear(D, H), nn.Tanh(), *extra, nn.Linear(H, C)).double()
    g = rng("network")
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=g, dtype=torch.float64))
    return model


def closure_of(model: nn.Module, x: Tensor = X, y: Tensor = Y) -> Callable[[], Tensor]:
    return lambda: F.cross_entropy(model(x), y)


def loss_by_hand(w: list[Tensor], x: Tensor = X, y: Tensor = Y) -> Tensor:
    """The same network and loss from w = [W1, b1, W2, b2], written out."""
    logits = torch.tanh(x @ w[0].T + w[1]) @ w[2].T + w[3]
    return -(logits - logits.exp().sum(1, keepdim=True).log())[torch.arange(len(y)), y].mean()


def gradient_by_hand(w: list[Tensor], x: Tensor = X, y: Tensor = Y) -> list[Tensor]:
    w = [t.detach().clone().requires_grad_() for t in w]
    return list(torch.autograd.grad(loss_by_hand(w, x, y), w))


def delta_by_hand(
    w: list[Tensor], chosen: list[int], rho: float, radius: str, projection: str, steps: int
) -> dict[int, Tensor]:
    moved = [t.clone() for t in w]
    for _ in range(steps):
        moved = [t + g / steps for t, g in zip(moved, gradient_by_hand(moved), strict=True)]
    step = {i: moved[i] - w[i] for i in chosen}
    if radius == "layer":
        limit = {i: rho * w[i].norm() for i in chosen}
        size = {i: step[i].norm() for i in chosen}
    else:
        unit = {i: w[i].abs() + 0.01 if radius == "adaptive" else torch.ones_like(w[i]) for i in chosen}
        step = {i: unit[i] ** 2 * step[i] for i in chosen}
        together = torch.cat([(step[i] / unit[i]).flatten() for i in chosen]).norm()
        limit, size = dict.fromkeys(chosen, torch.tensor(rho, dtype=torch.float64)), dict.fromkeys(chosen, together)
    short = {i: projection == "ball" and size[i] <= limit[i] for i in chosen}
    return {i: step[i] if short[i] else step[i] * (limit[i] / size[i]) for i in chosen}


VARIANTS = {
    "AWP": (AWP, {}, 1.0, [0, 2]),
    "T-AWP": (TAWP, {}, 1.0, [0]),
    "T-AWP last": (TAWP, {"layers": "last"}, 1.0, [2]),
    "W-AWP": (WAWP, {"lam": 0.3}, 0.3, [0, 2]),
    "WT-AWP": (WTAWP, {"lam": 0.7}, 0.7, [0]),
    "all parameters": (WTAWP, {"lam": 0.5, "layers": "*"}, 0.5, [0, 1, 2, 3]),
}
GRID = list(product(VARIANTS, ["layer", "global", "adaptive"], ["sphere", "ball"], [1, 5], [0.01, 0.8]))


@pytest.mark.parametrize(("variant", "radius", "projection", "steps", "rho"), GRID)
def test_algorithm_1_by_hand(variant: str, radius: str, projection: str, steps: int, rho: float) -> None:
    build, options, lam, chosen = VARIANTS[variant]
    model = network()
    w = [p.detach().clone() for p in model.parameters()]
    awp = build(model, rho=rho, radius=radius, projection=projection, steps=steps, **options)

    seen: list[list[Tensor]] = []  # the weights each call of the closure meets

    def closure() -> Tensor:
        seen.append([p.detach().clone() for p in model.parameters()])
        return closure_of(model)()

    returned = awp.backward(closure)

    delta = delta_by_hand(w, chosen, rho, radius, projection, steps)
    perturbed = [t + delta[i] if i in delta else t for i, t in enumerate(w)]
    expected = [lam * a + (1 - lam) * b for a, b in zip(gradient_by_hand(perturbed), gradient_by_hand(w), strict=True)]
    for p, g, before in zip(model.parameters(), expected, w, strict=True):
        torch.testing.assert_close(p.grad, g, rtol=0, atol=1e-12)
        assert torch.equal(p, before)
    assert len(seen) == steps + 1
    torch.testing.assert_close(seen[-1], perturbed, rtol=0, atol=1e-12)
    assert not returned.requires_grad
    assert float(returned) == pytest.approx(float(loss_by_hand(w)), abs=1e-12)

    # and delta is exactly as long as radius and projection say
    found = {i: seen[-1][i] - w[i] for i in chosen}
    if radius == "layer":
        lengths = [(float(found[i].norm()), rho * float(w[i].norm())) for i in chosen]
    else:
        unit = {i: w[i].abs() + 0.01 if radius == "adaptive" else torch.ones_like(w[i]) for i in chosen}
        lengths = [(float(torch.cat([(found[i] / unit[i]).flatten() for i in chosen]).norm()), rho)]
    for got, limit in lengths:
        assert got == pytest.approx(limit, rel=1e-9) if projection == "sphere" else got <= limit * (1 + 1e-9)


@pytest.mark.parametrize(("variant", "radius", "projection", "steps", "rho"), GRID[:: len(GRID) // 24])
def test_loss_has_the_gradient_that_backward_adds(
    variant: str, radius: str, projection: str, steps: int, rho: float
) -> None:
    build, options, lam, _ = VARIANTS[variant]
    model, twin = network(), network()
    options = {"rho": rho, "radius": radius, "projection": projection, "steps": steps, **options}
    natural = build(model, **options).backward(closure_of(model))
    objective = build(twin, **options).loss(closure_of(twin))
    objective.backward()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=0, atol=1e-12)
    assert lam == 1 or objective > (1 - lam) * natural


@pytest.mark.parametrize("balance", [0.1, 1.0, 1e6])
def test_balance_shortens_the_perturbed_gradient_and_only_when_it_is_too_long(balance: float) -> None:
    model = network()
    w = [p.detach().clone() for p in model.parameters()]
    WTAWP(model, rho=2.0, lam=1.0, balance=balance).backward(closure_of(model))
    delta = delta_by_hand(w, [0], 2.0, "layer", "sphere", 1)
    natural = torch.cat([g.flatten() for g in gradient_by_hand(w)])
    perturbed = torch.cat([g.flatten() for g in gradient_by_hand([w[0] + delta[0], *w[1:]])])
    found = torch.cat([p.grad.flatten() for p in model.parameters()])
    expected = perturbed * min(1.0, float(balance * natural.norm() / perturbed.norm()))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
    assert found.norm() <= balance * natural.norm() * (1 + 1e-12)
    free = network()
    WTAWP(free, rho=2.0, lam=1.0).backward(closure_of(free))
    unchanged = all(torch.equal(p.grad, q.grad) for p, q in zip(model.parameters(), free.parameters(), strict=True))
    assert unchanged == (balance == 1e6)


def test_loss_with_balance_has_the_gradient_that_backward_adds() -> None:
    grads = []
    for form in ("backward", "loss"):
        model = network()
        result = getattr(WTAWP(model, rho=5.0, lam=0.5, balance=0.1), form)(closure_of(model))
        if form == "loss":
            result.backward()
        grads.append([p.grad for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))
    with pytest.raises(ValueError, match=r"balance clips gradients, exact=True keeps losses; use backward\(\)"):
        WTAWP(model, rho=1.0, lam=0.5, balance=1.0, exact=True).loss(closure_of(model))


def test_theorem_2_a_minimum_stays_a_minimum_of_the_awp_objective() -> None:
    """Where L has a positive definite Hessian, L(theta + g(theta)) has zero gradient and one as well."""
    model = nn.Sequential(nn.Linear(D, H, bias=False), nn.Linear(H, 1, bias=False)).double()
    minimum = [
        torch.randn(p.shape, generator=rng("minimum", i), dtype=torch.float64) for i, p in enumerate(model.parameters())
    ]
    with torch.no_grad():
        for p, m in zip(model.parameters(), minimum, strict=True):
            p.copy_(m)
    curvature = [
        torch.rand(p.shape, generator=rng("curvature", i), dtype=torch.float64) + 0.2 for i, p in enumerate(minimum)
    ]

    def bowl() -> Tensor:  # its quartic term makes the Hessian vary, its cosine makes it more than a quadratic
        away = [p - m for p, m in zip([model[0].weight, model[1].weight], minimum, strict=True)]
        return sum(
            (c * a**2).sum() / 2 + a.pow(4).sum() - 0.05 * a.sum().cos() for a, c in zip(away, curvature, strict=True)
        )

    awp = AWP(model, rho=10.0, projection="ball", exact=True)
    parameters = list(model.parameters())
    gradient = torch.autograd.grad(awp.loss(bowl), parameters, create_graph=True)
    flat = torch.cat([g.flatten() for g in gradient])
    assert flat.abs().max() < 1e-14
    rows = [torch.cat([h.flatten() for h in torch.autograd.grad(f, parameters, retain_graph=True)]) for f in flat]
    assert torch.linalg.eigvalsh(torch.stack(rows)).min() > 0.1


def perturbed_loss(w: list[Tensor], chosen: list[int], rho: float, radius: str, projection: str, steps: int) -> float:
    delta = delta_by_hand(w, chosen, rho, radius, projection, steps)
    return float(loss_by_hand([t + delta[i] if i in delta else t for i, t in enumerate(w)]))


@pytest.mark.parametrize(
    ("radius", "projection", "steps"), list(product(["layer", "global", "adaptive"], ["sphere", "ball"], [1, 3]))
)
def test_exact_agrees_with_finite_differences_of_the_perturbed_loss(radius: str, projection: str, steps: int) -> None:
    model = network()
    w = [p.detach().clone() for p in model.parameters()]
    rho = 0.3 if projection == "sphere" else 0.01
    lam, settings = 0.6, ([0], rho, radius, projection, steps)
    WTAWP(model, rho=rho, lam=lam, radius=radius, projection=projection, steps=steps, exact=True).backward(
        closure_of(model)
    )
    for i, p in enumerate(model.parameters()):
        direction = torch.randn(p.shape, generator=rng("direction", i), dtype=torch.float64)
        ends = []
        for sign in (1, -1):
            at = [t + sign * 1e-6 * direction if j == i else t for j, t in enumerate(w)]
            ends.append(lam * perturbed_loss(at, *settings) + (1 - lam) * float(loss_by_hand(at)))
        assert float((p.grad * direction).sum()) == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=2e-8, rel=1e-6)


def test_on_the_sphere_the_first_order_error_shrinks_linearly_with_rho() -> None:
    def error(rho: float) -> float:
        grads = []
        for exact in (True, False):
            model = network()
            AWP(model, rho=rho, exact=exact).backward(closure_of(model))
            grads.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
        return float((grads[0] - grads[1]).norm())

    errors = [error(rho) for rho in (1e-2, 1e-3, 1e-4)]
    assert errors[0] / errors[1] == pytest.approx(10, rel=0.1)
    assert errors[1] / errors[2] == pytest.approx(10, rel=0.01)


class Stop(BaseException):
    """Like KeyboardInterrupt, not an `Exception`."""


@pytest.mark.parametrize("form", ["backward", "loss"])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, Stop])
@pytest.mark.parametrize("fails_at", [1, 2, 3])
@pytest.mark.parametrize("exact", [False, True])
def test_weights_and_grad_are_as_before_when_the_closure_fails(
    form: str, error: type[BaseException], fails_at: int, exact: bool
) -> None:
    model = network(nn.BatchNorm1d(H).double())
    awp = WTAWP(model, rho=1.0, lam=0.5, steps=2, exact=exact)
    closure_of(model)().backward()
    before = copy.deepcopy(model.state_dict())
    identities = [(p, p.grad, p.grad.clone()) for p in model.parameters()]
    buffers = list(model.buffers())
    calls = 0

    def closure() -> Tensor:
        nonlocal calls
        calls += 1
        loss = closure_of(model)()
        if calls == fails_at:
            raise error
        return loss

    with pytest.raises(error):
        getattr(awp, form)(closure)
    after = model.state_dict()
    weights = [n for n, _ in model.named_parameters()]
    assert all(torch.equal(after[n], before[n]) for n in weights)
    for p, (q, grad, value) in zip(model.parameters(), identities, strict=True):
        assert p is q
        assert p.grad is grad
        assert torch.equal(grad, value)
    assert all(a is b for a, b in zip(model.buffers(), buffers, strict=True))


@pytest.mark.parametrize("steps", [1, 4])
def test_weights_return_bit_for_bit_in_float32_and_after_a_nan_loss(steps: int) -> None:
    model = network().float()
    for scale in (1.0, math.nan):
        before = [p.detach().clone() for p in model.parameters()]
        loss = WTAWP(model, rho=3.0, lam=0.5, layers="*", steps=steps).backward(
            lambda s=scale: s * closure_of(model, X.float())()
        )
        assert math.isnan(loss) == math.isnan(scale)
        assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
        assert all(p.grad.isnan().any() == math.isnan(scale) for p in model.parameters())


@pytest.mark.parametrize("form", ["backward", "loss"])
@pytest.mark.parametrize("steps", [1, 3])
def test_batch_norm_is_updated_by_the_clean_pass_alone(form: str, steps: int) -> None:
    model, plain = network(nn.BatchNorm1d(H).double()), network(nn.BatchNorm1d(H).double())
    loss = getattr(WTAWP(model, rho=2.0, lam=0.5, steps=steps), form)(closure_of(model))
    if form == "loss":
        loss.backward()  # would fail if the graph's buffers had been written to
    closure_of(plain)().backward()
    for (name, a), (_, b) in zip(model.named_buffers(), plain.named_buffers(), strict=True):
        assert torch.equal(a, b), name
    assert model[2].num_batches_tracked == 1


@pytest.mark.parametrize("setting", [{"lam": 0.0, "rho": 1.0}, {"lam": 0.5, "rho": 0.0}])
@pytest.mark.parametrize("form", ["backward", "loss"])
def test_lam_zero_and_rho_zero_are_plain_training_bit_for_bit(setting: dict[str, float], form: str) -> None:
    ours, plain = network(nn.Dropout(0.5)).float(), network(nn.Dropout(0.5)).float()
    calls = 0

    def closure() -> Tensor:
        nonlocal calls
        calls += 1
        return closure_of(ours, X.float())()

    with torch.random.fork_rng():
        torch.manual_seed(1)
        loss = getattr(WTAWP(ours, **setting), form)(closure)
        if form == "loss":
            loss.backward()
        state = torch.get_rng_state()
        torch.manual_seed(1)
        expected = closure_of(plain, X.float())()
        expected.backward()
        assert torch.equal(state, torch.get_rng_state())
    assert calls == 1
    assert torch.equal(loss, expected)
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(ours.parameters(), plain.parameters(), strict=True))


def test_plain_settings_train_what_cannot_be_perturbed() -> None:
    model = nn.Linear(D, C).double()
    model.weights_are_distributions = True
    WTAWP(model, rho=1.0, lam=0.0).backward(closure_of(model))
    assert model.weight.grad.any()


def test_accumulation_adds_each_micro_batch_s_own_gradient() -> None:
    parts = [(X[:5], Y[:5]), (X[5:], Y[5:])]
    model = network()
    awp = WTAWP(model, rho=1.0, lam=0.7)
    for x, y in parts:
        awp.backward(closure_of(model, x, y))
    alone = []
    for x, y in parts:
        other = network()
        WTAWP(other, rho=1.0, lam=0.7).backward(closure_of(other, x, y))
        alone.append([p.grad for p in other.parameters()])
    for p, a, b in zip(model.parameters(), *alone, strict=True):
        torch.testing.assert_close(p.grad, a + b, rtol=0, atol=1e-15)


def test_grad_is_added_to_in_place_and_laid_out_like_the_weight() -> None:
    model = network()
    awp = WTAWP(model, rho=1.0, lam=0.7)
    awp.backward(lambda: F.cross_entropy(torch.tanh(X @ model[0].weight.T) @ model[3 - 1].weight.T, Y))
    held = model[0].weight.grad
    assert held.stride() == model[0].weight.stride()
    assert model[0].bias.grad is None  # the closure did not use it, so it is left alone as backward() would
    once = held.clone()
    awp.backward(lambda: F.cross_entropy(torch.tanh(X @ model[0].weight.T) @ model[2].weight.T, Y))
    assert model[0].weight.grad is held
    torch.testing.assert_close(held, 2 * once)


def test_a_parameter_outside_the_model_gets_the_mixed_gradient_too() -> None:
    model = network()
    w = [p.detach().clone() for p in model.parameters()]
    temperature = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    WTAWP(model, rho=1.0, lam=0.3).backward(lambda: closure_of(model)() * temperature)
    # d/dt (t * L) = L, and delta is that of L: its direction does not change with t
    delta = delta_by_hand(w, [0], 1.0, "layer", "sphere", 1)
    expected = 0.3 * loss_by_hand([w[0] + delta[0], *w[1:]]) + 0.7 * loss_by_hand(w)
    torch.testing.assert_close(temperature.grad, expected, rtol=1e-12, atol=0)


def test_a_loss_that_is_itself_a_parameter_is_differentiated() -> None:
    model = nn.ParameterDict({"a_weight": torch.ones(1, 1), "b_weight": torch.ones(1, 1)})
    assert WTAWP(model, rho=1.0, lam=0.5, layers="a*").backward(lambda: model["a_weight"]) == 1
    assert model["a_weight"].grad == 1


OPTIMIZERS = [
    lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=5e-4),
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
]
SCHEDULERS = [
    lambda o: torch.optim.lr_scheduler.StepLR(o, 5, 0.5),
    lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 20),
    lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=40, cycle_momentum=False),
]


@pytest.mark.parametrize(("optimizer", "scheduler"), list(product(OPTIMIZERS, SCHEDULERS)))
def test_optimisers_schedulers_and_clipping_work_and_resuming_is_exact(
    optimizer: Callable[..., torch.optim.Optimizer], scheduler: Callable[..., torch.optim.lr_scheduler.LRScheduler]
) -> None:
    def train(
        model: nn.Module, opt: torch.optim.Optimizer, sched: torch.optim.lr_scheduler.LRScheduler, epochs: int
    ) -> list[float]:
        awp, losses = WTAWP(model, rho=0.5, lam=0.7), []
        for _ in range(epochs):
            opt.zero_grad()
            losses.append(float(awp.backward(closure_of(model, X.float()))))
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            clipped = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
            assert clipped == pytest.approx(min(float(norm), 0.5), rel=1e-4)
            opt.step()
            sched.step()
        return losses

    def fresh() -> tuple[nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
        model = network(nn.Dropout(0.3)).float()
        opt = optimizer(model.parameters())
        return model, opt, scheduler(opt)

    with torch.random.fork_rng():
        torch.manual_seed(0)
        whole = fresh()
        losses = train(*whole, 30)
        torch.manual_seed(0)
        half = fresh()
        train(*half, 12)
        checkpoint = copy.deepcopy([part.state_dict() for part in half])
        rng_state = torch.get_rng_state()
        train(*half, 3)  # the interrupted run got further than its checkpoint
        resumed = fresh()
        for part, state in zip(resumed, checkpoint, strict=True):
            part.load_state_dict(state)
        torch.set_rng_state(rng_state)
        train(*resumed, 18)
    assert losses[-1] < losses[0]
    assert all(torch.equal(p, q) for p, q in zip(whole[0].parameters(), resumed[0].parameters(), strict=True))


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("radius", ["layer", "global", "adaptive"])
def test_no_nan_from_a_zero_gradient_a_zero_weight_or_a_frozen_layer(exact: bool, radius: str) -> None:
    for prepare in (
        lambda m: m[0].weight.data.zero_(),
        lambda m: m[2].weight.data.zero_(),  # then no gradient reaches the first layer
        lambda m: m[0].requires_grad_(False),
        lambda m: [p.data.zero_() for p in m.parameters()],
    ):
        model = network()
        prepare(model)
        awp = WTAWP(model, rho=2.0, lam=0.5, layers="all", radius=radius, exact=exact, balance=1.0)
        awp.backward(closure_of(model))
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)
        assert all(p.grad is None for p in model.parameters() if not p.requires_grad)


def test_freezing_every_perturbed_layer_later_is_said_and_trains_plainly() -> None:
    model, plain = network(), network()
    awp = WTAWP(model, rho=1.0, lam=0.5)
    for m in (model, plain):
        m[0].requires_grad_(False)
    with pytest.warns(UserWarning, match=r"\['0.weight'\] are frozen or unused by the closure"):
        awp.backward(closure_of(model))
    closure_of(plain)().backward()
    torch.testing.assert_close(model[2].weight.grad, plain[2].weight.grad, rtol=1e-14, atol=0)
    assert awp.perturbed == {}


def test_recurrent_layers_are_perturbed_in_both_forms() -> None:
    grads = []
    for form in ("backward", "loss"):
        lstm = nn.LSTM(D, H).double()
        g = rng("lstm")
        with torch.no_grad():
            for p in lstm.parameters():
                p.copy_(torch.randn(p.shape, generator=g, dtype=torch.float64))
        awp = WTAWP(lstm, rho=0.5, lam=1.0, layers="weight_*")
        result = getattr(awp, form)(lambda lstm=lstm: lstm(X)[0].square().mean())
        if form == "loss":
            result.backward()
        grads.append(torch.cat([p.grad.flatten() for p in lstm.parameters()]))
    torch.testing.assert_close(grads[0], grads[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lam": 1.5}, r"lam must lie in \[0, 1\] or be .auto., got 1.5"),
        ({"lam": -0.1}, r"lam must lie in \[0, 1\] or be .auto., got -0.1"),
        ({"lam": math.nan}, r"lam must lie in \[0, 1\] or be .auto., got nan"),
        ({"rho": -1.0}, "rho must be a finite number >= 0, got -1.0"),
        ({"rho": math.nan}, "rho must be a finite number >= 0, got nan"),
        ({"rho": math.inf}, "rho must be a finite number >= 0, got inf"),
        ({"steps": 0}, "steps must be a whole number >= 1, got 0"),
        ({"steps": 1.5}, "steps must be a whole number >= 1, got 1.5"),
        ({"step_size": 0.0}, "step_size must be a finite number > 0 or None, got 0.0"),
        ({"balance": -1.0}, "balance must be a finite number > 0 or None, got -1.0"),
        ({"radius": "relative"}, r"radius must be one of \('layer', 'global', 'adaptive'\), got 'relative'"),
        ({"projection": "cube"}, r"projection must be one of \('sphere', 'ball'\), got 'cube'"),
        ({"lam": "0.5"}, r"lam must lie in \[0, 1\] or be .auto., got '0.5'"),
        ({"rho": None}, "rho must be a finite number >= 0, got None"),
        ({"balance": "x"}, "balance must be a finite number > 0 or None, got 'x'"),
        ({"layers": None}, "layers must be a word or globs over parameter names, got None"),
        ({"layers": [0]}, r"layers must be a word or globs over parameter names, got \[0\]"),
        ({"layers": "conv1.*"}, r"layers=\('conv1.\*',\) match none of \['0.weight', '0.bias', '2.weight', '2.bias'\]"),
    ],
)
def test_bad_options_say_what_was_expected(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WTAWP(network(), **{"rho": 1.0, "lam": 0.5, **options})


def test_a_misspelt_option_fails() -> None:
    with pytest.raises(TypeError, match="gamma"):
        AWP(network(), rho=1.0, gamma=0.5)


def test_a_closure_that_uses_another_model_is_noticed() -> None:
    model, other = network(), network()
    with pytest.warns(UserWarning, match="frozen or unused by the closure: nothing is perturbed"):
        WTAWP(model, rho=1.0, lam=0.5).backward(closure_of(other))


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("steps", [1, 3])
def test_autocast_sees_the_moved_weights(outside: bool, steps: int) -> None:
    """Autocast caches low-precision copies of the weights; a stale one would make this plain training."""
    grads = []
    for caching in (True, False):
        model = network().float()
        awp = WTAWP(model, rho=1.0, lam=1.0, steps=steps)
        cast = torch.autocast("cpu", torch.bfloat16, cache_enabled=caching)

        def closure(model: nn.Module = model, caching: bool = caching) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16, cache_enabled=caching):
                return closure_of(model, X.float())()

        if outside:
            with cast:
                awp.backward(closure_of(model, X.float()))
        else:
            awp.backward(closure)
        grads.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert torch.equal(*grads)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("form", ["backward", "loss"])
def test_autocast_sees_the_weights_that_have_come_back(form: str, fails: bool) -> None:
    model, calls = network().float(), []

    def closure() -> Tensor:
        calls.append(closure_of(model, X.float())())
        if fails and len(calls) == 2:
            raise KeyError("broken")
        return calls[-1]

    with torch.autocast("cpu", torch.bfloat16):
        before = closure_of(model, X.float())()
        with pytest.raises(KeyError, match="broken") if fails else contextlib.nullcontext():
            getattr(WTAWP(model, rho=2.0, lam=0.5), form)(closure)
        assert torch.equal(closure_of(model, X.float())(), before)
    assert not torch.equal(calls[1], before)


@pytest.mark.parametrize("form", ["backward", "loss"])
def test_sparse_embeddings_and_mixed_types_can_be_perturbed(form: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.out = nn.Embedding(6, 4, sparse=True), nn.Linear(4, 2).double()

        def forward(self) -> Tensor:
            return self.out(self.embed(torch.tensor([0, 3])).double())

    model = Model()
    for awp in (WTAWP(model, rho=0.5, lam=0.5), SAM(model)):
        result = getattr(awp, form)(lambda: model().square().mean())
        if form == "loss":
            result.backward()
    assert model.embed.weight.grad.is_sparse
    assert model.embed.weight.grad.to_dense()[[0, 3]].any(1).all()
    assert model.out.weight.grad.isfinite().all()


def test_gradients_are_the_same_with_checkpointing() -> None:
    from torch.utils.checkpoint import checkpoint

    grads = []
    for keep in (True, False):
        model = network()
        body = model[:2]

        def closure(model: nn.Sequential = model, body: nn.Module = body, keep: bool = keep) -> Tensor:
            hidden = body(X) if keep else checkpoint(body, X, use_reentrant=False)
            return F.cross_entropy(model[2](hidden), Y)

        WTAWP(model, rho=0.5, lam=1.0).backward(closure)
        grads.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    torch.testing.assert_close(*grads, rtol=0, atol=1e-14)


def test_perturbed_follows_the_weights_and_repr_shows_it() -> None:
    model = network()
    awp = WTAWP(model, rho=0.5, lam=0.7, steps=5)
    assert awp.perturbed == {"0.weight": pytest.approx(0.5 * float(model[0].weight.detach().norm()))}
    with torch.no_grad():
        model[0].weight.mul_(0).add_(1)
    assert repr(awp) == (
        "WTAWP(rho=0.5, lam=0.7, steps=5) of Sequential, perturbing \n"
        f"  0.weight: radius {0.5 * math.sqrt(D * H):.4g}\n"
        "not perturbed by this choice of layers: 2.weight\n"
        "not perturbed by any word for layers (biases, norms, frozen or unused): 0.bias, 2.bias\n"
        "layers in the order of registration, until the first step reads it from the forward pass"
    )
    awp.backward(closure_of(model))
    assert repr(awp).endswith("unused): 0.bias, 2.bias\nlayers in the order of the forward pass")
    assert "0.bias: radius 0.05, shared" in repr(SAM(model))
    assert SAM(model).perturbed == dict.fromkeys(["0.weight", "0.bias", "2.weight", "2.bias"], pytest.approx(0.05))


class Hump(nn.Module):
    """-exp(-w^2): far out, where a large radius leads, it is flat."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1, bias=False)
        nn.init.constant_(self.layer.weight, 1.0)

    def forward(self) -> Tensor:
        return -(-self.layer.weight.square()).exp().sum()


def test_perturbed_gradients_that_vanish_are_warned_of_once_and_others_are_not() -> None:
    near, far = Hump(), Hump()
    small, large = AWP(near, rho=0.5), AWP(far, rho=30.0)

    def train(awp: WTAWP, model: nn.Module) -> None:
        for _ in range(50):
            awp.backward(model)

    train(small, near)
    with pytest.warns(VanishingGradientWarning, match=r"rho=30.0, lam=1.0, layers='all' is too much here") as caught:
        train(large, far)
    assert len(caught) == 1
    assert caught[0].filename == __file__


@pytest.mark.parametrize("is_in_group", [False, True])
@pytest.mark.parametrize("clears", [False, True])
@pytest.mark.parametrize("form", ["backward", "loss"])
def test_an_optimizer_in_backward_steps_once_in_both_forms(
    form: str, clears: bool, is_in_group: bool, tmp_path: Path
) -> None:
    reference, model, steps = network(), network(), []
    WTAWP(reference, rho=0.8, lam=0.7).backward(closure_of(reference))
    expected = [(p - 0.1 * p.grad).detach() for p in reference.parameters()]

    def step(p: Tensor) -> None:
        steps.append(p)
        p.detach().sub_(0.1 * p.grad)
        if clears:
            p.grad = None

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step)
    awp = WTAWP(model, rho=0.8, lam=0.7)
    if is_in_group:
        torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'meet'}", rank=0, world_size=1)
    try:
        _ = awp.backward(closure_of(model)) if form == "backward" else awp.loss(closure_of(model)).backward()
    finally:
        if is_in_group:
            torch.distributed.destroy_process_group()
    assert len(steps) == 4
    torch.testing.assert_close([p.detach() for p in model.parameters()], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("form", ["backward", "loss"])
def test_hooks_that_change_a_gradient_do_so_once_in_both_forms(form: str) -> None:
    reference, model = network(), network()
    WTAWP(reference, rho=0.8, lam=0.7).backward(closure_of(reference))
    handles = [p.register_hook(lambda g: 0.5 * g) for p in model.parameters()]
    awp = WTAWP(model, rho=0.8, lam=0.7)
    _ = awp.backward(closure_of(model)) if form == "backward" else awp.loss(closure_of(model)).backward()
    for p, q in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(p.grad, 0.5 * q.grad, rtol=0, atol=1e-12)
    for handle in handles:
        handle.remove()
    assert not any(p._backward_hooks for p in model.parameters())


def test_hooks_of_parameters_outside_the_model_are_refused_in_the_loss_form() -> None:
    model, temperature = network(), torch.ones((), dtype=torch.float64, requires_grad=True)
    awp = WTAWP(model, rho=0.8, lam=0.7)
    temperature.register_hook(lambda g: 2 * g)
    with pytest.raises(ValueError, match=r"use awp\.backward"):
        awp.loss(lambda: F.cross_entropy(model(X) * temperature, Y))
    awp.backward(lambda: F.cross_entropy(model(X) * temperature, Y))
    assert temperature.grad is not None


@pytest.mark.parametrize(("option", "value"), [("lam", 0.3), ("rho", 0.1), ("config", None)])
def test_options_cannot_be_changed_behind_the_back_of_the_steps(option: str, value: float | None) -> None:
    awp = WTAWP(network(), rho=0.8, lam=0.7)
    with pytest.raises(AttributeError, match=rf"{option} cannot be changed, .* build another WTAWP\(model, rho="):
        setattr(awp, option, value)
    assert (awp.rho, awp.lam, awp.config.lam) == (0.8, 0.7, 0.7)
    again = copy.deepcopy(awp)
    assert (again.rho, again.lam) == (0.8, 0.7)
