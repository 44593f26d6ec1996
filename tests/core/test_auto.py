import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from wtawp.base import rng
from wtawp.core import WTAWP
from wtawp.core.auto import (
    FLOOR,
    GROW,
    LIMIT,
    MAX_LAM,
    MAX_PLAIN_GAP,
    MAX_RISE,
    MAX_SILENT_STEPS,
    MAX_SUSPICIOUS,
    MIN_LAM,
    MIN_SHARE,
    NEARLY_PLAIN_LAM,
    RATE,
    SHRINK,
    SLOPE,
    AutoState,
    AutoStrength,
    follow_gap,
    follow_rise,
    gradient_limit,
    zero_if_negligible,
)
from wtawp.core.config import AUTO_RULE

X = torch.randn(12, 4, generator=rng("test_auto"))
Y = torch.arange(12) % 3


def network(seed: int = 0) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    g = rng("network of test_auto", seed)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=g))
    return model


class Closure:
    def __init__(self, model: nn.Module) -> None:
        self.model, self.calls = model, 0

    def __call__(self) -> Tensor:
        self.calls += 1
        return F.cross_entropy(self.model(X), Y)


def gradients(model: nn.Module) -> list[Tensor]:
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def rule_by_hand(first_loss: float, losses: list[tuple[float, float]]) -> list[float]:
    lam, peak, values = 0.0, 0.0, []
    for train, val in losses:
        gap = (val - train) / (val + train)
        if lam <= NEARLY_PLAIN_LAM:
            peak = max(peak, gap)
        wanted = min(max(SLOPE * (gap - FLOOR), 0.0), MAX_LAM)
        wanted *= min(max((MAX_PLAIN_GAP - peak) / (1 - MAX_PLAIN_GAP), 0.0), 1.0)
        wanted *= val < first_loss
        lam = (1 - RATE) * lam + RATE * wanted
        values.append(lam)
    return values


def auto_state(*, lam: float | Tensor = 0.0, first_loss: float = math.inf, peak: float = 0.0) -> AutoState[Tensor]:
    """A state of tensors in double precision, of the shape of `lam`."""
    lam = torch.as_tensor(lam, dtype=torch.float64)
    return AutoState(lam=lam, first_loss=torch.full_like(lam, first_loss), peak=torch.full_like(lam, peak))


def test_lam_follows_the_gap_of_the_losses_for_each_member() -> None:
    overfits, underfits = [(1.0 / (1 + i), 1.0) for i in range(80)], [(1.0, 0.9)] * 80
    member, lams = auto_state(lam=torch.zeros(2), first_loss=2.0), []
    for (t0, v0), (t1, v1) in zip(overfits, underfits, strict=True):
        member = follow_gap(member, torch.tensor([t0, t1]), torch.tensor([v0, v1]))
        lams.append(member.lam.tolist())
    expected = zip(rule_by_hand(2.0, overfits), rule_by_hand(2.0, underfits), strict=True)
    assert lams == [pytest.approx(pair, abs=1e-6) for pair in expected]
    assert lams[-1][0] > 0.5
    assert lams[-1][1] == 0


def test_the_rule_does_not_depend_on_the_scale_of_the_loss() -> None:
    small = follow_gap(auto_state(lam=0.3, first_loss=1.1), torch.tensor(0.2), torch.tensor(1.0))
    large = follow_gap(auto_state(lam=0.3, first_loss=1100.0), torch.tensor(200.0), torch.tensor(1000.0))
    assert small.lam == pytest.approx(float(large.lam))


@pytest.mark.parametrize(("train", "val"), [(0.0, 0.0), (math.nan, 1.0), (1.0, math.nan), (math.inf, math.inf)])
def test_losses_without_a_gap_change_nothing(train: float, val: float) -> None:
    before = auto_state(lam=0.3, first_loss=2.0, peak=0.5)
    assert follow_gap(before, torch.tensor(train), torch.tensor(val)) == before


