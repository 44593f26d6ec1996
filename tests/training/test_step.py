from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wtawp.base import rng
from wtawp.core import WTAWP, AwpConfig
from wtawp.models.ensemble import Ensemble
from wtawp.training.step import Stack, stack_gradient

G = rng("step")
X, Y = torch.randn(12, 4, generator=G, dtype=torch.float64), torch.randint(0, 3, (12,), generator=G)


def members() -> list[nn.Sequential]:
    models = [nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double() for _ in range(3)]
    for i, model in enumerate(models):
        g = rng("member", i)
        with torch.no_grad():
            for p in model.parameters():
                p.copy_((i + 1) * torch.randn(p.shape, generator=g, dtype=torch.float64))
    return models


@pytest.mark.parametrize("layers", ["all-but-last", "all"])
@pytest.mark.parametrize(
    "options",
    [
        {"rho": 0.5, "lam": 0.7},
        {"rho": 0.5, "lam": 1.0, "radius": "global", "projection": "ball"},
        {"rho": 0.3, "lam": 0.4, "radius": "adaptive", "steps": 3},
        {"rho": 0.5, "lam": 0.7, "balance": 0.5},
        {"rho": 0.5, "lam": 0.7, "exact": True, "steps": 2},
        {"rho": 0.0, "lam": 0.7},
    ],
)
def test_a_stack_s_gradient_is_what_wtawp_gives_each_member(options: dict[str, object], layers: str) -> None:
    config = AwpConfig(layers=layers, **options)
    ensemble = Ensemble(members())
    passes: list[int] = []

    def losses(weights: Stack, number: int) -> Tensor:
        passes.append(number)
        logits = ensemble.logits(weights, {}, (X,), None)
        return torch.stack([F.cross_entropy(member, Y) for member in logits])

    names = ("0.weight",) if layers == "all-but-last" else ("0.weight", "2.weight")
    result = stack_gradient(losses, ensemble.parameters(), names, config)
    assert passes == ([0] if config.is_plain else list(range(config.steps + 1)))
    for i, model in enumerate(members()):
        natural = WTAWP(model, **vars(config)).backward(lambda model=model: F.cross_entropy(model(X), Y))
        for name, p in model.named_parameters():
            torch.testing.assert_close(result.gradient[name][i], p.grad, rtol=0, atol=1e-12)
        torch.testing.assert_close(result.loss[i], natural)
        model.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
        torch.testing.assert_close(result.natural_norm[i], norm)
    if not config.is_plain and config.projection == "sphere":
        assert (result.rise > 0).all()


@pytest.mark.parametrize(
    "options", [{"rho": 0.5, "lam": 0.7}, {"rho": 0.5, "lam": 0.7, "steps": 3}, {"rho": 0.0, "lam": 1.0}]
)
def test_a_term_of_the_model_s_own_counts_in_the_natural_gradient_and_not_in_the_ascent(
    options: dict[str, float],
) -> None:
    config = AwpConfig(layers="all-but-last", **options)
    ensemble = Ensemble(members())

    def losses(weights: Stack, number: int, *, taxed: bool) -> Tensor | tuple[Tensor, Tensor]:
        logits = ensemble.logits(weights, {}, (X,), None)
        plain = torch.stack([F.cross_entropy(member, Y) for member in logits])
        return (plain, 5 * weights["0.weight"].square().sum((1, 2))) if taxed and number == 0 else plain

    theta = ensemble.parameters()
    with_term, without = (
        stack_gradient(partial(losses, taxed=taxed), theta, ("0.weight",), config) for taxed in (True, False)
    )
    share = 1.0 if config.is_plain else 1 - config.lam
    for name, gradient in without.gradient.items():
        term = share * 10 * theta[name].detach() if name == "0.weight" else 0
        torch.testing.assert_close(with_term.gradient[name], gradient + term, rtol=0, atol=1e-12)
    torch.testing.assert_close(with_term.rise, without.rise)
    torch.testing.assert_close(with_term.loss, without.loss + 5 * theta["0.weight"].detach().square().sum((1, 2)))
