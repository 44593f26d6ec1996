"""The loss along straight lines and on planes through the weights (sec:loss_landspace, fig:lossland).

All points of a line or plane are one ensemble, if the loss takes stacks of weights (`LossOn` does); any other loss
is asked point by point. A loss that is not finite stays as it is in what is returned: `num_gaps` counts them.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from wtawp.analysis.losses import LossFn, TakesStacks, loss_and_gradient, refuse_training_mode, trainable
from wtawp.analysis.shifted_weights import shifted_weights
from wtawp.base import rng
from wtawp.core import project, select
from wtawp.core.config import Layers
from wtawp.models.adapter import StackAware, StackAwareOnGraphs

Scale = Literal["unit", "layer", "filter"]
Direction = Mapping[str, Tensor]  # name of a parameter -> how it moves, in its shape
TOGETHER = {"cpu": 16, "cuda": 256}  # points that are evaluated as one stack


def random_direction(model: nn.Module, *, seed: int, number: int = 0, scale: Scale = "unit") -> dict[str, Tensor]:
    """The `number`-th Gaussian direction of a seed, over all trainable parameters.

    "unit": of length 1 over all of them. "layer": in each parameter as long as its weights, so that models with weights
    of different size can be compared. "filter": so in each filter (Li et al. 2018), the weights that lead to one output
    unit; vectors, such as biases, are taken whole.
    """
    if scale not in get_args(Scale):
        raise ValueError(f"scale must be one of {get_args(Scale)}, got {scale!r}")
    theta, generator = trainable(model), rng("landscape", seed, number)
    # Drawn on the CPU, so that a seed means the same line on every device.
    u = {n: torch.randn(p.shape, generator=generator).to(p) for n, p in theta.items()}
    if scale == "unit":
        total = torch.stack([d.norm() for d in u.values()]).norm()
        return {n: d / total for n, d in u.items()}
    ours = isinstance(model, StackAware | StackAwareOnGraphs)  # whose matrices are [in, out]; torch's are [out, in]

    def lengths(name: str, t: Tensor) -> Tensor:
        whole = scale == "layer" or t.dim() < 2
        # Of ours, a vector for each head of attention is a row.
        along = None if whole else (-2,) if ours and name.endswith("weight") else tuple(range(1, t.dim()))
        found: Tensor = torch.linalg.vector_norm(t, dim=along, keepdim=True)
        return found

    return {n: d * (lengths(n, theta[n].detach()) / lengths(n, d)) for n, d in u.items()}


def adversarial_direction(
    model: nn.Module, loss_fn: LossFn, *, layers: Layers = "all-but-last", unit: Literal["layer", "global"] = "layer"
) -> dict[str, Tensor]:
    """Steepest ascent of the loss, as WT-AWP climbs: in each chosen parameter as long as its weights ("layer"), or of
    length 1 over all of them ("global"). A distance of rho along it is one perturbation of radius rho.
    """
    refuse_training_mode(model)
    named = dict(model.named_parameters())
    theta = {n: named[n] for n in select(model, layers)}
    _, gradient = loss_and_gradient(loss_fn, theta)
    with torch.no_grad():
        return project(gradient, theta, rho=1.0, radius=unit, onto="sphere")


def direction_between(model: nn.Module, other: nn.Module) -> dict[str, Tensor]:
    """From the weights of one solution to those of another: `model` lies at distance 0 along it, `other` at 1.

    Parameters move, buffers do not: of a batch norm the averages of `model` stay.
    """
    there = dict(other.named_parameters())
    theta = trainable(model)
    found = {n: p.detach() for n, p in there.items() if n in theta}
    _check(theta, found, "the other solution")
    if missing := [n for n in theta if n not in found]:
        raise ValueError(f"the other solution has no parameter {missing[0]!r}; both must be of one architecture")
    return {n: found[n].to(p) - p.detach() for n, p in theta.items()}


@torch.no_grad()
def losses_at(
    model: nn.Module, loss_fn: LossFn, directions: Sequence[Direction], coordinates: Tensor
) -> Tensor:  # [k, m] -> [k] float64, on the CPU
    """The loss at theta + sum_j t_j u_j, for the m directions u and each row t of the coordinates."""
    refuse_training_mode(model)
    theta = trainable(model)
    for number, direction in enumerate(directions):
        _check(theta, direction, f"direction {number}")
    if coordinates.dim() != 2 or coordinates.shape[1] != len(directions):
        wanted = f"[k, {len(directions)}]"
        raise ValueError(f"coordinates must be {wanted}, one for each direction, got {list(coordinates.shape)}")
    names = [n for n in theta if any(n in u for u in directions)]
    if not names:
        raise ValueError(f"the directions move no parameter; they may move {list(theta)}")
    takes_stacks: object = loss_fn
    if isinstance(takes_stacks, TakesStacks):
        some = TOGETHER.get(next(iter(theta.values())).device.type, TOGETHER["cpu"])
        found = [takes_stacks.of(_stack(theta, names, directions, part)) for part in torch.split(coordinates, some)]
        return torch.cat(found).double().cpu()
    losses = []
    for row in coordinates:
        by = {n: p[0] - theta[n].detach() for n, p in _stack(theta, names, directions, row[None]).items()}
        with shifted_weights(theta, by):
            losses.append(float(loss_fn()))
    return torch.tensor(losses, dtype=torch.float64)


def _stack(
    theta: Mapping[str, Tensor], names: Sequence[str], directions: Sequence[Direction], at: Tensor
) -> dict[str, Tensor]:  # at [b, m] -> name -> [b, ...]
    stack = {}
    for n in names:
        weight = theta[n].detach()
        moving = [(j, u[n]) for j, u in enumerate(directions) if n in u]
        amounts = at[:, [j for j, _ in moving]].to(weight)  # [b, m']
        stack[n] = weight + torch.tensordot(amounts, torch.stack([u.to(weight) for _, u in moving]), 1)
    return stack


def loss_along(
    model: nn.Module, loss_fn: LossFn, direction: Direction, distances: Sequence[float]
) -> Tensor:  # -> [k] float64
    """L(theta + t u) for each distance t."""
    return losses_at(model, loss_fn, [direction], torch.tensor(distances, dtype=torch.float64)[:, None])


def loss_along_random_directions(
    model: nn.Module,
    loss_fn: LossFn,
    distances: Sequence[float],
    *,
    seed: int,
    num_directions: int = 10,
    scale: Scale = "unit",
) -> Tensor:  # -> [num_directions, k] float64
    """L(theta + t u) for each distance t and random direction u; "unit" directions are the paper's."""
    if num_directions < 1:
        raise ValueError(f"num_directions must be >= 1, got {num_directions}")
    return torch.stack([
        loss_along(model, loss_fn, random_direction(model, seed=seed, number=i, scale=scale), distances)
        for i in range(num_directions)
    ])  # fmt: skip


def losses_on_plane(
    model: nn.Module,
    loss_fn: LossFn,
    u: Direction,
    v: Direction,
    along_u: Sequence[float],
    along_v: Sequence[float],
) -> Tensor:  # -> [len(along_u), len(along_v)] float64
    """L(theta + s u + t v) on a grid of s and t."""
    sides = [torch.tensor(side, dtype=torch.float64) for side in (along_u, along_v)]
    return losses_at(model, loss_fn, [u, v], torch.cartesian_prod(*sides)).view(len(along_u), len(along_v))


def num_gaps(losses: Tensor) -> int:
    """How many losses are infinite or NaN: they are drawn as gaps."""
    return int((~torch.isfinite(losses)).sum())


def _check(theta: Mapping[str, Tensor], direction: Direction, what: str) -> None:
    for n, d in direction.items():
        if n not in theta:
            raise ValueError(f"{what} moves {n!r}, which is no trainable parameter; they are {list(theta)}")
        if d.shape != theta[n].shape:
            raise ValueError(f"{what} has shape {list(d.shape)} at {n}, the parameter {list(theta[n].shape)}")