def test_a_training_set_learned_by_heart_before_the_perturbation_begins_leaves_lam_at_0() -> None:
    by_heart, slowly = (
        follow_gap(auto_state(first_loss=9.0, peak=peak), one(0.1), one(1.0)) for peak in (MAX_PLAIN_GAP, 0.9)
    )
    assert by_heart.lam == 0
    assert slowly.lam > 0
    between = follow_gap(auto_state(first_loss=9.0, peak=(3 * MAX_PLAIN_GAP - 1) / 2), one(0.1), one(1.0))
    assert float(between.lam) == pytest.approx(float(slowly.lam) / 2)


@pytest.mark.parametrize(("lam", "peak"), [(NEARLY_PLAIN_LAM, 0.998), (NEARLY_PLAIN_LAM + 0.01, 0.5)])
def test_what_is_learned_in_spite_of_the_perturbation_does_not_count(lam: float, peak: float) -> None:
    after = follow_gap(auto_state(lam=lam, first_loss=9.0, peak=0.5), one(0.001), one(0.999))
    assert float(after.peak) == pytest.approx(peak)


@pytest.mark.parametrize(("val", "factor"), [(0.5, 1.0), (1.99, 1.0), (2.0, 0.0), (9.0, 0.0)])
def test_lam_falls_while_the_validation_loss_is_that_of_an_untrained_model(val: float, factor: float) -> None:
    after = follow_gap(auto_state(first_loss=2.0), one(0.01 * val), one(val))
    assert float(after.lam) == pytest.approx(RATE * MAX_LAM * factor)


@pytest.mark.parametrize("first_loss", [math.inf, math.nan])
def test_a_first_loss_that_is_not_known_is_the_training_loss(first_loss: float) -> None:
    assert follow_gap(auto_state(first_loss=first_loss), one(0.5), one(1.0)).first_loss == 0.5


