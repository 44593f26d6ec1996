"""Algorithm 1 of the paper (alg:2): the one definition that every part of the package uses.

Lines 3 to 5 of an epoch, with the parameters theta = [theta^(awp); theta^(normal)]:

    3.  compute the loss L(theta) and its gradient g(theta)             by the caller, argument `natural_gradient`
    4.  compute the perturbation delta of theta^(awp) by Eq. 5 (eq:est)                   `compute_delta`
    5.  g = lam * g(theta + [delta, 0]) + (1 - lam) * g(theta)                            `compute_gradient`

Line 6, the update of theta, belongs to the optimizer. `WTAWP.backward` runs the algorithm on one model and keys its
tensors by the parameters themselves; the training of stacks keys them by name. Nothing here
reads a value on the host, so the stacked step can be captured as a CUDA graph.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from wtawp.core.auto import gradient_limit
from wtawp.core.config import AwpConfig
from wtawp.core.perturb import ascend, clip_relative_norm, mix_tensors, project

Key = TypeVar("Key")
CHUNK = 1 << 20  # elements of the gradients that are mixed at once, by one kernel of a GPU
_OfTensors = Callable[..., dict[Key, Tensor]]  # a function of tensors, and of dicts of tensors
MapOverMembers = Callable[[_OfTensors[Key]], _OfTensors[Key]]


def _one_model(function: _OfTensors[Key]) -> _OfTensors[Key]:
    """Leave a function as it is: the tensors belong to one model, not to a stack."""
    return function


def compute_delta(
    ascent_gradient: Mapping[Key, Tensor],
    *,
    theta: Mapping[Key, Tensor],
    perturbed: Collection[Key],
    config: AwpConfig,
    gradient_at: Callable[[Mapping[Key, Tensor]], Mapping[Key, Tensor]],
    map_members: MapOverMembers[Key] = _one_model,
    rho: Tensor | None = None,
) -> dict[Key, Tensor]:
    """Compute the weight perturbation delta: line 4 of Algorithm 1, by Eq. 5 (eq:est).

    With several steps all parameters in `theta` climb together, as in the released code; only the perturbed ones are
    kept at the end, where the sum of the steps is projected once.

    Args:
        ascent_gradient: The gradient of the loss at theta, which is the direction of the first step. Parameters that
            the loss does not use may be missing.
        theta: The current value of each parameter that may change during the ascent.
        perturbed: The keys of theta^(awp), the parameters that delta changes (Eq. 9).
        config: The options of the method.
        gradient_at: Returns the gradient of the loss at theta + step. It is called steps - 1 times.
        map_members: Turns a function of one model's tensors into one of a stack of models, as `torch.func.vmap` does,
            so that each member is projected by its own norms. The default is for one model.
        rho: The radius of each member of a stack, [b]; None takes that of `config`.

    Returns:
        The perturbation of each parameter in `perturbed` that has a gradient.
    """
    chosen = [key for key in perturbed if key in ascent_gradient]
    climbing = chosen if config.steps == 1 else [key for key in ascent_gradient if key in theta]
    with torch.set_grad_enabled(config.exact):  # delta is a constant unless its own derivative is wanted
        first = {key: ascent_gradient[key] for key in climbing}
        total = ascend(first, gradient_at, steps=config.steps, step_size=config.step_size)
        step = total if climbing is chosen else {key: total[key] for key in chosen}
        if not step:
            return {}
        start = theta if theta.keys() == step.keys() else {key: theta[key] for key in step}
        if rho is None:
            return map_members(partial(project, rho=config.rho, radius=config.radius, onto=config.projection))(
                step, start
            )
        onto_radius: _OfTensors[Key] = partial(project, radius=config.radius, onto=config.projection)
        return map_members(lambda step, theta, rho: onto_radius(step, theta, rho=rho))(step, start, rho)


def compute_gradient(
    natural_gradient: dict[Key, Tensor],
    *,
    theta: Mapping[Key, Tensor],
    perturbed: Collection[Key],
    config: AwpConfig,
    gradient_at: Callable[[Mapping[Key, Tensor]], Mapping[Key, Tensor]],
    perturbed_gradient: Callable[[dict[Key, Tensor]], dict[Key, Tensor]],
    ascent_gradient: Mapping[Key, Tensor] | None = None,
    map_members: MapOverMembers[Key] = _one_model,
    lam: Tensor | None = None,
    rho: Tensor | None = None,
) -> Iterator[tuple[Key, Tensor]]:
    """Compute the gradient to descend along: lines 4 and 5 of Algorithm 1, from the natural gradient of line 3.

    All passes over the model are finished when this function returns. The two gradients are then clipped, and mixed
    while the caller iterates, small parameters together and large ones one at a time. They are released as soon as they
    have been used, so that the mixed gradients need no memory of their own; for this purpose the iteration empties
    `natural_gradient`.

    Args:
        natural_gradient: g(theta), line 3, for every parameter that is trained.
        theta: The current value of each parameter that may change during the ascent.
        perturbed: The keys of theta^(awp), the parameters that delta changes (Eq. 9).
        config: The options of the method.
        gradient_at: Returns the gradient of the loss at theta + step, for the ascent. It is called steps - 1 times.
        perturbed_gradient: Returns g(theta + delta) for every parameter that is trained. It is called once, and may
            empty the dict it is given to release the memory of delta.
        ascent_gradient: The gradient that the ascent starts with. None means `natural_gradient`; it differs where the
            natural gradient contains a term, such as a regularizer, that delta is not meant to raise.
        map_members: Turns a function of one model's tensors into one of a stack of models, as `torch.func.vmap` does.
        lam: The weight of each member of a stack, [b]; None takes that of `config`.
        rho: The radius of each member of a stack, [b], likewise.

    Returns:
        An iterator over the parameters' keys and lam * g(theta + delta) + (1 - lam) * g(theta). A gradient that is
        missing on one side counts as zero.
    """
    delta = compute_delta(
        natural_gradient if ascent_gradient is None else ascent_gradient,
        theta=theta,
        perturbed=perturbed,
        config=config,
        gradient_at=gradient_at,
        map_members=map_members,
        rho=rho,
    )
    return combine_gradients(natural_gradient, perturbed_gradient(delta), config, map_members, lam)


def combine_gradients(
    natural: dict[Key, Tensor],
    perturbed: dict[Key, Tensor],
    config: AwpConfig,
    map_members: MapOverMembers[Key] = _one_model,
    lam: Tensor | None = None,
) -> Iterator[tuple[Key, Tensor]]:
    """Combine the two gradients, one parameter after another: line 5 of Algorithm 1.

    Args:
        natural: g(theta). It is emptied on the way, so that the mixed gradients need no memory of their own.
        perturbed: g(theta + delta). It is emptied on the way, too.
        config: The options of the method.
        map_members: Turns a function of one model's tensors into one of a stack of models, as `torch.func.vmap` does.
        lam: The weight of each member of a stack, [b]; None takes that of `config`, which must be a number then.

    Returns:
        An iterator over the parameters' keys and lam * g(theta + delta) + (1 - lam) * g(theta).
    """
    weight = config.fixed_lam if lam is None else lam
    if config.balance == "auto":  # neither limit is in the paper: they tame a perturbed gradient that explodes
        perturbed = map_members(clip_relative_norm)(perturbed, natural, gradient_limit(weight))
    elif config.balance is not None:
        clip: _OfTensors[Key] = partial(clip_relative_norm, balance=config.balance)
        perturbed = map_members(clip)(perturbed, natural)
    if not isinstance(weight, Tensor):
        for keys in _chunks(natural, perturbed):
            sides = list(map(natural.pop, keys)), list(map(perturbed.pop, keys))
            yield from zip(keys, torch._foreach_lerp(*sides, weight), strict=True)
    for key in list(natural | perturbed) if natural or perturbed else ():
        yield key, mix_tensors(natural.pop(key, None), perturbed.pop(key, None), lam=weight)


def _chunks(natural: Mapping[Key, Tensor], perturbed: Mapping[Key, Tensor]) -> list[list[Key]]:
    """The keys of ordinary tensors on both sides, in groups that are small enough to be mixed at once.

    One kernel of a GPU can then mix a group. Old and new values of a group exist side by side for a moment, so that a
    large tensor is a group of its own.
    """
    chunks: list[list[Key]] = []
    room = 0
    for key, tensor in natural.items():
        if key in perturbed and type(tensor) is Tensor:  # not a distributed one
            size = tensor.numel()
            if size > room or not chunks:
                chunks.append([])
                room = CHUNK
            room -= size
            chunks[-1].append(key)
    return chunks
