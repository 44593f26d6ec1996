"""Averages of the weights over epochs, for each model of a stack: those of `torch.optim.swa_utils`, without branches.

A CUDA graph can record the update, because it depends on the number of the epoch as a tensor alone.
"""

from typing import Any

import torch
from torch import Tensor

from wtawp.training.options import Average
from wtawp.training.step import Stack


class WeightAverage:
    """The averaged weights of a stack, which begin as the weights themselves.

    Args:
        theta: The stacked weights that are trained in place.
        average: The decay of an exponential moving average, or "swa" for the equal mean of the last quarter.
        epochs: Number of epochs of the training.
    """

    def __init__(self, theta: Stack, average: Average, epochs: int) -> None:
        self.theta, self.average = theta, average
        self.first = epochs - max(1, epochs // 4) if average == "swa" else 0  # epoch in the average
        self.weights = {name: w.detach().clone() for name, w in theta.items()}

    @torch.no_grad()
    def update(self, epoch: Tensor) -> None:
        """Take in the weights after an epoch.

        Args:
            epoch: Number of the epoch, counted from 0.
        """
        count = (epoch - self.first + 1).clamp_min(1)  # epochs in the average, with this one
        share = 1.0 / count if isinstance(self.average, str) else torch.where(count == 1, 1.0, 1.0 - self.average)
        for name, average in self.weights.items():
            average.lerp_(self.theta[name].detach(), share.to(average.dtype))

    def state_dict(self) -> dict[str, Any]:
        """Collect what must be saved to continue.

        Returns:
            The averaged weights, by name.
        """
        return self.weights

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state.

        Args:
            state: What `state_dict` returned.
        """
        for name, average in self.weights.items():
            average.copy_(state[name])
