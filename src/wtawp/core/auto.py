"""The rule of lam="auto": the weight of the perturbed loss follows the gap between validation and training loss.

The perturbation is a strong regularizer. It pays where a model overfits and ruins one that underfits, and the relative
gap (L_val - L_train) / (L_val + L_train) tells the two apart. It is 0 where both losses are equal, near 1 where the
training loss is much smaller, and does not depend on the scale of the loss.
"""

import math
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from wtawp.base import find_stack_level
from wtawp.core.distributed import is_distributed

FLOOR = 0.0  # a relative gap up to this one calls for no perturbation
SLOPE = 1.0  # of lam over the gap above that
MAX_LAM = 0.95
RATE = 0.1  # share of the newest epoch in the running mean
MIN_LAM = 0.02  # below this the perturbed pass is skipped
MAX_SILENT_STEPS = 100  # steps without a loss to follow, after which a warning is given


def follow_gap(lam: Tensor, train_loss: Tensor, val_loss: Tensor) -> Tensor:
    """Compute lam for the next epoch, of one model or of each member of a stack. Nothing waits for a GPU.

    Args:
        lam: The value of the last epoch, of any shape.
        train_loss: The natural training loss of the last epoch, at least 0, of the same shape.
        val_loss: The validation loss after it, likewise.

    Returns:
        The next value, of the same shape and type. It is the last one where the losses have no gap: where they are not
        finite, or both 0.

    Example:
        >>> follow_gap(torch.tensor(0.0), torch.tensor(0.5), torch.tensor(1.5))
        tensor(0.0500)
    """
    train, val = train_loss.to(lam.dtype), val_loss.to(lam.dtype)
    gap = (val - train) / (val + train)
    wanted = ((gap - FLOOR) * SLOPE).clamp(0.0, MAX_LAM)
    return torch.where(gap.isfinite(), lam + RATE * (wanted - lam), lam)


def effective(lam: Tensor) -> Tensor:
    """Set the weights to 0 that are too small for a perturbed pass.

    Args:
        lam: The weights, as `follow_gap` computes them.

    Returns:
        The weights of the perturbed loss in the next step.
    """
    return torch.where(lam >= MIN_LAM, lam, torch.zeros_like(lam))


class AutoLam:
    """The weight of the perturbed loss in the training of one model, fed with its losses once an epoch."""

    def __init__(self) -> None:
        self._lam = torch.zeros((), dtype=torch.float64)
        self._silent_steps: int | None = 0  # steps before the first losses; None from then on

    @property
    def effective(self) -> float:
        """The weight in the next step.

        Returns:
            A number between 0 and 1; 0 if it is too small for a perturbed pass.
        """
        return float(effective(self._lam))

    def observe(self, train_loss: float | Tensor, val_loss: float | Tensor, device: torch.device) -> None:
        """Follow the losses of an epoch; in several processes, their means over all of them.

        Args:
            train_loss: The natural training loss.
            val_loss: The validation loss.
            device: Where the model is, and other processes can be reached from.

        Raises:
            ValueError: If a loss is not one number >= 0.
        """
        losses = torch.tensor([_number("train_loss", train_loss), _number("val_loss", val_loss)], dtype=torch.float64)
        if is_distributed():
            on_device = losses.to(device)
            torch.distributed.all_reduce(on_device)
            losses = on_device.cpu() / torch.distributed.get_world_size()
        self._lam = follow_gap(self._lam, losses[0], losses[1])
        self._silent_steps = None

    def count_step(self) -> None:
        """Count a step of the training; warns once if no losses arrive."""
        if self._silent_steps is None:
            return
        self._silent_steps += 1
        if self._silent_steps == MAX_SILENT_STEPS:
            warnings.warn(
                f'{MAX_SILENT_STEPS} steps without awp.observe(train_loss=..., val_loss=...): lam="auto" trains plainly'
                " until it is called; call it after every epoch",
                stacklevel=find_stack_level(),
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the state to save with a checkpoint.

        Returns:
            Plain data.
        """
        return {"lam": float(self._lam), "silent_steps": self._silent_steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state.

        Args:
            state: What `state_dict` returned.

        Raises:
            ValueError: If it is something else.
        """
        match dict(state):
            case {"lam": float(lam), "silent_steps": None | int() as steps, **rest} if 0 <= lam <= 1 and not rest:
                self._lam, self._silent_steps = torch.tensor(lam, dtype=torch.float64), steps
            case _:
                raise ValueError(f'expected the state of lam="auto", got {dict(state)!r}')


def _number(name: str, loss: float | Tensor) -> float:
    """A loss as a number; it may be infinite or NaN, which changes nothing."""
    if isinstance(loss, Tensor) and loss.numel() != 1:
        raise ValueError(f"{name} must be one number, got a tensor of shape {list(loss.shape)}; pass its mean")
    if not isinstance(loss, int | float | Tensor):
        raise ValueError(f"{name} must be a number, got {type(loss).__name__}")
    number = float(loss)
    if number < 0 and math.isfinite(number):
        raise ValueError(
            f'{name} must be >= 0, got {number:g}: lam="auto" compares losses by their ratio; choose lam as a number'
        )
    return number
