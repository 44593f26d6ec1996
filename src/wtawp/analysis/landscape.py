"""The loss along straight lines through the weights (sec:loss_landspace)."""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from wtawp.analysis.moved import moved
from wtawp.base import rng

Scale = Literal["unit", "layer"]


def loss_along_random_directions(
    model: nn.Module,
    loss_fn: Callable[[], Tensor],
    distances: Sequence[float],
    *,
    seed: int,
    num_directions: int = 10,
    scale: Scale = "unit",
) -> Tensor:  # -> [num_directions, k]
    """L(theta + t u) for each distance t and random direction u.

    "unit" directions have length 1 over all parameters, as in the paper; "layer" ones are as long as the weights in
    each parameter, so that models with weights of different size can be compared.
    """
    theta = {n: p for n, p in model.named_parameters() if p.requires_grad}
    return torch.tensor(
        [_line(theta, loss_fn, distances, scale, rng("landscape", seed, i)) for i in range(num_directions)]
    )


@torch.no_grad()
def _line(
    theta: dict[str, nn.Parameter],
    loss_fn: Callable[[], Tensor],
    distances: Sequence[float],
    scale: Scale,
    generator: torch.Generator,
) -> list[float]:
    # Drawn on the CPU, so that a seed means the same line on every device.
    u = {n: torch.randn(p.shape, generator=generator).to(p) for n, p in theta.items()}
    if scale == "unit":
        total = torch.stack([d.norm() for d in u.values()]).norm()
        u = {n: d / total for n, d in u.items()}
    else:
        u = {n: d * theta[n].norm() / d.norm() for n, d in u.items()}
    losses = []
    for t in distances:
        with moved(theta, {n: t * d for n, d in u.items()}):
            losses.append(float(loss_fn()))
    return losses
