"""How far the loss rises inside a ball of weights: the paper's generalisation gap, max L(theta + delta) - L(theta)."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from wtawp.analysis.moved import moved
from wtawp.core import Radius, project, select


def sharpness(
    model: nn.Module,
    loss_fn: Callable[[], Tensor],
    *,
    rho: float,
    layers: str = "all",
    radius: Radius = "layer",
    steps: int = 10,
) -> float:
    """The largest rise of the loss met while climbing inside the ball, projected after each of `steps` steps.

    A lower bound on the true maximum. `loss_fn` should be deterministic: put the model in evaluation mode first.
    """
    named = dict(model.named_parameters())
    theta = {n: named[n] for n in select(model, layers)}
    start, gradient = _loss_and_gradient(loss_fn, theta)
    delta = {n: torch.zeros_like(w) for n, w in theta.items()}
    highest = start
    for _ in range(steps):
        with torch.no_grad():
            # A step as long as a quarter of the radius, whatever the gradient's length: ten of them cross the ball.
            step = project(gradient, theta, rho=rho / 4, radius=radius, onto="sphere")
            delta = project({n: delta[n] + s for n, s in step.items()}, theta, rho=rho, radius=radius, onto="ball")
        with moved(theta, delta):
            loss, gradient = _loss_and_gradient(loss_fn, theta)
        highest = max(highest, loss)
    return highest - start


def _loss_and_gradient(
    loss_fn: Callable[[], Tensor], theta: dict[str, nn.Parameter]
) -> tuple[float, dict[str, Tensor]]:
    loss = loss_fn()
    found = torch.autograd.grad(loss, list(theta.values()))
    return float(loss.detach()), dict(zip(theta, found, strict=True))
