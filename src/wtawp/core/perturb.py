"""The parts of adversarial weight perturbation as pure functions on dicts of tensors (sections 3 and 4 of the paper).

`ascend` climbs the loss, `project` scales the climb to the radius (Eq. 5, eq:est), `clip_relative_norm` and `mix`
combine the two gradients (Algorithm 1, line 5). The functions on tensors hold no state and do not branch on values, so
`torch.func.vmap` maps them over a stack of models and each model keeps its own norms. `wtawp.core.algorithm` puts them
together.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn

from wtawp.core.config import Projection, Radius

Key = TypeVar("Key")  # what identifies a parameter: its name, or the parameter itself

ETA = 0.01  # ASAM's lower limit for |theta|, so that a weight of zero can change
MIN_NORM = 1e-12  # a shorter gradient counts as vanished: it is not scaled up to the radius


def global_norm(*tensors: Tensor) -> Tensor:
    """Compute the Euclidean norm of several tensors as if they were concatenated, in float32 or wider.

    With gradients enabled, its first and second derivatives at zero are zero rather than NaN.

    Args:
        *tensors: One or more tensors, of any shapes and of different types if need be.

    Returns:
        The norm, a tensor without dimensions.

    Example:
        >>> global_norm(torch.tensor([3.0]), torch.tensor([[4.0]]))
        tensor(5.)
    """
    wide = torch.float32
    for t in tensors:
        if t.dtype != wide:
            wide = torch.promote_types(wide, t.dtype)
    if wide.is_complex:
        tensors, wide = tuple(torch.view_as_real(t) if t.is_complex() else t for t in tensors), wide.to_real()
    if not torch.is_grad_enabled():  # three times faster, but its second derivative at zero is NaN
        norm: Tensor = torch.linalg.vector_norm(tensors[0], dtype=wide)
        others = [torch.linalg.vector_norm(t, dtype=wide) for t in tensors[1:]] if len(tensors) > 1 else ()
        return torch.stack([norm, *others]).norm() if others else norm
    square = torch.stack([t.to(wide).square().sum() for t in tensors]).sum()
    return torch.where(square > 0, square, 1).sqrt() * (square > 0)


def radii(theta: Mapping[Key, Tensor], *, rho: float, radius: Radius = "layer") -> dict[Key, Tensor]:
    """Compute the radius rho(theta_i) of Eq. 5 (eq:est) for each tensor.

    Args:
        theta: The weights.
        rho: The radius, relative to the norm of each tensor for "layer", absolute otherwise.
        radius: "layer" is rho * |theta_i|; "global" and "adaptive" share one radius rho among all tensors.

    Returns:
        For each key the radius, a tensor without dimensions.

    Example:
        >>> radii({"w": torch.tensor([3.0, 4.0])}, rho=0.5)
        {'w': tensor(2.5000)}
    """
    if radius == "layer":
        return {n: global_norm(w) * rho for n, w in theta.items()}
    return {n: torch.full_like(global_norm(w), rho) for n, w in theta.items()}


def project(
    step: Mapping[Key, Tensor],
    theta: Mapping[Key, Tensor],
    *,
    rho: float | Tensor,
    radius: Radius = "layer",
    onto: Projection = "sphere",
) -> dict[Key, Tensor]:
    """Scale `step` to the radius, which is the projection of Eq. 5 (eq:est). A step of zero stays zero.

    Args:
        step: The direction of the perturbation, usually a gradient of the loss.
        theta: The weights that the step would change, with at least the keys of `step`.
        rho: The radius, relative to the norm of each tensor for "layer", absolute otherwise.
        radius: "layer" measures each tensor on its own, "global" all of them together (SAM), "adaptive" all of them
            together in the coordinates delta / (|theta| + 0.01), in which a weight changes in proportion to its size
            (ASAM).
        onto: "sphere" scales every step to the full radius, as the released code does; "ball" leaves a shorter step as
            it is, as the paper's text says.

    Returns:
        The perturbation, with the keys, shapes and types of `step`.

    Example:
        >>> project({"w": torch.tensor([3.0, 4.0])}, {"w": torch.tensor([1.0, 0.0])}, rho=1.0)
        {'w': tensor([0.6000, 0.8000])}
    """
    if not step:
        return {}
    if radius == "adaptive":
        unit = {n: theta[n].abs() + ETA for n in step}
        inside = project({n: s * unit[n] for n, s in step.items()}, theta, rho=rho, radius="global", onto=onto)
        return {n: d * unit[n] for n, d in inside.items()}
    if radius == "layer":
        return {n: _rescaled(s, global_norm(s), global_norm(theta[n]) * rho, onto) for n, s in step.items()}
    norm = global_norm(*step.values())
    return {n: _rescaled(s, norm, torch.ones_like(norm) * rho, onto) for n, s in step.items()}


def _rescaled(step: Tensor, norm: Tensor, limit: Tensor, onto: Projection) -> Tensor:
    """A step, or its part of a step with this norm, scaled to the limit; a short one stays as it is for "ball"."""
    scale = limit / norm.clamp_min(MIN_NORM)
    scaled = step * (scale.clamp_max(1.0) if onto == "ball" else scale)
    return scaled if scaled.dtype == step.dtype else scaled.to(step.dtype)


def ascend(
    first: Mapping[Key, Tensor],
    gradient_at: Callable[[Mapping[Key, Tensor]], Mapping[Key, Tensor]],
    *,
    steps: int = 1,
    step_size: float | None = None,
) -> dict[Key, Tensor]:
    """Climb the loss by `steps` steps of plain gradient ascent.

    Args:
        first: The gradient at theta, which is the direction of the first step.
        gradient_at: Returns the gradient at theta + step. It is called steps - 1 times; a key that it leaves out does
            not move.
        steps: Number of steps, at least 1.
        step_size: Factor of each gradient. None means 1 / steps.

    Returns:
        The sum of all steps, not yet projected, with the keys of `first`.
    """
    size = 1 / steps if step_size is None else step_size
    step = dict(first) if size == 1 else {n: size * g for n, g in first.items()}
    for _ in range(steps - 1):
        gradient = gradient_at(step)
        step = {n: s + size * gradient[n] if n in gradient else s for n, s in step.items()}
    return step


def clip_relative_norm(
    perturbed: Mapping[Key, Tensor], natural: Mapping[Key, Tensor], balance: float | Tensor
) -> dict[Key, Tensor]:
    """Limit the norm of the perturbed gradient over all tensors to `balance` times that of the natural gradient.

    Args:
        perturbed: The gradient at the perturbed weights.
        natural: The gradient at the weights themselves.
        balance: The largest allowed ratio of the two norms, greater than 0.

    Returns:
        The perturbed gradient, scaled down if it was too long. An infinite one becomes zero; NaN stays NaN.

    Example:
        >>> clip_relative_norm({"w": torch.tensor([3.0, 4.0])}, {"w": torch.tensor([1.0, 0.0])}, balance=1.0)
        {'w': tensor([0.6000, 0.8000])}
    """
    if not (natural and perturbed):
        return dict(perturbed)
    limit = balance * global_norm(*natural.values()) / global_norm(*perturbed.values()).clamp_min(MIN_NORM)
    return {k: torch.where(limit == 0, 0.0, limit.clamp_max(1.0) * g).to(g.dtype) for k, g in perturbed.items()}


def mix(natural: Mapping[Key, Tensor], perturbed: Mapping[Key, Tensor], *, lam: float) -> dict[Key, Tensor]:
    """Combine the two gradients as line 5 of Algorithm 1 does: lam * g(theta + delta) + (1 - lam) * g(theta).

    Args:
        natural: g(theta).
        perturbed: g(theta + delta).
        lam: Weight of the perturbed gradient, between 0 and 1.

    Returns:
        The combined gradient for each key of either side; a gradient that is missing on one side counts as zero.

    Example:
        >>> mix({"w": torch.tensor([1.0])}, {"w": torch.tensor([3.0])}, lam=0.5)
        {'w': tensor([2.])}
    """
    return {k: mix_tensors(natural.get(k), perturbed.get(k), lam=lam) for k in {**natural, **perturbed}}


def mix_tensors(natural: Tensor | None, perturbed: Tensor | None, *, lam: float | Tensor) -> Tensor:
    """Combine the two gradients of one parameter, or of one parameter of each member of a stack, as `mix` does.

    Args:
        natural: g(theta); None counts as zero.
        perturbed: g(theta + delta); None counts as zero, but one of the two must be given.
        lam: Weight of the perturbed gradient, between 0 and 1; for a stack one number a member, [b]. A member whose
            weight is 0 has the natural gradient, also where the perturbed one is not finite.

    Returns:
        The combined gradient.

    Raises:
        ValueError: If both are None.

    Example:
        >>> mix_tensors(torch.tensor([1.0]), torch.tensor([3.0]), lam=0.5)
        tensor([2.])
    """
    if natural is None and perturbed is None:
        raise ValueError("expected one gradient at least, got None for both")
    if not isinstance(lam, Tensor):
        if perturbed is None:
            return natural * (1 - lam)  # type: ignore[operator, return-value]
        return perturbed * lam if natural is None else torch.lerp(natural, perturbed, lam)
    one = natural if perturbed is None else perturbed
    assert one is not None
    weight = lam.to(one.dtype).reshape(-1, *[1] * (one.dim() - 1))
    at_theta = torch.zeros_like(one) if natural is None else natural
    at_shifted = torch.zeros_like(one) if perturbed is None else perturbed
    return torch.where(weight == 0, at_theta, torch.lerp(at_theta, at_shifted, weight))


def copy_into(theta: Mapping[Key, Tensor], values: Mapping[Key, Tensor]) -> None:
    """Overwrite tensors of `theta` with the given values, bit for bit and unseen by autograd.

    Args:
        theta: The tensors to overwrite, parameters or not.
        values: The new values, for some or all keys of `theta`.
    """
    for n, value in values.items():
        theta[n].detach().copy_(value)


def substituted_parameters(model: nn.Module, substitutes: Mapping[Tensor, Tensor]) -> AbstractContextManager[None]:
    """Let the model compute with other tensors in place of its parameters; gradients flow through the substitutes.

    Args:
        model: The module. A shared parameter is substituted wherever it is used.
        substitutes: The tensor that takes the place of each parameter; the other parameters stay.

    Returns:
        A context manager. When it ends, the model has its own parameters again.
    """
    return _swapped(model, "_parameters", lambda p: substitutes.get(p, p))


def isolated_buffers(model: nn.Module) -> AbstractContextManager[None]:
    """Let the model work on copies of its buffers, so that extra passes leave batch-norm statistics unchanged.

    Args:
        model: The module whose buffers are protected.

    Returns:
        A context manager. When it ends, the model has its original, unchanged buffers again.
    """
    return _swapped(model, "_buffers", lambda b: b.detach().clone())


@contextmanager
def _swapped(model: nn.Module, slots: str, new: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Replace each tensor in the modules' dicts of parameters or buffers, and put the old ones back at the end."""
    places = [(s, name, old) for m in model.modules() for s in [getattr(m, slots)] for name, old in s.items()]
    try:
        for slot, name, old in places:
            slot[name] = None if old is None else new(old)
        yield
    finally:
        for slot, name, old in places:
            slot[name] = old
