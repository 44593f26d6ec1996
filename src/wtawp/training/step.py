"""One WT-AWP gradient for a whole stack of models, from the core's pure functions (Algorithm 1, lines 3 to 5)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.func import vmap

from wtawp.core import AwpConfig, ascend, clip_relative_norm, mix, project

Stack = dict[str, Tensor]  # name -> [b, ...]
# Weights, number of the pass -> [b]; of pass 0 also the terms that the models add to their loss themselves, if any.
Losses = Callable[[Stack, int], Tensor | tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class StackGradient:
    """The gradient to descend along, and what was met on the way; everything [b] or stacked."""

    gradient: Stack
    loss: Tensor  # L(theta), with the term of the model's own
    gap: Tensor  # L(theta + delta) - L(theta)
    natural_norm: Tensor  # |g(theta)|
    perturbed_norm: Tensor  # |g(theta + delta)|
    weight_norm: Tensor  # |theta|


def stack_gradient(losses: Losses, theta: Stack, names: Sequence[str], config: AwpConfig | None) -> StackGradient:
    """Lam * g(theta + delta) + (1 - lam) * g(theta) for each member; `names` are the perturbed parameters.

    `losses` is called with pass 0 at theta, then with the passes of the ascent, then at theta + delta: each pass has
    dropout masks of its own. Members do not meet, so one backward pass of the sum gives each its own gradient. A term
    of the model's own counts in g(theta) and not in the ascent: delta is to raise L, as in the released code.
    """
    exact = config is not None and config.exact
    found = losses(theta, 0)
    loss, extra = found if isinstance(found, tuple) else (found, None)
    if extra is None or config is None or config.is_plain:
        steepest = natural = _gradient(loss if extra is None else loss + extra, theta, create_graph=exact)
    else:
        steepest = _gradient(loss, theta, create_graph=exact, again=True)
        natural = _added(steepest, _gradient(extra, theta, create_graph=exact))
    whole = (loss if extra is None else loss + extra).detach()
    norm, size = _norm(natural), _norm({n: w for n, w in theta.items() if w.requires_grad})
    if config is None or config.is_plain:
        return StackGradient(natural, whole, torch.zeros_like(norm), norm, norm, size)

    passes = iter(range(1, config.steps + 1))

    def gradient_at(step: Mapping[str, Tensor]) -> Stack:
        with torch.enable_grad():
            at = {n: theta[n] + s for n, s in step.items()}
            at = at if exact else {n: w.detach().requires_grad_() for n, w in at.items()}
            return _gradient(_plain(losses({**theta, **at}, next(passes))), at, create_graph=exact)

    first = steepest if config.steps > 1 else {n: steepest[n] for n in names if n in steepest}
    with torch.set_grad_enabled(exact):
        step = ascend(first, gradient_at, steps=config.steps, step_size=config.step_size)
        step = {n: step[n] for n in names if n in step}
        pull = partial(project, rho=config.rho, radius=config.radius, onto=config.projection)
        delta = vmap(pull)(step, {n: theta[n] for n in step})
    perturbed_loss = _plain(losses({**theta, **{n: theta[n] + d for n, d in delta.items()}}, next(passes)))
    perturbed = _gradient(perturbed_loss, theta)
    perturbed_norm = _norm(perturbed)
    with torch.no_grad():
        if config.balance is not None:
            perturbed = vmap(partial(clip_relative_norm, balance=config.balance))(perturbed, natural)
        mixed = mix(natural, perturbed, lam=config.lam)  # element by element, so a stack needs no mapping
    return StackGradient(mixed, whole, (perturbed_loss - loss).detach(), norm, perturbed_norm, size)


def _plain(losses: Tensor | tuple[Tensor, Tensor]) -> Tensor:
    assert isinstance(losses, Tensor), "only pass 0 has a term of the model's own"
    return losses


def _gradient(loss: Tensor, at: Stack, *, create_graph: bool = False, again: bool = False) -> Stack:
    """Of the sum; `again`: the graph is needed for another gradient."""
    wanted = {n: w for n, w in at.items() if w.requires_grad}
    found = torch.autograd.grad(
        loss.sum(), list(wanted.values()), None, create_graph or again, create_graph, allow_unused=True
    )
    return {n: g for n, g in zip(wanted, found, strict=True) if g is not None}


def _added(one: Stack, other: Stack) -> Stack:
    both = {n: one[n] + other[n] for n in one.keys() & other.keys()}
    return {**one, **other, **both}


@torch.no_grad()
def _norm(gradient: Stack) -> Tensor:  # -> [b]
    each = [torch.linalg.vector_norm(g.flatten(1), dim=1, dtype=_wide(g)) for g in gradient.values()]
    norms: Tensor = torch.linalg.vector_norm(torch.stack(each), dim=0)
    return norms


def _wide(t: Tensor) -> torch.dtype:
    return torch.promote_types(t.dtype, torch.float32)