def one(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


LOSSES = st.floats(0.0, 1e3) | st.sampled_from([math.nan, math.inf, 0.0])


@given(value=st.floats(MIN_SHARE, 1.0), train=LOSSES, val=LOSSES, rise=st.floats(-10, 1e4) | st.just(math.nan))
def test_the_rule_is_the_same_for_numbers_and_for_tensors(value: float, train: float, val: float, rise: float) -> None:
    for first_loss in (math.inf, math.nan, 0.0, 0.7):
        numbers = follow_gap(AutoState(value, first_loss, 0.5), train, val)
        tensors = follow_gap(auto_state(lam=value, first_loss=first_loss, peak=0.5), one(train), one(val))
        assert numbers == pytest.approx([float(t) for t in tensors], nan_ok=True, rel=1e-12)
        assert 0 <= numbers.lam <= 1
    assert follow_rise(value, rise, val) == float(follow_rise(one(value), one(rise), one(val)))
    assert zero_if_negligible(value) == float(zero_if_negligible(one(value)))


def test_another_rule_has_another_number() -> None:
    """Stored runs are named by the number: whoever changes the rule raises `AUTO_RULE`, and then this test."""
    constants = (FLOOR, SLOPE, MAX_LAM, RATE, NEARLY_PLAIN_LAM, MAX_PLAIN_GAP, MIN_LAM, LIMIT, MAX_RISE, SHRINK, GROW,
                 MIN_SHARE)  # fmt: skip
    assert constants == (0.2, 1.25, 0.95, 0.03, 0.3, 0.996, 0.02, 200.0, 4.0, 0.8, 1.02, 1e-3)
    state = auto_state(first_loss=2.0)
    for epoch in range(40):
        state = follow_gap(state, one(1.5 * 0.9**epoch), one(1.6 * 0.98**epoch))
    assert [round(float(value), 6) for value in state] == [0.449482, 2.0, 0.864183]
    assert AUTO_RULE == 2


def test_small_weights_count_as_none() -> None:
    lam = torch.tensor([0.0, MIN_LAM - 1e-6, MIN_LAM, 0.5])
    assert zero_if_negligible(lam).tolist() == [0.0, 0.0, *lam[2:].tolist()]


def test_the_limit_of_the_perturbed_gradient_is_low_at_both_ends() -> None:
    assert gradient_limit(0.5) == LIMIT / 32
    weights = [MIN_LAM, 0.2, 0.5, 0.8, MAX_LAM]
    limits = [float(gradient_limit(lam)) for lam in weights]
    assert limits == pytest.approx(gradient_limit(torch.tensor(weights, dtype=torch.float64)).tolist())  # type: ignore[union-attr]
    assert max(limits[0], limits[-1]) < 1 < min(limits[1:-1])


def test_the_radius_shrinks_while_the_perturbation_does_too_much_and_grows_back_to_rho() -> None:
    share, seen = torch.ones(2, dtype=torch.float64), []
    for rise in [(9.0, 1.0)] * 5 + [(1.0, 1.0)] * 100:
        share = follow_rise(share, torch.tensor(rise), torch.tensor([2.0, 1.0]))
        seen.append(share.tolist())
    assert seen[4] == pytest.approx([SHRINK**5, 1.0])
    assert seen[5] == pytest.approx([SHRINK**5 * GROW, 1.0])
    assert seen[-1] == [1.0, 1.0]


@pytest.mark.parametrize(("rise", "val", "factor"), [
    (MAX_RISE, 1.0, GROW), (MAX_RISE + 1e-3, 1.0, SHRINK), (-1.0, 1.0, GROW), (0.0, 0.0, GROW),
    (math.nan, 1.0, SHRINK), (math.inf, 1.0, SHRINK), (1.0, math.nan, 1.0),
    (1.0, math.inf, 1.0),
])  # fmt: skip
def test_a_rise_is_compared_with_the_validation_loss(rise: float, val: float, factor: float) -> None:
    share = follow_rise(torch.tensor(0.5), torch.tensor(rise), torch.tensor(val))
    assert float(share) == pytest.approx(0.5 * factor)


def test_the_radius_never_vanishes() -> None:
    share = torch.tensor(1.0)
    for _ in range(100):
        share = follow_rise(share, torch.tensor(9.0), torch.tensor(1.0))
    assert float(share) == pytest.approx(MIN_SHARE)


def test_the_radius_follows_the_mean_rise_of_the_perturbed_steps() -> None:
    model = network()
    awp = WTAWP(model, rho=50.0, lam="auto")
    awp.backward(Closure(model))
    awp.observe(train_loss=0.15, val_loss=1.0)
    assert awp.rho == 50, "a plain step says nothing of the perturbation"
    rises = []
    awp.register_step_hook(lambda step: rises.append(float(step.perturbed_loss - step.natural_loss)))
    shares = [1.0]
    for _ in range(30):
        rises.clear()
        for _ in range(2):
            model.zero_grad()
            awp.backward(Closure(model))
        before = awp.perturbed["0.weight"]
        awp.observe(train_loss=0.15, val_loss=1.0)
        shares.append(min(1.0, shares[-1] * (GROW if sum(rises) / 2 <= MAX_RISE else SHRINK)))
        assert awp.rho == pytest.approx(50 * shares[-1])
        assert awp.perturbed["0.weight"] == pytest.approx(before * shares[-1] / shares[-2])
    assert min(shares) < 0.5
    assert shares[-1] > min(shares), "it has found the radius that the model can bear"


def test_a_training_begins_plainly_and_is_perturbed_once_it_overfits() -> None:
    model, plain = network(), network()
    awp, closure = WTAWP(model, rho=30.0, lam="auto"), Closure(model)
    natural = awp.backward(closure)
    Closure(plain)().backward()
    assert closure.calls == 1
    assert awp.lam == 0
    assert all(torch.equal(a, b) for a, b in zip(gradients(model), gradients(plain), strict=True))
    for _ in range(3):
        awp.observe(train_loss=0.15, val_loss=3.0)
    assert awp.lam == pytest.approx(rule_by_hand(float(natural), [(0.15, 3.0)] * 3)[-1], rel=1e-6)
    model.zero_grad()
    awp.backward(closure)
    assert closure.calls == 3
    fixed = network()
    limit = gradient_limit(awp.lam)
    assert isinstance(limit, float)
    WTAWP(fixed, rho=30.0, lam=awp.lam, balance=limit).backward(Closure(fixed))
    unlimited = network()
    WTAWP(unlimited, rho=30.0, lam=awp.lam).backward(Closure(unlimited))
    for a, b, c in zip(gradients(model), gradients(fixed), gradients(unlimited), strict=True):
        torch.testing.assert_close(a, b)
        assert not torch.allclose(a, c), "the limit has changed something"
    for _ in range(300):
        awp.observe(train_loss=1.0, val_loss=1.0)
    assert awp.lam == 0, "it holds back again when the gap has closed"
    assert natural > 0


def test_both_forms_of_the_step_agree() -> None:
    first, second = network(), network()
    one, other = (WTAWP(model, rho=1.0, lam="auto") for model in (first, second))
    for awp in (one, other):
        for _ in range(5):
            awp.observe(train_loss=0.1, val_loss=1.0)
    one.backward(Closure(first))
    other.loss(Closure(second)).backward()
    for a, b in zip(gradients(first), gradients(second), strict=True):
        torch.testing.assert_close(a, b)


def test_the_training_loss_is_the_mean_of_the_steps_since_the_last_observation() -> None:
    model = network()
    awp, told = WTAWP(model, rho=1.0, lam="auto"), WTAWP(network(), rho=1.0, lam="auto")
    for scales in ((50.0, 3.0), (1.0, 3.0), (1.0, 3.0), (1.0, 3.0)):
        losses = [float(awp.backward(lambda scale=scale: scale * Closure(model)())) for scale in scales]  # type: ignore[misc]
        if not told.state_dict()["auto"]["is_observed"]:
            told.backward(lambda scale=scales[0]: scale * Closure(told.model)())  # type: ignore[misc]
        awp.observe(val_loss=20.0)
        told.observe(val_loss=20.0, train_loss=sum(losses) / 2)
        assert awp.lam == pytest.approx(told.lam, rel=1e-6)
    assert awp.lam > 0


def test_a_resumed_training_continues_exactly_also_in_the_middle_of_an_epoch() -> None:
    model = network()
    awp = WTAWP(model, rho=1.0, lam="auto")
    awp.backward(lambda: 20 * Closure(model)())
    for epoch in range(8):
        awp.backward(Closure(model))
        awp.observe(val_loss=5.0 + epoch)
    awp.backward(Closure(model))
    assert awp.state_dict()["auto"]["rise"] > 0
    resumed = WTAWP(model, rho=1.0, lam="auto")
    resumed.load_state_dict(awp.state_dict())
    assert resumed.lam == awp.lam > 0
    for each in (awp, resumed):
        each.backward(Closure(model))
        each.observe(val_loss=3.0)
    assert resumed.lam == awp.lam
    assert resumed.state_dict() == awp.state_dict()


def test_a_state_of_another_kind_is_refused() -> None:
    auto, fixed = (WTAWP(network(), rho=1.0, lam=lam) for lam in ("auto", 0.5))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"whose lam is a number, and this one has lam=\"auto\""):
        auto.load_state_dict(fixed.state_dict())
    with pytest.raises(ValueError, match=r"whose lam is \"auto\", not 0\.5"):
        fixed.load_state_dict(auto.state_dict())
    with pytest.raises(ValueError, match=r"expected what WTAWP.state_dict\(\) returned with rho=1.0, lam=0.5"):
        fixed.load_state_dict(fixed.state_dict() | {"more": 1})
    with pytest.raises(ValueError, match="expected the state of lam="):
        AutoStrength().load_state_dict(AutoStrength().state_dict() | {"lam": 2.0})
    with pytest.raises(ValueError, match="expected the state of lam="):
        AutoStrength().load_state_dict(AutoStrength().state_dict() | {"share": 0.0})
    older = {name: value for name, value in AutoStrength().state_dict().items() if name != "held"}
    with pytest.raises(ValueError, match="that an earlier version began with that version"):
        AutoStrength().load_state_dict(older)


