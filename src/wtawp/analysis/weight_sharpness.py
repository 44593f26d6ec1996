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
from wtawp.models.evaluation import evaluating

LONGEST_STEP, SHORTEST_STEP = 1e4, 1e-4  # of the ascent, in radii of the ball


def sharpness(
    model: nn.Module,
    loss_fn: LossFn,
    *,
    rho: float,
    layers: Layers = "all",
    radius: Radius = "layer",
    steps: int = 50,
) -> float:
    """The largest rise of the loss that projected gradient ascent reaches inside a ball around the weights.

    It is a lower bound on the true maximum, and never negative, because delta = 0 lies inside the ball.

    Args:
        model: A model in evaluation mode; its weights are the same afterwards.
        loss_fn: Returns the loss at the model's present weights.
        rho: Radius of the ball, finite and at least 0; its unit depends on `radius`.
        layers: Which parameters move, as in `AwpConfig`. The default moves the weights of all layers and no biases;
            ("*",) moves every parameter.
        radius: Shape of the ball. "layer" (the paper's): |delta_i| <= rho |theta_i| for each parameter. "global":
            |delta| <= rho for all parameters together. "adaptive": |delta / theta| <= rho, so that a weight moves in
            proportion to its size. There is no floor under |theta| as in ASAM, so rescaling two layers against each
            other changes nothing; "layer" has that property too, "global" does not.
        steps: Steps of the ascent, at least 1; each costs one forward and one backward pass.

    Returns:
        The rise max L(theta + delta) - L(theta); infinite if a loss on the way is infinite or NaN.

    Raises:
        ValueError: If an argument is out of its range, or a module is in training mode.
        AnalysisError: If the loss is not finite at the model's own weights.

    Example:
        >>> model = nn.Linear(1, 1, bias=False).eval()
        >>> _ = nn.init.constant_(model.weight, 2.0)
        >>> round(sharpness(model, lambda: model.weight.square().sum(), rho=0.5), 4)  # (2 + 1)^2 - 2^2
        5.0
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
    """`sharpness` for several radii of one ball, with one evaluation of the model's own loss.

    A smaller ball lies inside a larger one, so the result never decreases with rho.

    Args:
        model: A model in evaluation mode; its weights are the same afterwards.
        loss_fn: Returns the loss at the model's present weights.
        rhos: Radii of the balls, in any order; each finite and at least 0.
        layers: Which parameters move, see `sharpness`.
        radius: Shape of the ball, see `sharpness`.
        steps: Steps of the ascent for each radius, at least 1.

    Returns:
        One rise for each radius, in the order of `rhos`.

    Raises:
        ValueError: If an argument is out of its range, or a module is in training mode.
        AnalysisError: If the loss is not finite at the model's own weights.
    """
    if radius not in get_args(Radius):
        raise ValueError(f"radius must be one of {get_args(Radius)}, got {radius!r}")
    if steps < 1 or not all(0 <= rho < math.inf for rho in rhos):
        raise ValueError(f"steps must be >= 1 and rho finite and >= 0, got {steps} and {list(rhos)}")
    refuse_training_mode(model)
    named = dict(model.named_parameters())
    theta = {n: named[n] for n in select(model, layers, outputs=loss_fn)}
    start = loss_and_gradient(loss_fn, theta)
    if not math.isfinite(start[0]):
        raise AnalysisError(f"the loss of the model is {start[0]} before its weights move, so its rise is undefined")
    rises, highest = {}, start[0]
    for rho in sorted(set(rhos)):
        highest = max(highest, _climb(theta, loss_fn, start, rho, radius, steps))
        rises[rho] = highest - start[0]
    return [rises[rho] for rho in rhos]


class SharpnessMonitor:
    """Measures the sharpness of a model while it is trained; made to be passed to `fit(observe=...)`.

    It measures the training loss, without dropout, in epochs 0, EVERY, 2 EVERY, ... The attribute `history` has a
    column `sharpness_<radius>` for each shape of ball, with NaN where the loss is not finite.

    Args:
        data: The graph, or the collection of graphs, that the model is trained on.
        samples: Indices of the training nodes or graphs.
        rhos: For each shape of ball, as `sharpness` names them, its radius.
        steps: Steps of the ascent; fewer than in `sharpness`, because the measure is repeated during training.
    """

    EVERY = 10

    def __init__(self, data: Data, samples: Tensor, *, rhos: Mapping[Radius, float], steps: int = 20) -> None:
        self.data, self.samples, self.rhos, self.steps = data, samples, dict(rhos), steps
        self.history: dict[str, list[float]] = {f"sharpness_{radius}": [] for radius in rhos}

    def __call__(self, model: nn.Module, epoch: int) -> None:
        """Measure the model if the epoch is a multiple of EVERY.

        Args:
            model: The model in training; its weights and modes are the same afterwards.
            epoch: Number of the epoch, from 0.
        """
        if epoch % self.EVERY:
            return
        with evaluating(model):
            loss = LossOn(model, self.data, self.samples)
            with torch.no_grad():
                is_finite = bool(loss().isfinite())
            for radius, rho in self.rhos.items():
                rise = sharpness(model, loss, rho=rho, radius=radius, steps=self.steps) if is_finite else math.nan
                self.history[f"sharpness_{radius}"].append(rise)


def _climb(
    theta: dict[str, nn.Parameter],
    loss_fn: LossFn,
    start: tuple[float, dict[str, Tensor]],
    rho: float,
    radius: Radius,
    steps: int,
) -> float:
    """The highest loss of a monotone projected ascent; infinite as soon as a loss is infinite or NaN.

    The step length doubles after a step that raises the loss; a step that does not is undone and tried again at a
    quarter of its length. Near a maximum on the ball's surface, long steps converge as power iterations do.
    """
    highest, gradient = start
    unit = {n: w.detach().abs() for n, w in theta.items()} if radius == "adaptive" else None
    shape: Radius = "global" if radius == "adaptive" else radius  # in the coordinates delta / unit
    inside = {n: torch.zeros_like(w) for n, w in theta.items()}
    if not any(bool(g.any()) for g in gradient.values()):  # at a stationary point: start in a random direction
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
            highest, gradient, inside, length = loss, slopes, tried, min(2 * length, LONGEST_STEP)
        elif length < SHORTEST_STEP:
            break
        else:
            length /= 4
    return highest
