"""One WT-AWP gradient for a whole stack of models: Algorithm 1 of `wtawp.core.algorithm`, mapped over the members."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor
from torch.func import vmap

from wtawp.core import AwpConfig, compute_gradient

Stack = dict[str, Tensor]  # name -> [b, ...]
# Weights and the number of the pass -> losses [b]. Pass 0 also returns the terms that models add to their loss, if any.
Losses = Callable[[Stack, int], Tensor | tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Strength:
    """How strongly each member of a stack is perturbed.

    Attributes:
        lam: The weight of the perturbed loss, [b].
        rho: The radius, [b].
    """

    lam: Tensor
    rho: Tensor


@dataclass(frozen=True)
class Substitutes:
    """What takes the place of gradients of Algorithm 1, as `direction` and `perturbed_gradient` of `AwpConfig` say.

    Attributes:
        direction: Returns the direction of the perturbation; None takes the gradient of the loss at theta.
        perturbed_losses: Called with the perturbed weights and the number of the pass; returns the losses of which
            g(theta + delta) is the gradient, [b], and the losses there that are recorded, [b]. None takes the losses.
    """

    direction: Callable[[], Stack] | None = None
    perturbed_losses: Callable[[Stack, int], tuple[Tensor, Tensor]] | None = None


@dataclass(frozen=True)
class StackGradient:
    """The gradient to descend along, with the by-products of computing it. Tensors end in [b] or are stacked.

    Attributes:
        gradient: For each parameter that has one, lam * g(theta + delta) + (1 - lam) * g(theta).
        loss: L(theta), including the term that the models add themselves; L(theta + delta) if g(theta) is not needed.
        own_loss: L(theta) without the term that the models add themselves.
        rise: L(theta + delta) - L(theta), without that term; NaN if g(theta) is not needed.
        natural_norm: Norm of g(theta), likewise.
        perturbed_norm: Norm of g(theta + delta), before it is clipped; that of g(theta) without perturbation.
        weight_norm: Norm of theta.
    """

    gradient: Stack
    loss: Tensor
    own_loss: Tensor
    rise: Tensor
    natural_norm: Tensor
    perturbed_norm: Tensor
    weight_norm: Tensor


def stack_gradient(
    losses: Losses,
    theta: Stack,
    names: Sequence[str],
    config: AwpConfig | None,
    strength: Strength | None = None,
    substitutes: Substitutes | None = None,
) -> StackGradient:
    """Compute lam * g(theta + delta) + (1 - lam) * g(theta) for each member of a stack.

    Members do not interact, so one backward pass of the sum of their losses gives each its own gradient. A term that
    the models add to their loss counts in g(theta) and not in the ascent: as in the released code, delta is to raise
    the loss itself. Nothing here waits for a GPU or depends on values, so that a CUDA graph can record it.

    Args:
        losses: Computes the losses of all members. It is called with pass 0 at theta, then with the passes of the
            ascent, and at last at theta + delta; each pass draws dropout masks of its own.
        theta: The stacked weights; those that require gradients are trained.
        names: The parameters to perturb.
        config: The options of the method; None is plain training.
        strength: The weight and the radius of each member, if `config` leaves them to the training. A member whose
            weight is 0 has what plain training gives it.
        substitutes: What takes the place of the direction and of the perturbed losses; None, of neither.

    Returns:
        The gradient, and the losses and norms that were computed on the way.
    """
    is_plain, exact = config is None or config.is_plain, config is not None and config.exact
    substitutes = Substitutes() if substitutes is None else substitutes
    if config is not None and not is_plain and not config.needs_natural_gradient:
        return _perturbed_gradient_alone(losses, theta, names, config, substitutes)
    first = losses(theta, 0)
    loss, extra = first if isinstance(first, tuple) else (first, None)
    if extra is None or is_plain:
        ascent = natural = _gradient(loss if extra is None else loss + extra, theta, create_graph=exact)
    else:
        ascent = _gradient(loss, theta, create_graph=exact, retain_graph=True)
        natural = _sum(ascent, _gradient(extra, theta, create_graph=exact))
    own, total = loss.detach(), (loss if extra is None else loss + extra).detach()
    natural_norm, weight_norm = _norm(natural), _norm({n: w for n, w in theta.items() if w.requires_grad})
    if config is None or is_plain:
        unchanged = torch.zeros_like(natural_norm)
        return StackGradient(natural, total, own, unchanged, natural_norm, natural_norm, weight_norm)
    if substitutes.direction is not None:
        ascent = substitutes.direction()
    passes = count(1)
    by_products: dict[str, Tensor] = {}

    @torch.enable_grad()
    def gradient_at(step: Mapping[str, Tensor]) -> Stack:
        shifted = {n: theta[n] + s for n, s in step.items()}
        shifted = shifted if exact else {n: w.detach().requires_grad_() for n, w in shifted.items()}
        return _gradient(_without_extra(losses({**theta, **shifted}, next(passes))), shifted, create_graph=exact)

    @torch.enable_grad()
    def perturbed_gradient(delta: Mapping[str, Tensor]) -> Stack:
        shifted = {n: theta[n] + d for n, d in delta.items()}
        if substitutes.perturbed_losses is None:
            perturbed_loss = differentiated = _without_extra(losses({**theta, **shifted}, next(passes)))
        else:
            differentiated, perturbed_loss = substitutes.perturbed_losses({**theta, **shifted}, next(passes))
        gradient = _gradient(differentiated, theta)
        by_products.update(rise=(perturbed_loss - loss).detach(), perturbed_norm=_norm(gradient))
        return gradient

    with torch.no_grad():
        mixed = compute_gradient(
            natural,
            theta=theta,
            perturbed=names,
            config=config,
            gradient_at=gradient_at,
            perturbed_gradient=perturbed_gradient,
            ascent_gradient=ascent,
            map_members=_map_one if len(natural_norm) == 1 else vmap,
            lam=None if strength is None else strength.lam,
            rho=None if strength is None else strength.rho,
        )
        gradient = dict(mixed)
        if strength is not None:
            of_plain = {"rise": torch.zeros_like(natural_norm), "perturbed_norm": natural_norm}
            by_products = {
                name: torch.where(strength.lam > 0, value, of_plain[name]) for name, value in by_products.items()
            }
    return StackGradient(
        gradient=gradient, loss=total, own_loss=own, natural_norm=natural_norm, weight_norm=weight_norm, **by_products
    )


def _perturbed_gradient_alone(
    losses: Losses, theta: Stack, names: Sequence[str], config: AwpConfig, substitutes: Substitutes
) -> StackGradient:
    """The gradient g(theta + delta) in one pass, where g(theta) has no weight and the direction comes from elsewhere.

    It is the first pass of the step: it updates the buffers. A term that models add to the loss at theta has no weight
    here, as g(theta) has none.
    """
    assert substitutes.direction is not None, "without g(theta), another direction is known"
    direction, by_products = substitutes.direction(), {}

    @torch.enable_grad()
    def perturbed_gradient(delta: Mapping[str, Tensor]) -> Stack:
        first = losses({**theta, **{n: theta[n] + d for n, d in delta.items()}}, 0)
        by_products["loss"] = loss = first[0] if isinstance(first, tuple) else first
        return _gradient(loss, theta)

    weight_norm = _norm({n: w for n, w in theta.items() if w.requires_grad})
    with torch.no_grad():
        mixed = compute_gradient(
            {},
            theta=theta,
            perturbed=names,
            config=config,
            gradient_at=lambda _: {},  # never called: there is one step
            perturbed_gradient=perturbed_gradient,
            ascent_gradient=direction,
            map_members=_map_one if len(weight_norm) == 1 else vmap,
        )
        gradient = dict(mixed)
    unknown = torch.full_like(weight_norm, torch.nan)
    loss = by_products["loss"].detach()
    return StackGradient(gradient, loss, loss, unknown, unknown, _norm(gradient), weight_norm)


def _map_one(function: Callable[..., Stack]) -> Callable[..., Stack]:
    """What `vmap` does, for a stack of one member: its overhead would be a good part of a small step."""

    def mapped(*inputs: Tensor | Mapping[str, Tensor]) -> Stack:
        members = [t[0] if isinstance(t, Tensor) else {name: w[0] for name, w in t.items()} for t in inputs]
        return {name: t[None] for name, t in function(*members).items()}

    return mapped


def _without_extra(losses: Tensor | tuple[Tensor, Tensor]) -> Tensor:
    """The losses of a pass after the first one, in which models add no term."""
    assert isinstance(losses, Tensor), "only pass 0 has a term that the models add"
    return losses


def gradient_of_losses(losses: Tensor, theta: Stack) -> Stack:
    """Compute the gradient of each member's loss, in a pass of its own.

    Args:
        losses: The losses, [b].
        theta: The stacked weights.

    Returns:
        The gradient with respect to the weights that require one and are used.
    """
    return _gradient(losses, theta)


def _gradient(loss: Tensor, at: Stack, *, create_graph: bool = False, retain_graph: bool = False) -> Stack:
    """The gradient of the sum of the losses with respect to the tensors `at` that require one and are used."""
    wanted = {n: w for n, w in at.items() if w.requires_grad}
    gradients = torch.autograd.grad(
        loss.sum(), list(wanted.values()), None, create_graph or retain_graph, create_graph, allow_unused=True
    )
    return {n: g for n, g in zip(wanted, gradients, strict=True) if g is not None}


def _sum(one: Stack, other: Stack) -> Stack:
    """The sum of two gradients; one that is missing on one side counts as zero."""
    both = {n: one[n] + other[n] for n in one.keys() & other.keys()}
    return {**one, **other, **both}


@torch.no_grad()
def _norm(gradient: Stack) -> Tensor:  # -> [b]
    """The norm over all tensors, of each member."""
    tensors = list(gradient.values())
    if len(tensors[0]) == 1 and all(g.dtype in (torch.float32, torch.float64) for g in tensors):  # in one call
        return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))[None]  # type: ignore[no-any-return]
    norms = [torch.linalg.vector_norm(g.reshape(len(g), -1), dim=1, dtype=_wide(g)) for g in gradient.values()]
    total: Tensor = torch.linalg.vector_norm(torch.stack(norms), dim=0)
    return total


def _wide(t: Tensor) -> torch.dtype:
    """The type of a tensor, or float32 if that is wider."""
    return torch.promote_types(t.dtype, torch.float32)