def test_what_cannot_be_followed_is_refused() -> None:
    awp = WTAWP(network(), rho=1.0, lam="auto")
    with pytest.raises(ValueError, match="val_loss must be >= 0, got -1"):
        awp.observe(train_loss=1.0, val_loss=-1.0)
    with pytest.raises(ValueError, match=r"train_loss must be one number, got a tensor of shape \[2\]; pass its mean"):
        awp.observe(train_loss=torch.ones(2), val_loss=1.0)
    with pytest.raises(ValueError, match="val_loss must be a number, got str"):
        awp.observe(train_loss=1.0, val_loss="1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has no training loss"):
        awp.observe(val_loss=1.0)
    with pytest.raises(ValueError, match=r'observe\(\) belongs to WTAWP\(..., lam="auto"\), but lam is 0.5'):
        WTAWP(network(), rho=1.0, lam=0.5).observe(train_loss=1.0, val_loss=1.0)
    assert awp.lam == 0


def test_a_loop_that_never_observes_is_warned_once() -> None:
    model = network()
    awp = WTAWP(model, rho=1.0, lam="auto")
    for _ in range(MAX_SILENT_STEPS - 1):
        awp.backward(Closure(model))
    with pytest.warns(UserWarning, match=r"100 steps without awp.observe\(val_loss=...\)"):
        awp.backward(Closure(model))
    for _ in range(MAX_SILENT_STEPS):
        awp.backward(Closure(model))  # a second warning would be an error


