"""Detect vanishing gradients at the perturbed weights while a model is trained (sec:vanishing_gradient).

A radius that is too large makes the logits of the perturbed model explode; its softmax saturates and the gradient that
is left teaches nothing. The monitors warn of it with a `VanishingGradientWarning`.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from wtawp.base import VanishingGradientWarning, find_stack_level
from wtawp.core.observation import whole_tensor


class VanishingGradientMonitor:
    """Warns once when the perturbed gradient has vanished at three checks in a row while much remains to be learnt.

    It checks the first step and every tenth one, because each check waits for a GPU. A perturbed gradient has vanished
    if its norm is below 1e-4 of the natural one's, or if it is below 1/20 of its own first value and has, relative to
    the first values, fallen more than twice as far as the natural one. Much remains to be learnt as long as the loss
    is above 0.8 of its first value.

    Attributes:
        steps: Number of steps that were reported by calls of the monitor.
        first: The natural norm, the perturbed norm and the loss of the first check; None before it.

    Example:
        >>> monitor = VanishingGradientMonitor()
        >>> [monitor.check(natural, perturbed=1e-6, loss=1.0) for natural in (1.0, 0.9, 1.1)]
        [False, False, True]
    """

    EVERY, CHECKS_IN_A_ROW = 10, 3
    NEGLIGIBLE, FALLEN, RELATIVE_TO_NATURAL, UNLEARNT = 1e-4, 0.05, 0.5, 0.8

    def __init__(self) -> None:
        self.steps = self._in_a_row = 0
        self.first: tuple[float, float, float] | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return what the monitor has counted so far.

        Returns:
            Plain data for `load_state_dict`.
        """
        return {"steps": self.steps, "in_a_row": self._in_a_row, "first": self.first}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state.

        Args:
            state: What `state_dict` returned.

        Raises:
            ValueError: If it is something else.
        """
        if set(state) != {"steps", "in_a_row", "first"}:
            raise ValueError(f"expected what VanishingGradientMonitor.state_dict() returned, got {dict(state)!r}")
        self.steps, self._in_a_row = state["steps"], state["in_a_row"]
        self.first = None if state["first"] is None else tuple(state["first"])

    @classmethod
    def is_due(cls, step: int) -> bool:
        """Whether a step is to be checked.

        Args:
            step: Number of the step, counted from 1.

        Returns:
            True for the first step and every tenth one.
        """
        return step == 1 or step % cls.EVERY == 0

    def __call__(self, natural: Iterable[Tensor], perturbed: Iterable[Tensor], loss: Tensor, setting: object) -> None:
        """Report one step of training; it is checked if it is due, and never while a CUDA graph is captured.

        Args:
            natural: The gradients at the weights.
            perturbed: The gradients at the perturbed weights.
            loss: The natural loss.
            setting: The options of the method, as the warning should print them.
        """
        self.steps += 1
        if not self.is_due(self.steps) or self._in_a_row >= self.CHECKS_IN_A_ROW:
            return
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():  # type: ignore[no-untyped-call]
            return
        norms = [[whole_tensor(torch.linalg.vector_norm(t.detach())) for t in side] for side in (natural, perturbed)]
        if not all(norms):
            return
        device = norms[0][0].device
        totals = [torch.stack([t.float().to(device) for t in side]).norm() for side in norms]
        now = torch.stack([*totals, whole_tensor(loss.detach()).float().reshape(()).to(device)]).tolist()
        if self.check(*now):
            warnings.warn(
                f"{self.describe(now[0], now[1], now[2], self.steps)}. {_advice(setting)}",
                VanishingGradientWarning,
                stacklevel=find_stack_level(),
            )

    def check(self, natural: float, perturbed: float, loss: float) -> bool:
        """Check one step, whether or not it is due.

        Args:
            natural: Norm of the gradient at the weights. A step where it is not a positive number does not count.
            perturbed: Norm of the gradient at the perturbed weights. A step where it is not finite does not count.
            loss: The natural loss.

        Returns:
            True at exactly the third check in a row at which the perturbed gradient has vanished.
        """
        if not (0 < natural < float("inf") and perturbed < float("inf")):
            return False
        self.first = self.first or (natural, perturbed, loss)
        first_natural, first_perturbed, first_loss = self.first
        has_fallen = (
            perturbed < self.FALLEN * first_perturbed
            and perturbed * first_natural < self.RELATIVE_TO_NATURAL * natural * first_perturbed
        )
        # A loss below 0 does not show how much remains to be learnt.
        is_learnt = first_loss > 0 and loss < self.UNLEARNT * first_loss
        is_vanished = (perturbed < self.NEGLIGIBLE * natural or has_fallen) and not is_learnt
        self._in_a_row = self._in_a_row + 1 if is_vanished else 0
        return self._in_a_row == self.CHECKS_IN_A_ROW

    def describe(self, natural: float, perturbed: float, loss: float, step: int) -> str:
        """Describe how the gradients and the loss have developed since the first check.

        Args:
            natural: Norm of the gradient at the weights now.
            perturbed: Norm of the gradient at the perturbed weights now.
            loss: The natural loss now.
            step: Number of steps so far.

        Returns:
            One sentence without a full stop.
        """
        before = self.first or (natural, perturbed, loss)
        return (
            f"the gradient at the perturbed weights vanishes: its norm was {before[1]:.2g} and is {perturbed:.2g} after"
            f" {step} steps, that of the natural gradient was {before[0]:.2g} and is {natural:.2g}, the loss was"
            f" {before[2]:.3g} and is {loss:.3g}, so the model may learn nothing"
        )


class VanishingMembersMonitor:
    """One `VanishingGradientMonitor` for each of several models that are trained together.

    A single model is warned about as soon as its gradient has vanished. For several models there is one warning, when
    `warn` is called at the end: it says how many are affected and describes the first of them.

    Args:
        seeds: The seed of each model, by which the warning names it.
        setting: The options of the method, as the warning should print them.
    """

    def __init__(self, seeds: Sequence[int], setting: object) -> None:
        self._seeds, self._setting = list(seeds), setting
        self._monitors = [VanishingGradientMonitor() for _ in seeds]
        self._descriptions: dict[int, str] = {}  # of the affected models, in the order in which they were noticed
        self._has_warned = False

    def check(self, member: int, step: int, natural: float, perturbed: float, loss: float) -> None:
        """Check one step of one model.

        Args:
            member: Position of the model among the seeds.
            step: Number of the step, counted from 1.
            natural: Norm of the gradient at the weights.
            perturbed: Norm of the gradient at the perturbed weights.
            loss: The natural loss.
        """
        monitor = self._monitors[member]
        if member in self._descriptions or not monitor.check(natural, perturbed, loss):
            return
        self._descriptions[member] = monitor.describe(natural, perturbed, loss, step)
        if len(self._monitors) == 1:
            self.warn()

    def warn(self) -> None:
        """Give the one warning, if the gradient of any model has vanished and it has not been given yet."""
        if not self._descriptions or self._has_warned:
            return
        self._has_warned = True
        member, text = next(iter(self._descriptions.items()))
        if len(self._monitors) > 1:
            text = (
                f"{len(self._descriptions)} of {len(self._monitors)} models are affected, first the one with seed"
                f" {self._seeds[member]}: {text}"
            )
        warnings.warn(f"{text}. {_advice(self._setting)}", VanishingGradientWarning, stacklevel=find_stack_level())


def _advice(setting: object) -> str:
    """What to try against vanishing gradients."""
    return f"{setting} is too much here: try a smaller rho, lam < 1, fewer layers, or balance=1"
