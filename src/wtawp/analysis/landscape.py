"""The loss along straight lines and on planes through the weights (sec:loss_landspace, fig:lossland).

If the loss takes stacks of weights, as `LossOn` does, the points of a line or plane are evaluated as one ensemble; any
other loss is evaluated point by point. Losses that are not finite are returned unchanged; `num_non_finite` counts them.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from wtawp.analysis.losses import LossFn, TakesStacks, loss_and_gradient, refuse_training_mode, trainable
from wtawp.analysis.shifted_weights import shifted_weights
from wtawp.base import checked_seed, rng
from wtawp.core import project, select
from wtawp.core.config import Layers
from wtawp.models.capabilities import StackAware, StackAwareOnGraphs

Scale = Literal["unit", "layer", "filter"]
Direction = Mapping[str, Tensor]  # name of a parameter -> how it moves, in its shape
POINTS_PER_STACK = {"cpu": 16, "cuda": 256}  # by type of device


def random_direction(model: nn.Module, *, seed: int, number: int = 0, scale: Scale = "unit") -> dict[str, Tensor]:
    """Draw a Gaussian direction over all trainable parameters.

    Args:
        model: The model whose parameters the direction moves.
        seed: Seed of a sequence of directions; the same on every device.
        number: Which direction of that sequence to return.
        scale: How the direction is normalised. "unit" (the paper's): to length 1 over all parameters. "layer": in
            each parameter to the length of its weights, so that models with weights of different size can be
            compared. "filter": likewise in each filter (Li et al. 2018), which is the set of weights that lead to one
            output unit; vectors, such as biases, count as one filter.

    Returns:
        For each parameter's name, a tensor of its shape.

    Raises:
        ValueError: If `scale` is none of the three, or the model has no trainable parameters.

    Example:
        >>> direction = random_direction(nn.Linear(3, 2), seed=0)
        >>> round(float(torch.cat([d.flatten() for d in direction.values()]).norm()), 4)
        1.0
    """
    seed = checked_seed(seed)
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
        # In our models the vectors of attention have one row for each head.
        along = None if whole else (-2,) if ours and name.endswith("weight") else tuple(range(1, t.dim()))
        norms: Tensor = torch.linalg.vector_norm(t, dim=along, keepdim=True)
        return norms

    return {n: d * (lengths(n, theta[n].detach()) / lengths(n, d)) for n, d in u.items()}


def adversarial_direction(
    model: nn.Module, loss_fn: LossFn, *, layers: Layers = "all-but-last", unit: Literal["layer", "global"] = "layer"
) -> dict[str, Tensor]:
    """The direction of steepest ascent of the loss, as WT-AWP takes it.

    The point at distance rho along it is the weights after one perturbation of radius rho.

    Args:
        model: A model in evaluation mode.
        loss_fn: Returns the loss at the model's present weights.
        layers: Which parameters move, as in `AwpConfig`; the default is what WT-AWP perturbs.
        unit: Normalisation. "layer": in each chosen parameter to the length of its weights, as in the paper;
            "global": to length 1 over all chosen parameters, as in SAM.

    Returns:
        For each chosen parameter's name, a tensor of its shape.

    Raises:
        ValueError: If a module is in training mode, or `layers` match no parameter.
    """
    refuse_training_mode(model)
    named = dict(model.named_parameters())
    theta = {n: named[n] for n in select(model, layers, outputs=loss_fn)}
    _, gradient = loss_and_gradient(loss_fn, theta)
    with torch.no_grad():
        return project(gradient, theta, rho=1.0, radius=unit, onto="sphere")


def direction_between(model: nn.Module, other: nn.Module) -> dict[str, Tensor]:
    """The direction from the weights of one model to those of another of the same architecture.

    Parameters move and buffers do not: the averages of a batch norm remain those of `model`.

    Args:
        model: The model at distance 0.
        other: The model at distance 1.

    Returns:
        For each trainable parameter's name, the difference of its weights.

    Raises:
        ValueError: If `other` lacks a parameter of `model`, or has one of another shape.

    Example:
        >>> first, second = nn.Linear(3, 2), nn.Linear(3, 2)
        >>> bool(torch.allclose(first.bias + direction_between(first, second)["bias"], second.bias))
        True
    """
    theta = trainable(model)
    ends = {n: p.detach() for n, p in other.named_parameters() if n in theta}
    _check_direction(theta, ends, "the other model")
    if missing := [n for n in theta if n not in ends]:
        raise ValueError(f"the other model has no parameter {missing[0]!r}; both must have the same architecture")
    return {n: ends[n].to(p) - p.detach() for n, p in theta.items()}


@torch.no_grad()
def losses_at(
    model: nn.Module, loss_fn: LossFn, directions: Sequence[Direction], coordinates: Tensor
) -> Tensor:  # [k, m] -> [k] float64, on the CPU
    """Evaluate the loss at theta + sum_j t_j u_j, for m directions u and each row t of the coordinates.

    Args:
        model: A model in evaluation mode; its weights are the same afterwards.
        loss_fn: Returns the loss at the model's present weights.
        directions: The m directions; each may move any of the trainable parameters.
        coordinates: A [k, m] tensor: for each of k points, the distance along each direction.

    Returns:
        The k losses, in float64 on the CPU.

    Raises:
        ValueError: If a direction names or shapes a parameter that the model does not have, no parameter moves, the
            coordinates do not have one column for each direction, or a module is in training mode.
    """
    refuse_training_mode(model)
    theta = trainable(model)
    for number, direction in enumerate(directions):
        _check_direction(theta, direction, f"direction {number}")
    if coordinates.dim() != 2 or coordinates.shape[1] != len(directions):
        expected = f"[k, {len(directions)}]"
        raise ValueError(f"coordinates must be {expected}, one for each direction, got {list(coordinates.shape)}")
    names = [n for n in theta if any(n in u for u in directions)]
    if not names:
        raise ValueError(f"the directions move no parameter; they may move {list(theta)}")
    takes_stacks: object = loss_fn
    if isinstance(takes_stacks, TakesStacks):
        size = POINTS_PER_STACK.get(next(iter(theta.values())).device.type, POINTS_PER_STACK["cpu"])
        parts = [takes_stacks.of(_stack(theta, names, directions, part)) for part in torch.split(coordinates, size)]
        return torch.cat(parts).double().cpu()
    losses = []
    for row in coordinates:
        by = {n: p[0] - theta[n].detach() for n, p in _stack(theta, names, directions, row[None]).items()}
        with shifted_weights(theta, by):
            losses.append(float(loss_fn()))
    return torch.tensor(losses, dtype=torch.float64)


def _stack(
    theta: Mapping[str, Tensor], names: Sequence[str], directions: Sequence[Direction], at: Tensor
) -> dict[str, Tensor]:  # at [b, m] -> name -> [b, ...]
    """The weights of the named parameters at b points."""
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
    """Evaluate L(theta + t u) for each distance t along one direction u.

    Args:
        model: A model in evaluation mode; its weights are the same afterwards.
        loss_fn: Returns the loss at the model's present weights.
        direction: The direction u: for each parameter that moves, its name and a tensor of its shape.
        distances: The distances t, in lengths of the direction; 0 is the model itself.

    Returns:
        One loss for each distance, in float64 on the CPU.

    Example:
        >>> model = nn.Linear(1, 1, bias=False).eval()
        >>> u = {"weight": 1 - model.weight.detach()}
        >>> loss_along(model, lambda: model.weight.sum(), u, [1.0])
        tensor([1.], dtype=torch.float64)
    """
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
    """Evaluate L(theta + t u) for each distance t along several random directions u (fig:lossland).

    Args:
        model: A model in evaluation mode; its weights are the same afterwards.
        loss_fn: Returns the loss at the model's present weights.
        distances: The distances t, in lengths of a direction; 0 is the model itself.
        seed: Seed of the directions.
        num_directions: How many directions to draw, at least 1; the paper averages over 10.
        scale: Normalisation of the directions, see `random_direction`; "unit" is the paper's.

    Returns:
        The losses [num_directions, number of distances], in float64 on the CPU.

    Raises:
        ValueError: If `num_directions` is below 1, or as in `random_direction` and `losses_at`.
    """
    seed = checked_seed(seed)
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
    """Evaluate L(theta + s u + t v) on a grid of s and t.

    Args:
        model: A model in evaluation mode; its weights are the same afterwards.
        loss_fn: Returns the loss at the model's present weights.
        u: The first direction.
        v: The second direction.
        along_u: The distances s, one for each row of the result.
        along_v: The distances t, one for each column.

    Returns:
        The losses [number of s, number of t], in float64 on the CPU.
    """
    sides = [torch.tensor(side, dtype=torch.float64) for side in (along_u, along_v)]
    return losses_at(model, loss_fn, [u, v], torch.cartesian_prod(*sides)).view(len(along_u), len(along_v))


def num_non_finite(losses: Tensor) -> int:
    """Count the losses that are infinite or NaN, which figures draw as gaps.

    Args:
        losses: Losses in a tensor of any shape.

    Returns:
        Their number.

    Example:
        >>> num_non_finite(torch.tensor([1.0, float("inf"), float("nan")]))
        2
    """
    return int((~torch.isfinite(losses)).sum())


def _check_direction(theta: Mapping[str, Tensor], direction: Direction, what: str) -> None:
    """Refuse a direction with a name or shape that no trainable parameter has."""
    for n, d in direction.items():
        if n not in theta:
            raise ValueError(f"{what} moves {n!r}, which is no trainable parameter; these are {list(theta)}")
        if d.shape != theta[n].shape:
            raise ValueError(f"{what} has shape {list(d.shape)} at {n}, the parameter {list(theta[n].shape)}")
