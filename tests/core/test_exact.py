"""The losses whose graph includes the perturbation; `test_awp.py` compares their gradients with finite differences."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from wtawp.core import WTAWP, AwpConfig
from wtawp.core.exact import exact_losses, gradient_of

CONFIG = AwpConfig(rho=0.5, lam=0.5, exact=True)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()


X = torch.ones(2, 3, dtype=torch.float64)


def test_the_second_loss_is_that_at_the_moved_weights() -> None:
    model = network()
    weight = model[0].weight
    natural, perturbed = exact_losses(
        model, lambda: model(X).square().sum(), perturbed=lambda _: [weight], config=CONFIG
    )
    g = gradient_of(natural)[weight]
    with torch.no_grad():
        weight += 0.5 * weight.norm() * g / g.norm()
    torch.testing.assert_close(perturbed.detach(), model(X).square().sum().detach(), rtol=1e-12, atol=0)


def test_a_closure_with_tensors_of_its_own_is_refused() -> None:
    model = network()
    own = dict(model.named_parameters())
    with pytest.raises(ValueError, match="functional_call does; exact=True cannot perturb them, exact=False can"):
        WTAWP(model, rho=0.5, lam=0.5, exact=True).backward(lambda: functional_call(model, own, (X,)).square().sum())


@pytest.mark.parametrize("form", ["backward", "loss"])
def test_checkpointing_is_refused(form: str) -> None:
    model = network()

    def closure() -> Tensor:
        return model[2](checkpoint(model[:2], X, use_reentrant=False)).square().sum()

    with pytest.raises(RuntimeError, match="checkpointing or offloading; use exact=False"):
        getattr(WTAWP(model, rho=0.5, lam=0.5, exact=True), form)(closure)


def test_hooks_and_another_backward_are_refused() -> None:
    model = network()
    awp = WTAWP(model, rho=0.5, lam=0.5, exact=True)
    with pytest.raises(ValueError, match="cannot use backward="):
        awp.backward(lambda: model(X).sum(), backward=lambda loss: (loss / 2).backward())
    model[0].weight.register_post_accumulate_grad_hook(lambda _: None)
    with pytest.raises(ValueError, match="remove them or use exact=False"):
        awp.backward(lambda: model(X).sum())