def test_a_loss_that_is_divided_in_the_closure_is_warned_of_once() -> None:
    """To accumulate gradients over 4 batches, divide in `backward=`, or the scale is not that of `observe`."""
    model = network()
    awp = WTAWP(model, rho=1.0, lam="auto")
    first = float(awp.backward(lambda: Closure(model)() / 4))
    for _ in range(MAX_SUSPICIOUS - 1):
        awp.observe(train_loss=0.1 * first, val_loss=2 * first)
    resumed = WTAWP(model, rho=1.0, lam="auto")
    resumed.load_state_dict(awp.state_dict())
    with pytest.warns(UserWarning, match=r"was never below the loss of the first step, .* divide in backward="):
        resumed.observe(train_loss=0.1 * first, val_loss=2 * first)
    assert resumed.lam == 0
    for _ in range(2 * MAX_SUSPICIOUS):
        resumed.observe(train_loss=0.1 * first, val_loss=2 * first)  # a second warning would be an error


def test_a_validation_loss_that_was_once_below_the_first_loss_ends_the_watch_for_two_scales() -> None:
    model = network()
    awp = WTAWP(model, rho=1.0, lam="auto")
    first = float(awp.backward(Closure(model)))
    for epoch in range(3 * MAX_SUSPICIOUS):
        awp.observe(train_loss=0.1 * first, val_loss=0.9 * first if epoch == MAX_SUSPICIOUS - 2 else 2 * first)
    assert awp.state_dict()["auto"]["held"] == MAX_SUSPICIOUS + 1


def test_losses_that_are_not_finite_are_not_taken_for_another_scale() -> None:
    model = network()
    awp = WTAWP(model, rho=1.0, lam="auto")
    awp.backward(Closure(model))
    awp.observe(train_loss=1.0, val_loss=1.0)
    for _ in range(2 * MAX_SUSPICIOUS):
        awp.observe(train_loss=1.0, val_loss=math.nan)  # a warning would be an error
    assert awp.state_dict()["auto"]["not_finite"] == MAX_SUSPICIOUS + 1


@pytest.mark.parametrize(("train", "val"), [(1.0, math.nan), (math.inf, 1.0)])
def test_losses_that_were_never_finite_are_warned_of_once(train: float, val: float) -> None:
    awp = WTAWP(network(), rho=1.0, lam="auto")
    for _ in range(MAX_SUSPICIOUS - 1):
        awp.observe(train_loss=train, val_loss=val)
    resumed = WTAWP(network(), rho=1.0, lam="auto")
    resumed.load_state_dict(awp.state_dict())
    with pytest.warns(UserWarning, match="a loss was not finite .* an empty validation set"):
        resumed.observe(train_loss=train, val_loss=val)
    for _ in range(2 * MAX_SUSPICIOUS):
        resumed.observe(train_loss=train, val_loss=val)  # a second warning would be an error


