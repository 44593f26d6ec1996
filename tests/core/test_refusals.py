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


def test_sparse_gradients_are_refused_before_the_first_perturbed_step() -> None:
    model = nn.Sequential(nn.Embedding(5, 4, sparse=True), nn.Linear(4, 3), nn.Linear(3, 2))

    def closure() -> Tensor:
        return cast(Tensor, model(torch.tensor([1, 3])).square().mean())

    with pytest.raises(ValueError, match=r"sparse gradients; use balance=None, or Embedding\(sparse=False\)"):
        WTAWP(model, rho=1.0, lam="auto").backward(closure)
    WTAWP(model, rho=1.0, lam="auto", balance=None).backward(closure)
    model[0].requires_grad_(False)
    WTAWP(model, rho=1.0, lam="auto").backward(closure)


def test_a_scaled_loss_is_refused_in_the_first_plain_step() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with pytest.raises(ValueError, match=r"backward=lambda loss: scaler\.scale"):
        WTAWP(model, rho=1.0, lam="auto").backward(lambda: scaler.scale(model(torch.ones(1, 2)).square().mean()))
    assert model[0].weight.grad is None


class Tied(nn.Module):
    """An autoencoder whose decoder is the transposed encoder: one memory, two parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder, self.head = nn.Linear(3, 4), nn.Linear(4, 3), nn.Linear(3, 2)
        self.decoder.weight = nn.Parameter(self.encoder.weight.t())

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.head(self.decoder(torch.tanh(self.encoder(x)))))


def test_two_parameters_in_one_memory_are_refused_where_both_would_be_perturbed() -> None:
    model, x = Tied(), torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    theta = model.encoder.weight.detach().clone()
    awp = WTAWP(model, rho=1.0, lam=0.5)
    for _ in range(2):  # the second try is not let through either
        with pytest.raises(
            ValueError, match=r"encoder\.weight and decoder\.weight are two parameters in the same memory"
        ):
            awp.backward(lambda: model(x).square().mean())
    assert torch.equal(model.encoder.weight, theta)
    for layer in ("encoder.weight", "decoder.weight"):
        with pytest.raises(ValueError, match="two parameters in the same memory"):
            WTAWP(model, rho=1.0, lam=0.5, layers=[layer]).backward(lambda: model(x).square().mean())
    WTAWP(model, rho=1.0, lam=0.5, layers=["head.weight"]).backward(lambda: model(x).square().mean())
    model.decoder.weight.requires_grad_(False)  # it moves with the encoder, as it does when that is trained
    WTAWP(model, rho=1.0, lam=0.5, layers=["encoder.weight"]).backward(lambda: model(x).square().mean())
    assert torch.equal(model.encoder.weight, theta)


def test_neighbours_in_memory_do_not_overlap() -> None:
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    stacked = nn.ParameterList([nn.Parameter(part) for part in torch.zeros(2, 3, 3)])
    for p in stacked:
        nn.init.normal_(p)
    apart = nn.ParameterList([nn.Parameter(p.detach().clone()) for p in stacked])
    for pair in (stacked, apart):
        awp = WTAWP(pair, rho=1.0, lam=0.5, layers=["0", "1"])
        awp.backward(lambda pair=pair: (x @ pair[0] @ pair[1]).square().mean())
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(stacked, apart, strict=True))


def test_memory_is_compared_with_all_parameters_that_begin_before() -> None:
    flat = torch.randn(12, generator=torch.Generator().manual_seed(0))
    named = {"flat": nn.Parameter(flat), "a": nn.Parameter(flat[:4]), "b": nn.Parameter(flat[6:8])}
    module.refuse_shared_memory(named, set())
    with pytest.raises(ValueError, match="flat and b are two parameters in the same memory"):
        module.refuse_shared_memory(named, {named["b"]})
    with pytest.raises(ValueError, match="flat and a are two parameters in the same memory"):
        module.refuse_shared_memory(named, {named["flat"]})
    module.refuse_shared_memory({"a": named["a"], "b": named["b"]}, {named["a"], named["b"]})


def test_a_radius_of_zero_is_plain_training_also_with_hooks_and_sparse_gradients() -> None:
    model = nn.Sequential(nn.Embedding(5, 4, sparse=True), nn.Linear(4, 2))
    model[1].weight.register_post_accumulate_grad_hook(lambda _: None)
    WTAWP(model, rho=0.0, lam="auto").backward(lambda: model(torch.tensor([1, 3])).square().mean())
    assert model[0].weight.grad.is_sparse
