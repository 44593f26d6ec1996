"""How far the loss rises inside a ball of weights: the paper's generalisation gap, max L(theta + delta) - L(theta)."""

import math
from collections.abc import Mapping, Sequence
from typing import get_args

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.analysis.losses import LossFn, LossOn, loss_and_gradient, refuse_training_mode
from wtawp.analysis.shifted_weights import shifted_weights
from wtawp.base import AnalysisError, rng
from wtawp.core import Radius, project, select
from wtawp.core.config import Layers
from wtawp.models.adapter import evaluating

LONGEST, SHORTEST = 1e4, 1e-4  # steps of the ascent, in radii of the ball


def sharpness(
    model: nn.Module,
    loss_fn: LossFn,
    *,
    rho: float,
    layers: Layers = "all",
    radius: Radius = "layer",
    steps: int = 50,
) -> float:
    """The largest rise of the loss that `steps` steps of ascent find inside the ball, each projected back into it.

    A lower bound on the true maximum, and never negative: delta = 0 is inside. The ball is that of a perturbation:
    "layer", rho |theta_i| for each parameter; "global", rho for all together; "adaptive", rho for delta / |theta|,
    where a weight moves in proportion to its size (without ASAM's floor under |theta|, so that a model whose layers are
    rescaled against each other is as sharp as before; "layer" has that property too, "global" does not). What moves is
    what AWP perturbs, `layers` of weights: biases stay; ("*",) moves them too.
    """
    return sharpness_over(model, loss_fn, [rho], layers=layers, radius=radius, steps=steps)[0]


def sharpness_over(
    model: nn.Module,
    loss_fn: LossFn,
    rhos: Sequence[float],
    *,
    layers: Layers = "all",
    radius: Radius = "layer",
    steps: int = 50,
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


class SharpnessMonitor:
    """Sharpness while a model is trained: to be called with a model and an epoch, as `fit(observe=...)` does.

    It looks at the training loss, without dropout, in epochs 0, EVERY, 2 EVERY, ..., with one radius for all methods;
    `history` has a column `sharpness_<radius>` for each kind of ball. Where the loss is not finite it is NaN.
    """

    EVERY = 10

    def __init__(self, data: Data, samples: Tensor, *, rhos: Mapping[Radius, float], steps: int = 20) -> None:
        self.data, self.samples, self.rhos, self.steps = data, samples, dict(rhos), steps
        self.history: dict[str, list[float]] = {f"sharpness_{radius}": [] for radius in rhos}

    def __call__(self, model: nn.Module, epoch: int) -> None:
        """Measure the model, in every tenth epoch."""
        if epoch % self.EVERY:
            return
        with evaluating(model):
            loss = LossOn(model, self.data, self.samples)
            with torch.no_grad():
                is_finite = bool(loss().isfinite())
            for radius, rho in self.rhos.items():
                found = sharpness(model, loss, rho=rho, radius=radius, steps=self.steps) if is_finite else math.nan
                self.history[f"sharpness_{radius}"].append(found)


def _climb(
    theta: dict[str, nn.Parameter],
    loss_fn: LossFn,
    start: tuple[float, dict[str, Tensor]],
    rho: float,
    radius: Radius,
    steps: int,
) -> float:
    """The highest loss on a way that only goes up; infinite as soon as one is, or is not a number.

    A step that goes up is followed by one twice as long, one that does not is taken back and tried again at a quarter:
    near a maximum on the rim, long steps converge as power iterations do.
    """
    highest, gradient = start
    unit = {n: w.detach().abs() for n, w in theta.items()} if radius == "adaptive" else None
    shape: Radius = "global" if radius == "adaptive" else radius  # in the coordinates delta / unit
    inside = {n: torch.zeros_like(w) for n, w in theta.items()}
    if not any(bool(g.any()) for g in gradient.values()):  # at a minimum every direction is as good
        generator = rng("sharpness")
        gradient = {n: torch.randn(w.shape, generator=generator).to(w) for n, w in theta.items()}
    length = 0.5
    for _ in range(steps):
        with torch.no_grad():
            slope = gradient if unit is None else {n: g * unit[n] for n, g in gradient.items()}
            step = project(slope, theta, rho=length * rho, radius=shape, onto="sphere")
            tried = project({n: inside[n] + s for n, s in step.items()}, theta, rho=rho, radius=shape, onto="ball")
            delta = tried if unit is None else {n: d * unit[n] for n, d in tried.items()}
        with shifted_weights(theta, delta):
            loss, slopes = loss_and_gradient(loss_fn, theta)
        if not math.isfinite(loss):
            return math.inf
        if loss > highest:
            highest, gradient, inside, length = loss, slopes, tried, min(2 * length, LONGEST)
        elif length < SHORTEST:
            break
        else:
            length /= 4
    return highest
