"""The rule of lam="auto": after each epoch, how strongly are the weights to be perturbed in the next one?

The perturbation is a strong regularizer. It pays where a model overfits and ruins one that underfits, and the relative
gap (L_val - L_train) / (L_val + L_train) tells the two apart: lam follows it. The gap is 0 where both losses are equal,
near 1 where the training loss is much smaller, and does not depend on the scale of the loss. Both losses are to be
measured alike, without dropout: a training loss with dropout is larger and hides the gap.

Two kinds of training are left plain although their gap is wide, because the perturbation takes more than it gives. One
learns the training set by heart before the perturbation has gained strength: weight decay alone then improves the
model, and the perturbation is in its way. The other has a validation loss as large as that of the untrained model: such
a loss says little about the accuracy, which may rise while the loss explodes. lam rises slowly, which costs little
where the perturbation pays, and shows what plain training would do.

A perturbed model is to be worse, but not beyond recognition. Where the perturbation raises the loss by more than a few
validation losses, as in a GIN, whose sums over neighbours multiply it, the radius shrinks until it does not.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from wtawp.base import find_stack_level
from wtawp.core.config import AwpConfig
from wtawp.core.distributed import is_distributed

# Whoever changes what the rule computes raises `AUTO_RULE` in `wtawp.core.config`, which is part of the keys of runs.
FLOOR = 0.2  # a relative gap up to this one calls for no perturbation
SLOPE = 1.25  # of lam over the gap above that
MAX_LAM = 0.95
RATE = 0.03  # share of the newest epoch in the running mean
NEARLY_PLAIN_LAM = 0.3  # up to this lam the training counts as plain, and its widest gap is remembered
MAX_PLAIN_GAP = 0.996  # lam returns to 0 if the gap reached it while nearly plain; from 0.992 on lam is reduced
MIN_LAM = 0.02  # below this the perturbed pass is skipped
LIMIT = 200.0  # scale of the limit for the length of the perturbed gradient
MAX_RISE = 4.0  # validation losses by which the perturbation may raise the loss
SHRINK, GROW = 0.8, 1.02  # factors of the radius after an epoch above that, and below
MIN_SHARE = 1e-3  # of rho, below which the radius does not shrink
MAX_SILENT_STEPS = 100  # steps without a loss to follow, after which a warning is given
MAX_SUSPICIOUS = 20  # observations, counted from the first one, that do not look like losses, likewise
INVERTED = 0.95  # share of the training loss below which the validation loss is not expected
MAX_RATIO = 30.0  # of a loss as the closure returns it and as it is observed, at the first observation
Number = TypeVar("Number", float, Tensor)


class AutoState(NamedTuple, Generic[Number]):
    """What is known of the training of one model, or of each member of a stack, after an epoch.

    Attributes:
        lam: The weight of the perturbed loss in the next epoch.
        first_loss: The natural loss of the first step; infinite as long as it is not known.
        peak: The widest relative gap while lam was small.
    """

    lam: Number
    first_loss: Number
    peak: Number


def follow_gap(state: AutoState[Number], train_loss: Number, val_loss: Number) -> AutoState[Number]:
    """Compute lam for the next epoch, of one model or of each member of a stack. Nothing waits for a GPU.

    Args:
        state: What is known after the last epoch but one: numbers, or tensors of any shape.
        train_loss: The natural training loss after the last epoch, at least 0, of the same shape. It also takes the
            place of a first loss that is not known.
        val_loss: The validation loss, likewise.

    Returns:
        The next state, of the same shape and type. lam is the last one where the losses have no gap: where they are
        not finite, or both 0.

    Example:
        >>> start = AutoState(lam=torch.tensor(0.0), first_loss=torch.tensor(2.0), peak=torch.tensor(0.0))
        >>> follow_gap(start, torch.tensor(0.5), torch.tensor(1.5)).lam
        tensor(0.0112)
    """
    lam, first_loss, peak = state
    gap = _ratio(val_loss - train_loss, val_loss + train_loss, like=lam)
    is_known = _is_finite(gap)
    first_loss = _where(_is_finite(first_loss), first_loss, train_loss)
    is_plain = is_known & (lam <= NEARLY_PLAIN_LAM)
    peak = _where(is_plain, _where(gap > peak, gap, peak), peak)
    wanted = _clip((gap - FLOOR) * SLOPE, 0.0, MAX_LAM)
    wanted = wanted * _clip((MAX_PLAIN_GAP - peak) / (1 - MAX_PLAIN_GAP), 0.0, 1.0)
    wanted = _where(val_loss < first_loss, wanted, 0.0 * wanted)
    return AutoState(_where(is_known, lam + RATE * (wanted - lam), lam), first_loss, peak)


def follow_rise(share: Number, rise: Number, val_loss: Number) -> Number:
    """Compute the share of rho for the next epoch, of one model or of each member of a stack.

    Args:
        share: The value of the last epoch, between 0 and 1: a number, or a tensor of any shape.
        rise: L(theta + delta) - L(theta) in the last epoch, of the same shape.
        val_loss: The validation loss after the last epoch, likewise.

    Returns:
        The next value, of the same shape and type: smaller where the rise is too large or not a number. It is the last
        one where the validation loss is not finite.

    Example:
        >>> follow_rise(torch.tensor([1.0, 1.0, 0.5]), torch.tensor([9.0, 1.0, 1.0]), torch.ones(3))
        tensor([0.8000, 1.0000, 0.5100])
    """
    following = _where(rise <= MAX_RISE * val_loss, GROW * share, SHRINK * share)
    return _where(_is_finite(val_loss), _clip(following, MIN_SHARE, 1.0), share)


def _ratio(numerator: Number, denominator: Number, *, like: Number) -> Number:
    """A quotient of the type of `like`; 0 / 0 is not a number."""
    if isinstance(numerator, Tensor):
        return (numerator / denominator).to(like.dtype)
    return numerator / denominator if denominator else math.nan


def _clip(value: Number, low: float, high: float) -> Number:
    """A value inside an interval; what is not a number stays that."""
    return value.clamp(low, high) if isinstance(value, Tensor) else min(max(value, low), high)


def _is_finite(value: Number) -> bool | Tensor:
    """Whether a value is a finite number."""
    return value.isfinite() if isinstance(value, Tensor) else math.isfinite(value)


def _where(condition: bool | Tensor, one: Number, other: Number) -> Number:
    """One value where the condition holds, and elsewhere the other."""
    if isinstance(one, Tensor):
        return torch.where(torch.as_tensor(condition), one, other)
    return one if condition else other


def gradient_limit(lam: float | Tensor) -> float | Tensor:
    """Compute how many times as long as the natural gradient the perturbed one may be.

    The limit is low at both ends. Where a model hardly overfits, an exploding perturbed gradient would drown the
    natural one even at a small lam. Where it has learned its training set by heart, the natural gradient is nearly 0,
    and the perturbed one would be all that moves the weights.

    Args:
        lam: The weight of the perturbed loss, between 0 and 1: a number, or one for each member of a stack.

    Returns:
        The limit, which is largest at lam = 0.6, where it is 6.9.

    Example:
        >>> gradient_limit(0.5)
        6.25
    """
    return LIMIT * lam**3 * (1 - lam) ** 2


def zero_if_negligible(lam: Number) -> Number:
    """Set the weights to 0 that are too small for a perturbed pass.

    Args:
        lam: The weights, as `follow_gap` computes them.

    Returns:
        The weights of the perturbed loss in the next step.
    """
    return _where(lam >= MIN_LAM, lam, 0.0 * lam)


class AutoStrength:
    """The weight of the perturbed loss and the radius in the training of one model, fed with losses once an epoch."""

    def __init__(self) -> None:
        self._state = AutoState(lam=0.0, first_loss=math.inf, peak=0.0)
        self._first_loss = torch.tensor(math.inf)  # the natural loss of the first step
        self._rho_share = 1.0
        self._is_observed = False
        # Observations so far without what a right use shows; MAX_SUSPICIOUS + 1 once it was seen. At MAX_SUSPICIOUS, a
        # warning is given.
        self._num_above_first_loss = 0  # a validation loss below that of the first step
        self._num_inverted = 0  # a validation loss that is not well below the training loss
        self._num_not_finite = 0  # two finite losses
        self._reset()

    def _reset(self) -> None:
        """Forget the steps since the last observation."""
        self._steps, self._total = 0, torch.zeros(())  # their number and the sum of their losses
        self._perturbed_steps, self._rise = 0, torch.zeros(())  # the same of perturbed ones, and of L(theta + delta)

    def options(self, config: AwpConfig) -> AwpConfig:
        """Compute the options of the next step.

        Args:
            config: The options of the training.

        Returns:
            The same with numbers in place of lam="auto" and balance="auto", and the share of rho that is in use; lam is
            0 if it is too small for a perturbed pass.
        """
        lam = zero_if_negligible(self._state.lam)
        limit = float(gradient_limit(max(lam, MIN_LAM))) if config.balance == "auto" else config.balance
        return replace(config, rho=config.rho * self._rho_share, lam=lam, balance=limit)

    def count_step(self, loss: Tensor, perturbed: Tensor | None) -> None:
        """Count a step of the training; warns once if nobody says how well the model fits.

        Args:
            loss: The natural loss of the step.
            perturbed: The loss at the perturbed weights; None after a plain step.
        """
        natural = loss.detach()
        if not self._steps and not self._is_observed:
            self._first_loss = natural.reshape(()).clone()
        self._total = _added(self._total, natural)
        self._steps += 1
        if perturbed is not None:
            self._rise = _added(self._rise, perturbed.detach().float() - natural.float())
            self._perturbed_steps += 1
        if self._steps == MAX_SILENT_STEPS and not self._is_observed:
            warnings.warn(
                f'{MAX_SILENT_STEPS} steps without awp.observe(val_loss=...): lam="auto" trains plainly until it is'
                " called for the first time; call it after every epoch (with Lightning pass"
                " PerturbationCallback(awp, val_loss=...) to the Trainer)",
                stacklevel=find_stack_level(),
            )

    def observe(
        self, val_loss: float | Tensor, train_loss: float | Tensor | None, device: Callable[[], torch.device]
    ) -> bool:
        """Follow the losses of an epoch; in several processes, their means over all of them.

        Args:
            val_loss: The validation loss.
            train_loss: The natural training loss; None is the mean of the steps since the last observation.
            device: Returns where the model is, and other processes can be reached from.

        Returns:
            Whether the options of the next step are others than those of the last one.

        Raises:
            ValueError: If a loss is not one number >= 0, or there is no training loss.
        """
        if train_loss is None and not self._steps:
            raise ValueError("observe() has no training loss: call it after steps of backward() or loss(), or pass it")
        mean = self._total / self._steps if self._steps else None
        train = mean if train_loss is None else train_loss
        assert train is not None
        sums = [_number("train_loss", train), _number("val_loss", val_loss), 1.0]
        sums += [float(self._rise), float(self._perturbed_steps), float(self._first_loss)]
        if is_distributed():
            on_device = torch.tensor(sums, dtype=torch.float64, device=device())
            torch.distributed.all_reduce(on_device)
            sums = on_device.tolist()
        train_sum, val_sum, num_processes, rise_sum, num_perturbed, first_sum = sums
        before = zero_if_negligible(self._state.lam), self._rho_share
        if not self._is_observed:
            self._state = self._state._replace(first_loss=first_sum / num_processes)
        self._state = follow_gap(self._state, train_sum / num_processes, val_sum / num_processes)
        if num_perturbed:
            self._rho_share = follow_rise(self._rho_share, rise_sum / num_perturbed, val_sum / num_processes)
        if train_loss is not None:
            if not self._is_observed and mean is not None:
                _warn_of_another_scale(float(mean), train_sum / num_processes)
            self._warn_if_inverted(train_sum / num_processes, val_sum / num_processes)
        self._is_observed = True
        self._warn_if_never_finite(train_sum / num_processes, val_sum / num_processes)
        self._warn_if_never_below_first_loss(val_sum / num_processes)
        self._reset()
        return before != (zero_if_negligible(self._state.lam), self._rho_share)

    def _warn_if_never_finite(self, train_loss: float, val_loss: float) -> None:
        """Warn once if the losses were NaN or infinite from the beginning: single epochs may be, by an overflow."""
        if self._num_not_finite > MAX_SUSPICIOUS:
            return
        is_finite = math.isfinite(train_loss) and math.isfinite(val_loss)
        self._num_not_finite = MAX_SUSPICIOUS + 1 if is_finite else self._num_not_finite + 1
        if self._num_not_finite == MAX_SUSPICIOUS:
            warnings.warn(
                f'lam="auto" has trained plainly so far: in {MAX_SUSPICIOUS} observations a loss was not finite (now'
                f" train_loss {train_loss:.4g} and val_loss {val_loss:.4g}), and such observations change nothing. Has"
                " the training diverged, or is the mean over an empty validation set?",
                stacklevel=find_stack_level(),
            )

    def _warn_if_never_below_first_loss(self, val_loss: float) -> None:
        """Warn once if the validation loss was never below the loss of the first step: are both on one scale?"""
        first_loss = self._state.first_loss
        number = self._num_above_first_loss
        if number > MAX_SUSPICIOUS or not (math.isfinite(val_loss) and math.isfinite(first_loss)):
            return
        self._num_above_first_loss = MAX_SUSPICIOUS + 1 if val_loss < first_loss else number + 1
        if self._num_above_first_loss == MAX_SUSPICIOUS:
            warnings.warn(
                f'lam="auto" has trained plainly for {MAX_SUSPICIOUS} observations, because the validation loss,'
                f" {val_loss:.4g}, was never below the loss of the first step, {first_loss:.4g}. val_loss must be a"
                " loss and not an accuracy, and the closure must return the loss on its scale, undivided: divide in"
                " backward=lambda loss: (loss / k).backward()",
                stacklevel=find_stack_level(),
            )

    def _warn_if_inverted(self, train_loss: float, val_loss: float) -> None:
        """Warn once if the validation loss was well below the training loss that was passed, and never well above it.

        Losses that are close, as those of a model that has learned nothing yet, say nothing about their order.
        """
        if self._num_inverted > MAX_SUSPICIOUS or not (math.isfinite(val_loss) and math.isfinite(train_loss)):
            return
        if INVERTED * train_loss <= val_loss <= train_loss / INVERTED:
            return
        self._num_inverted = MAX_SUSPICIOUS + 1 if val_loss > train_loss else self._num_inverted + 1
        if self._num_inverted == MAX_SUSPICIOUS:
            warnings.warn(
                f'lam="auto" has trained plainly so far: in {MAX_SUSPICIOUS} observations val_loss was below train_loss'
                f" (now {val_loss:.4g} and {train_loss:.4g}) and never above it, as if the model did not overfit; are"
                " they losses and not accuracies, and are they not swapped?",
                stacklevel=find_stack_level(),
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the state to save with a checkpoint.

        Returns:
            Plain data.
        """
        return {
            "lam": self._state.lam,
            "first_loss": self._state.first_loss if self._is_observed else float(self._first_loss),
            "peak": self._state.peak,
            "share": self._rho_share,
            "is_observed": self._is_observed,
            "held": self._num_above_first_loss,
            "inverted": self._num_inverted,
            "not_finite": self._num_not_finite,
            "steps": self._steps,
            "total": float(self._total),
            "is_double": self._total.dtype == torch.float64,
            "perturbed_steps": self._perturbed_steps,
            "rise": float(self._rise),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state.

        Args:
            state: What `state_dict` returned.

        Raises:
            ValueError: If it is something else.
        """
        match dict(state):
            case {
                "lam": float(lam), "first_loss": float(first_loss), "peak": float(peak),
                "share": float(share), "is_observed": bool(is_observed), "held": int(held),
                "inverted": int(inverted), "not_finite": int(not_finite),
                "steps": int(steps), "total": float(total), "is_double": bool(is_double),
                "perturbed_steps": int(perturbed_steps), "rise": float(rise), **rest,
            } if (
                min(lam, peak) >= 0 and max(lam, peak, share) <= 1 and share > 0
                and 0 <= perturbed_steps <= steps and not rest
                and min(held, inverted, not_finite) >= 0
                and max(held, inverted, not_finite) <= MAX_SUSPICIOUS + 1
            ):  # fmt: skip
                self._state, self._rho_share = AutoState(lam, first_loss if is_observed else math.inf, peak), share
                self._first_loss = torch.tensor(first_loss, dtype=torch.float64)
                self._is_observed, self._steps = is_observed, steps
                self._num_above_first_loss, self._num_inverted, self._num_not_finite = held, inverted, not_finite
                self._total = torch.tensor(total, dtype=torch.float64 if is_double else torch.float32)
                self._perturbed_steps, self._rise = perturbed_steps, torch.tensor(rise)
            case _:
                raise ValueError(
                    f'expected the state of lam="auto" as this version of wtawp saves it, got {dict(state)!r};'
                    " continue a training that an earlier version began with that version"
                )


def _warn_of_another_scale(mean: float, train_loss: float) -> None:
    """Warn if the closure returns another multiple of the training loss than is observed: a sum in place of a mean."""
    ratio = mean / train_loss if train_loss else math.inf
    if math.isfinite(mean) and math.isfinite(train_loss) and mean and not 1 / MAX_RATIO <= ratio <= MAX_RATIO:
        warnings.warn(
            f"the closure returned a loss of {mean:.4g} in the mean of the first steps, but observe() was given"
            f" train_loss={train_loss:.4g}; both must have one scale, for example means over samples and no sums,"
            " because the rise of the loss at the perturbed weights is compared with val_loss",
            stacklevel=find_stack_level(),
        )


def _added(total: Tensor, loss: Tensor) -> Tensor:
    """The sum of a total and a loss with one element, on the device of the loss, and at least in single precision."""
    return total.to(loss.device) + (loss.reshape(()) if loss.dim() else loss)


def _number(name: str, loss: float | Tensor) -> float:
    """A loss as a number; it may be infinite or NaN, which changes nothing."""
    if isinstance(loss, Tensor) and loss.numel() != 1:
        raise ValueError(f"{name} must be one number, got a tensor of shape {list(loss.shape)}; pass its mean")
    if not hasattr(loss, "__float__"):  # numbers of NumPy have it, text has not
        raise ValueError(f"{name} must be a number, got {type(loss).__name__}")
    number = float(loss.detach() if isinstance(loss, Tensor) else loss)
    if number < 0:
        raise ValueError(
            f'{name} must be >= 0, got {number:g}: lam="auto" compares losses by their ratio; choose lam as a number'
        )
    return number