@pytest.mark.parametrize(("train", "val"), [(0.95, 0.8), (1.2, 0.4)])
def test_accuracies_and_swapped_losses_are_warned_of_once(train: float, val: float) -> None:
    awp = WTAWP(network(), rho=1.0, lam="auto")
    for _ in range(MAX_SUSPICIOUS - 1):
        awp.observe(train_loss=train, val_loss=val)
    resumed = WTAWP(network(), rho=1.0, lam="auto")
    resumed.load_state_dict(awp.state_dict())
    with pytest.warns(UserWarning, match="losses and not accuracies, and are they not swapped"):
        resumed.observe(train_loss=train, val_loss=val)
    for _ in range(2 * MAX_SUSPICIOUS):
        resumed.observe(train_loss=train, val_loss=val)  # a second warning would be an error


def test_swapped_losses_are_noticed_although_they_begin_alike() -> None:
    awp = WTAWP(network(), rho=1.0, lam="auto")
    for epoch in range(MAX_SUSPICIOUS + 2):  # the first three are within 5 % of each other
        awp.observe(train_loss=1.9 * 0.97**epoch, val_loss=1.9 * 0.95**epoch)
    with pytest.warns(UserWarning, match="are they not swapped"):
        awp.observe(train_loss=0.9, val_loss=0.5)
    awp.observe(train_loss=0.9, val_loss=0.5)  # a second warning would be an error
    right = WTAWP(network(), rho=1.0, lam="auto")
    for epoch in range(60):
        right.observe(train_loss=1.9 * 0.93**epoch, val_loss=1.9 * 0.97**epoch)
    assert right.lam > 0


def test_training_losses_with_dropout_may_lie_above_the_validation_loss() -> None:
    model = network()
    awp = WTAWP(model, rho=1.0, lam="auto")
    for _ in range(2 * MAX_SUSPICIOUS):
        loss = awp.backward(Closure(model))
        awp.observe(val_loss=0.5 * float(loss))  # a warning would be an error
    assert awp.state_dict()["auto"]["inverted"] == 0


@pytest.mark.parametrize("factor", [100.0, 0.01])
def test_a_closure_on_another_scale_than_the_observed_loss_is_warned_of(factor: float) -> None:
    model = network()
    awp = WTAWP(model, rho=1.0, lam="auto")
    loss = float(awp.backward(lambda: factor * Closure(model)())) / factor
    with pytest.warns(UserWarning, match="both must have one scale, for example means over samples and no sums"):
        awp.observe(train_loss=loss, val_loss=loss)
    awp.backward(lambda: factor * Closure(model)())
    awp.observe(train_loss=loss, val_loss=loss)  # a second warning would be an error


def test_numbers_of_numpy_and_losses_with_a_graph_are_taken() -> None:
    awp, other = (WTAWP(network(), rho=1.0, lam="auto") for _ in range(2))
    loss = F.cross_entropy(network()(X), Y)
    awp.observe(train_loss=loss, val_loss=np.float32(2 * float(loss.detach())))
    other.observe(train_loss=float(loss.detach()), val_loss=float(np.float32(2 * float(loss.detach()))))
    assert awp.state_dict() == other.state_dict()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_of_losses_are_resumed_in_their_own_precision(dtype: torch.dtype) -> None:
    def train(*, resumes: bool) -> float:
        model = network().to(dtype)
        awp = WTAWP(model, rho=1.0, lam="auto")
        for step in range(9):
            awp.backward(lambda: F.cross_entropy(model(X.to(dtype)), Y) * (1 - step / 10))  # noqa: B023
            if resumes:
                state, awp = awp.state_dict(), WTAWP(model, rho=1.0, lam="auto")
                awp.load_state_dict(state)
        awp.observe(val_loss=awp.state_dict()["auto"]["first_loss"] - 1e-3)
        return float(awp.state_dict()["auto"]["lam"])

    assert train(resumes=True) == train(resumes=False) > 0


@pytest.mark.parametrize("balance", [None, 3.0])
def test_another_limit_can_be_chosen(balance: float | None) -> None:
    model, fixed = network(), network()
    awp = WTAWP(model, rho=1.0, lam="auto", balance=balance)
    for _ in range(5):
        awp.observe(train_loss=0.1, val_loss=1.0)
    awp.backward(Closure(model))
    WTAWP(fixed, rho=1.0, lam=awp.lam, balance=balance).backward(Closure(fixed))
    for a, b in zip(gradients(model), gradients(fixed), strict=True):
        torch.testing.assert_close(a, b)
