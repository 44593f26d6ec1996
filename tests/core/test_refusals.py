from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from wtawp.core import WTAWP, AwpConfig
from wtawp.core import refusals as module
from wtawp.core.passes import Passes
from wtawp.core.refusals import refuse_combinations, refuse_exact

LIMITED, UNLIMITED = AwpConfig(rho=1.0, lam=0.5, balance=2.0), AwpConfig(rho=1.0, lam=0.5)


def passes(model: nn.Module, *, has_hooks: bool = False) -> Passes:
    """Of the passes, only what is asked about them."""
    return cast(Passes, SimpleNamespace(has_post_accumulate_hooks=has_hooks, parameters=list(model.parameters())))


def test_hooks_are_refused_before_the_first_perturbed_step() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    hook = model[0].weight.register_post_accumulate_grad_hook(lambda _: None)
    for balance in ("auto", 1.0):
        with pytest.raises(ValueError, match="remove the post-accumulate-grad hooks or use balance=None"):
            WTAWP(model, rho=1.0, lam="auto", balance=balance).backward(lambda: model(torch.ones(1, 2)).sum())  # type: ignore[arg-type]
    WTAWP(model, rho=1.0, lam="auto", balance=None).backward(lambda: model(torch.ones(1, 2)).sum())
    hook.remove()
    with pytest.raises(ValueError, match="sync=False has those of one; use sync=True, or balance=None"):
        WTAWP(model, rho=1.0, lam="auto").backward(lambda: model(torch.ones(1, 2)).sum(), sync=False)
    with pytest.raises(ValueError, match=r"exact=True keeps losses; use backward\(\), or balance=None"):
        WTAWP(model, rho=1.0, lam="auto", exact=True).loss(lambda: model(torch.ones(1, 2)).sum())


def with_gradient(model: nn.Module) -> None:
    model(torch.ones(1, 2)).sum().backward()


def without_sync(model: nn.Module) -> None:
    cast(Any, model).require_backward_grad_sync = False


def with_hook(model: nn.Linear) -> None:
    model.weight.register_post_accumulate_grad_hook(lambda _: None)


def test_a_limit_needs_both_gradients_at_once() -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"remove the post-accumulate-grad hooks or use balance=None"):
        refuse_combinations(model, LIMITED, passes(model, has_hooks=True))
    refuse_combinations(model, UNLIMITED, passes(model, has_hooks=True))


@pytest.mark.parametrize(
    ("prepare", "message"), [(with_gradient, "accumulated gradients in several processes"), (without_sync, "no_sync")]
)
def test_a_limit_needs_the_gradients_of_all_processes(
    prepare: Callable[[nn.Module], None], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.Linear(2, 2)
    prepare(model)
    refuse_combinations(model, LIMITED, passes(model))  # one process may do both
    monkeypatch.setattr(module, "is_distributed", lambda: True)
    refuse_combinations(model, UNLIMITED, passes(model))
    with pytest.raises(ValueError, match=message):
        refuse_combinations(model, LIMITED, passes(model))


def test_the_second_order_gradient_is_refused_where_it_would_ignore_something(monkeypatch: pytest.MonkeyPatch) -> None:
    model, hooked = nn.Linear(2, 2), nn.Linear(2, 2)
    with_hook(hooked)
    refuse_exact(model, Tensor.backward)
    with pytest.raises(ValueError, match=r"cannot use backward=\.\.\.; use exact=False"):
        refuse_exact(model, lambda loss: (2 * loss).backward())
    with pytest.raises(ValueError, match="runs no post-accumulate-grad hooks"):
        refuse_exact(hooked, Tensor.backward)
    monkeypatch.setattr(module, "is_distributed", lambda: True)
    with pytest.raises(ValueError, match="does not reduce gradients over processes"):
        refuse_exact(model, Tensor.backward)


@pytest.mark.parametrize(
    "options", [{"direction": "momentum"}, {"direction": "without-edges"}, {"perturbed_gradient": "functional"}]
)
def test_what_a_closure_of_the_loss_does_not_show_is_for_fit(options: dict[str, Any]) -> None:
    config = AwpConfig(rho=0.5, lam=0.5, **options)
    with pytest.raises(ValueError, match=r"for fit and fit_many alone: fit\(model, data, split, seed=0, awp=AwpConfig"):
        WTAWP(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), **vars(config))
