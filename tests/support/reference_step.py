"""The WT-AWP step as a slow naive loop: written for the tests from Algorithm 1, it shares no code with the package."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Named = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The options of a step, and the names of the perturbed parameters; the radius is that of each tensor."""

    rho: float
    lam: float
    perturbed: tuple[str, ...]
    projection: str = "sphere"
    steps: int = 1
    balance: float | None = None


@dataclass(frozen=True)
class Reference:
    """What a step should do: the loss, the gradient and buffers it leaves, and the weights of each of its passes.

    The weight lam multiplies the gradient of the perturbed loss, or the loss before it is differentiated. Both are
    right; they differ by the rounding of a low precision.
    """

    loss: Tensor
    gradient: Named
    gradient_of_weighted_loss: Named
    buffers: Named
    points: list[Named]

    def error_of(self, gradient: Named) -> float:
        """The relative error of a gradient, by whichever of the two it is nearer to."""
        return min(relative_error(gradient, g) for g in (self.gradient, self.gradient_of_weighted_loss))


def weights_of(model: nn.Module) -> Named:
    """A copy of every parameter."""
    return {n: p.detach().clone() for n, p in model.named_parameters()}


def gradients_of(model: nn.Module) -> Named:
    """A dense copy of every `.grad` that is there."""
    return {n: p.grad.detach().to_dense().clone() for n, p in model.named_parameters() if p.grad is not None}


def relative_error(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """The norm of the difference over the norm of what was expected; both must have the same names."""
    assert set(found) == set(expected), f"{sorted(found)} in place of {sorted(expected)}"
    pairs = [(found[n].double().flatten(), expected[n].double().flatten()) for n in expected]
    distance = torch.cat([a - b for a, b in pairs]).norm()
    return float(distance / torch.cat([b for _, b in pairs]).norm().clamp_min(1e-30))


def same_bits(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> bool:
    """Whether both have the same names and the same values, bit for bit; NaN equals NaN."""
    pairs = [(found[n], expected[n]) for n in expected] if set(found) == set(expected) else [(torch.ones(1), None)]
    return all(b is not None and torch.equal(a.nan_to_num(0.25), b.nan_to_num(0.25)) for a, b in pairs)


def project_by_hand(step: Tensor, weight: Tensor, rho: float, projection: str) -> Tensor:
    """Eq. 5 for one tensor: full length on the sphere, at most full length in the ball."""
    radius, length = rho * weight.norm(), step.norm()
    if float(length) == 0 or (projection == "ball" and length <= radius):
        return step
    return step * (radius / length)


def _gradient_at(model: nn.Module, loss: Callable[[], Tensor], weights: Named, scaled: Callable[[Tensor], Tensor]):
    """The loss at the given weights and the gradient of `scaled(loss)`; the weights stay where they were put."""
    with torch.no_grad():
        for n, p in model.named_parameters():
            p.copy_(weights[n])
    torch.clear_autocast_cache()
    value = loss()
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad(scaled(value), list(trained.values()), allow_unused=True)
    return value.detach(), {n: g.to_dense() for n, g in zip(trained, gradients, strict=True) if g is not None}


def reference_step(
    model: nn.Module,
    loss: Callable[[], Tensor],
    setting: Setting,
    *,
    scaled: Callable[[Tensor], Tensor] = lambda value: value,
    prior: Mapping[str, Tensor] | None = None,
    visited: Sequence[Named] | None = None,
) -> Reference:
    """Compute lam * g(theta + delta) + (1 - lam) * g(theta) by loops; the model and its `.grad` end as they began.

    Args:
        model: The module, evaluated at each point of the step by overwriting its weights.
        loss: Computes the loss.
        setting: The options.
        scaled: What the caller's own backward does to the loss before it is differentiated: a scaler's scale, 1 / k.
        prior: Gradients that are there already, to which those of the step are added.
        visited: The weights that the tested step used in each pass. Gradients are evaluated there, so that a last bit
            of the perturbation is not magnified by a low precision; `points` still holds where the step should be.
    """
    before, start = copy.deepcopy(model.state_dict()), weights_of(model)
    factor = scaled(torch.ones((), dtype=torch.float64))
    points, total = [start], {}
    for number in range(setting.steps):
        value, gradient = _gradient_at(model, loss, visited[number] if visited else points[-1], scaled)
        if number == 0:
            natural, natural_loss = gradient, value
            buffers = {n: b.clone() for n, b in model.named_buffers()}
        size = 1 / setting.steps
        climb = {n: size * (g.to(torch.promote_types(g.dtype, torch.float32)) / factor) for n, g in gradient.items()}
        total = {n: total[n] + g if n in total else g for n, g in climb.items()}
        points.append({n: w + total[n] if n in total else w for n, w in start.items()})
    delta = {
        n: project_by_hand(total[n], start[n], setting.rho, setting.projection) for n in setting.perturbed if n in total
    }
    points[-1] = {n: w + delta[n] if n in delta else w for n, w in start.items()}
    at = visited[-1] if visited else points[-1]
    parts = {"gradient": (1.0, setting.lam), "gradient_of_weighted_loss": (setting.lam, 1.0)}
    mixed = {}
    for name, (inside, outside) in parts.items():
        _, perturbed = _gradient_at(model, loss, at, lambda value, inside=inside: scaled(inside * value))
        if setting.balance is not None:
            lengths = [_flat(part).norm() for part in (natural, perturbed)]
            limit = (setting.balance * inside * lengths[0] / lengths[1]).clamp_max(1)
            perturbed = {n: g * limit for n, g in perturbed.items()}
        mixed[name] = _sum([(1.0, prior or {}), (1 - setting.lam, natural), (outside, perturbed)])
    model.load_state_dict(before)
    return Reference(loss=natural_loss, buffers=buffers, points=points, **mixed)


def _flat(named: Named) -> Tensor:
    """All tensors as one vector in float64."""
    return torch.cat([t.double().flatten() for t in named.values()])


def _sum(parts: list[tuple[float, Mapping[str, Tensor]]]) -> Named:
    """The weighted sum of dicts of tensors, computed in float64; what a part lacks counts as zero."""
    total: Named = {}
    for weight, part in parts:
        for n, t in part.items():
            term = weight * t.to(torch.promote_types(t.dtype, torch.float64))
            total[n] = total[n] + term if n in total else term
    return total
