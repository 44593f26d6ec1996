"""Small networks in float64, and the comparison of one step on them with `reference_step`."""

from collections.abc import Callable
from typing import Any

import torch
from reference_step import Setting, gradients_of, reference_step, relative_error, same_bits, weights_of
from torch import Tensor, nn
from torch.nn import functional as F

from wtawp.base import rng
from wtawp.core import WTAWP

G = rng("small_training")
X, Y = torch.randn(12, 4, generator=G, dtype=torch.float64), torch.randint(0, 3, (12,), generator=G)
REFUSAL = (ValueError, RuntimeError, NotImplementedError)


def with_weights(model: nn.Module) -> nn.Module:
    """The model with weights that do not depend on the state of the global generator."""
    g = rng("weights")
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.7 * torch.randn(p.shape, generator=g, dtype=torch.float64))
    return model


def network(*extra: nn.Module) -> nn.Sequential:
    layers = [nn.Linear(4, 6), nn.Tanh(), *extra, nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3)]
    return with_weights(nn.Sequential(*layers).double())


def loss_of(model: Callable[[Tensor], Tensor], x: Tensor = X, y: Tensor = Y) -> Callable[[], Tensor]:
    return lambda: F.cross_entropy(model(x.to(next(model.parameters()).dtype)), y)


def setting_of(awp: WTAWP, perturbed: tuple[str, ...] | None = None) -> Setting:
    c = awp.config
    names = tuple(awp.perturbed) if perturbed is None else perturbed
    return Setting(rho=c.rho, lam=c.lam, perturbed=names, projection=c.projection, steps=c.steps, balance=c.balance)


def assert_step(
    model: nn.Module,
    closure: Callable[[], Tensor],
    awp: WTAWP,
    *,
    run: Callable[[], object] | None = None,
    perturbed: tuple[str, ...] | None = None,
    tolerance: float = 1e-10,
    **reference: Any,
) -> None:
    """Run one step, by default `awp.backward(closure)`, and compare the gradient, the weights and the buffers."""
    expected = reference_step(model, closure, setting_of(awp, perturbed), prior=gradients_of(model), **reference)
    before = weights_of(model)
    _ = awp.backward(closure) if run is None else run()
    error = relative_error(gradients_of(model), expected.gradient)
    assert error <= tolerance, f"the gradient is off by {error:.1e}"
    assert same_bits(weights_of(model), before), "the weights were not restored"
    assert same_bits(dict(model.named_buffers()), expected.buffers), "the buffers are not those of one plain pass"
