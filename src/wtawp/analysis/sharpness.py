"""How far the loss rises inside a ball of weights: the paper's generalisation gap, max L(theta + delta) - L(theta)."""

import math
from collections.abc import Sequence
from typing import get_args

import torch
from torch import Tensor, nn

from wtawp.analysis.losses import LossFn, loss_and_gradient, refuse_training_mode
from wtawp.analysis.moved import moved
from wtawp.base import AnalysisError
from wtawp.core import Radius, project, select
from wtawp.core.awp import Layers


def sharpness(
    model: nn.Module,
    loss_fn: LossFn,
    *,
    rho: float,
    layers: Layers = "all",
    radius: Radius = "layer",
    steps: int = 10,
) -> float:
    """The largest rise of the loss met while climbing inside the ball, projected after each of `steps` steps.

    A lower bound on the true maximum, and never negative: delta = 0 is inside. The ball is that of a perturbation:
    "layer", rho |theta_i| for each parameter; "global", rho for all together; "adaptive", rho for delta / |theta|,
    where a weight moves in proportion to its size (without ASAM's floor under |theta|, so that a model whose layers are
    rescaled against each other is as sharp as before; "layer" has that property too, "global" does not).
    """
    return sharpness_over(model, loss_fn, [rho], layers=layers, radius=radius, steps=steps)[0]


def sharpness_over(
    model: nn.Module,
    loss_fn: LossFn,
    rhos: Sequence[float],
    *,
    layers: Layers = "all",
    radius: Radius = "layer",
    steps: int = 10,
) -> list[float]:
    """The same for several radii, in their order: a smaller ball lies in a larger one, so it never falls with rho."""
    if radius not in get_args(Radius):
        raise ValueError(f"radius must be one of {get_args(Radius)}, got {radius!r}")
    if steps < 1 or not all(0 <= rho < math.inf for rho in rhos):
        raise ValueError(f"steps must be >= 1 and rho finite and >= 0, got {steps} and {list(rhos)}")
    refuse_training_mode(model)
    named = dict(model.named_parameters())
    theta = {n: named[n] for n in select(model, layers)}
    start = loss_and_gradient(loss_fn, theta)
    if not math.isfinite(start[0]):
        raise AnalysisError(f"the loss of the model is {start[0]} before anything moves; there is nothing to climb")
    found, highest = {}, start[0]
    for rho in sorted(set(rhos)):
        highest = max(highest, _climb(theta, loss_fn, start, rho, radius, steps))
        found[rho] = highest - start[0]
    return [found[rho] for rho in rhos]


def _climb(
    theta: dict[str, nn.Parameter],
    loss_fn: LossFn,
    start: tuple[float, dict[str, Tensor]],
    rho: float,
    radius: Radius,
    steps: int,
) -> float:
    """The highest loss on the way; infinite as soon as one is, or is not a number."""
    highest, gradient = start
    unit = {n: w.detach().abs() for n, w in theta.items()} if radius == "adaptive" else None
    shape: Radius = "global" if radius == "adaptive" else radius  # in the coordinates delta / unit
    inside = {n: torch.zeros_like(w) for n, w in theta.items()}
    for _ in range(steps):
        with torch.no_grad():
            slope = gradient if unit is None else {n: g * unit[n] for n, g in gradient.items()}
            # A step as long as a quarter of the radius, whatever the gradient's length: ten of them cross the ball.
            step = project(slope, theta, rho=rho / 4, radius=shape, onto="sphere")
            inside = project({n: inside[n] + s for n, s in step.items()}, theta, rho=rho, radius=shape, onto="ball")
            delta = inside if unit is None else {n: d * unit[n] for n, d in inside.items()}
        with moved(theta, delta):
            loss, gradient = loss_and_gradient(loss_fn, theta)
        if not math.isfinite(loss):
            return math.inf
        highest = max(highest, loss)
    return highest
