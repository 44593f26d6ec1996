"""The options of training. This module does not import torch, so that plans can use it."""

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Literal, get_args

SelectOn = Literal["either", "loss", "accuracy", "last"]
Average = float | Literal["swa"]
FitSelectOn = Literal["either", "loss", "accuracy", "metric", "last"]  # what `fit` takes, which may have other metrics


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long and how fast models are trained, and which epoch is selected.

    Attributes:
        epochs: Number of epochs, at least 1.
        lr: Learning rate of Adam, a number >= 0.
        weight_decay: Weight decay of Adam, a number >= 0.
        patience: Number of epochs without improvement after which a model stops, at least 1; None trains all epochs.
        select_on: What must improve on the validation set for an epoch to be selected: "loss", "accuracy", or "either"
            of them, which is the rule of the released code. "metric" is the metric of the training, which is the
            accuracy unless another one is chosen. "last" selects the last epoch.
        average: What is measured and selected in place of the weights of an epoch: their exponential moving average, by
            its decay, or "swa", the equal mean of the last quarter of the epochs, which alone are selected from then.
            None is the weights themselves.

    Raises:
        ValueError: If `epochs` or `patience` is not a whole number from 1 on, `lr` or `weight_decay` is not a finite
            number >= 0, `select_on` or `average` is unknown, or "swa" has `patience` beside it.

    Example:
        >>> Schedule(epochs=200, lr=0.01, weight_decay=5e-4, patience=None, select_on="either").epochs
        200
    """

    epochs: int
    lr: float
    weight_decay: float
    patience: int | None
    select_on: FitSelectOn
    average: Average | None = None

    def __post_init__(self) -> None:
        if not is_count(self.epochs):
            raise ValueError(f"epochs must be a whole number >= 1, got {self.epochs!r}")
        object.__setattr__(self, "epochs", int(self.epochs))  # one of NumPy has another text, which identifies a run
        for name, value in (("lr", self.lr), ("weight_decay", self.weight_decay)):
            _check_rate(name, value)
        if self.patience is not None and not is_count(self.patience):
            raise ValueError(
                f"patience must be a whole number of epochs >= 1, or None to train them all, got {self.patience!r}"
            )
        if self.select_on not in get_args(FitSelectOn):
            raise ValueError(f"select_on must be one of {get_args(FitSelectOn)}, got {self.select_on!r}")
        check_average(self.average)
        if self.average == "swa" and self.patience is not None:
            raise ValueError('average="swa" is the mean of the last epochs, which patience may skip; leave one out')


def check_average(average: object) -> None:
    """Check what weights are averaged over.

    Args:
        average: What a user has passed.

    Raises:
        ValueError: If it is neither None, nor "swa", nor a decay between 0 and 1.

    Example:
        >>> check_average(0.99)
    """
    is_decay = isinstance(average, int | float) and not isinstance(average, bool) and 0 < average < 1
    if average is not None and average != "swa" and not is_decay:
        raise ValueError(
            f'average must be the decay of a moving average, between 0 and 1, or "swa" or None, got {average!r}'
        )


def is_count(value: object) -> bool:
    """Tell whether something counts epochs, batches or the like.

    Args:
        value: What a user has passed.

    Returns:
        True for whole numbers from 1 on, also those of NumPy.

    Example:
        >>> is_count(3), is_count(3.0), is_count(True), is_count(0)
        (True, False, False, False)
    """
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= 1


def _check_rate(name: str, value: object) -> None:
    """Refuse what is not a finite number from 0 on."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < math.inf:
        raise ValueError(f"{name} must be a finite number >= 0, such as 0.01, got {value!r}")
