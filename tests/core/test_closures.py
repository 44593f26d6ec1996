"""What the caller passes to a step: closures that break the rules are refused, and threads take turns."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wtawp.base import rng
from wtawp.core import WTAWP
from wtawp.core.closures import one_step_at_a_time

X = torch.randn(12, 4, generator=rng("test_closures"))
Y = torch.arange(12) % 3


def network() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    g = rng("network of test_closures")
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=g))
    return model


def closure_of(model: nn.Module) -> Callable[[], Tensor]:
    return lambda: F.cross_entropy(model(X), Y)


@pytest.mark.parametrize("form", ["backward", "loss"])
@pytest.mark.parametrize("lam", [0.0, 0.5])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda loss: loss.expand(3), r"one element, got a tensor of shape \[3\]"),
        (lambda _: None, "one element, got None"),
        (lambda loss: loss.item(), r"one element, got \d"),
        (lambda loss: loss.detach(), "detached loss"),
        (lambda loss: (loss.backward(retain_graph=True), loss)[1], r"called backward\(\) itself"),
    ],
)
def test_a_closure_that_breaks_the_rules_is_refused(
    form: str, lam: float, spoil: Callable[[Tensor], object], message: str
) -> None:
    model = network()
    with pytest.raises(ValueError, match=message):
        getattr(WTAWP(model, rho=1.0, lam=lam), form)(lambda: spoil(closure_of(model)()))


@pytest.mark.parametrize("form", ["backward", "loss"])
@pytest.mark.parametrize("options", [{"lam": 0.5}, {"lam": 0.0}, {"lam": 0.5, "exact": True}, {"lam": 0.5, "every": 2}])
def test_a_closure_that_calls_backward_is_noticed_although_there_are_gradients(
    form: str, options: dict[str, float]
) -> None:
    model = network()
    awp = WTAWP(model, rho=1.0, **options)
    result = getattr(awp, form)(closure_of(model))  # with every=2, the next step is plain
    if form == "loss":
        result.backward()
    assert all(p.grad is not None for p in model.parameters())

    def closure() -> Tensor:
        loss = closure_of(model)()
        loss.backward(retain_graph=True, inputs=[model[2].bias])  # a part of them is enough
        return loss

    with pytest.raises(ValueError, match=r"the closure called backward\(\) itself"):
        getattr(awp, form)(closure)


@pytest.mark.parametrize("set_to_none", [False, True])
def test_a_closure_that_only_zeroes_gradients_in_plain_training_is_not_accused(set_to_none: bool) -> None:
    model, plain = network(), network()
    closure_of(plain)().backward()

    def closure() -> Tensor:
        model.zero_grad(set_to_none=set_to_none)
        return closure_of(model)()

    for _ in range(2):
        WTAWP(model, rho=1.0, lam=0.0).backward(closure)
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(model.parameters(), plain.parameters(), strict=True))


@pytest.mark.parametrize("form", ["backward", "loss"])
def test_a_loss_in_the_place_of_a_closure_is_refused(form: str) -> None:
    model = network()
    with pytest.raises(ValueError, match=r"pass a function that computes the loss, awp.backward\(lambda: ...\)"):
        getattr(WTAWP(model, rho=1.0, lam=0.5), form)(closure_of(model)())
    with pytest.raises(ValueError, match=r"model must be the nn.Module that is trained, got generator"):
        WTAWP(model.parameters(), rho=1.0, lam=0.5)


def test_a_model_has_one_lock_which_its_thread_may_take_again() -> None:
    model, other = network(), network()
    assert one_step_at_a_time(model) is one_step_at_a_time(model)
    assert one_step_at_a_time(model) is not one_step_at_a_time(other)
    with one_step_at_a_time(model), one_step_at_a_time(model), one_step_at_a_time(other):
        pass


def test_what_was_computed_outside_of_the_closure_is_refused_where_weights_have_moved() -> None:
    model = network()
    for backward in (Tensor.backward, lambda loss: loss.backward(retain_graph=True)):
        hidden = model[1](model[0](X))
        with pytest.raises(ValueError, match="uses what was computed outside of it, at weights that have moved"):
            WTAWP(model, rho=1.0, lam=0.5).backward(
                lambda hidden=hidden: F.cross_entropy(model[2](hidden), Y), backward=backward
            )
    assert all(p.grad is None for p in model.parameters())


def test_what_does_not_depend_on_moved_weights_may_be_computed_outside_of_the_closure() -> None:
    encoder, model = nn.Linear(4, 4), network()
    x = encoder(X)
    WTAWP(model, rho=1.0, lam=0.5).backward(
        lambda: F.cross_entropy(model(x), Y), backward=lambda loss: loss.backward(retain_graph=True)
    )
    inside, same = nn.Linear(4, 4), network()
    inside.load_state_dict(encoder.state_dict())
    WTAWP(same, rho=1.0, lam=0.5).backward(lambda: F.cross_entropy(same(inside(X)), Y))
    for a, b in zip(
        (*encoder.parameters(), *model.parameters()), (*inside.parameters(), *same.parameters()), strict=True
    ):
        torch.testing.assert_close(a.grad, b.grad)


def test_a_cached_parametrization_is_refused() -> None:
    model = network()
    nn.utils.parametrizations.weight_norm(model[0])
    with nn.utils.parametrize.cached(), pytest.raises(ValueError, match="inside of the closure"):
        WTAWP(model, rho=1.0, lam=0.5).backward(
            closure_of(model), backward=lambda loss: loss.backward(retain_graph=True)
        )


def test_a_wrapper_shares_the_lock_of_the_module_inside() -> None:
    for inside_first in (False, True):
        model = nn.Linear(2, 2)
        wrapped = nn.DataParallel(model)
        both = [model, wrapped] if inside_first else [wrapped, model]
        first, second = map(one_step_at_a_time, both)
        assert first is second
