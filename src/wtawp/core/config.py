"""The options of the method, validated when they are built. This module does not import torch.

Plans, tables and the command line read options without computing anything, and importing torch takes seconds.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal, get_args

Radius = Literal["layer", "global", "adaptive"]
Projection = Literal["sphere", "ball"]
Layers = str | Sequence[str]
Lam = float | Literal["auto"]
Balance = float | Literal["auto"] | None

LAYER_WORDS = ("all", "all-but-last", "first", "last")


@dataclass(frozen=True, kw_only=True)
class AwpConfig:
    """The options of adversarial weight perturbation: immutable and hashable, so that they can identify a run.

    Attributes:
        rho: Radius of the perturbation in Eq. 5 (eq:est), at least 0. It is relative to the norm of each tensor when
            `radius` is "layer", and absolute otherwise. 0 is plain training.
        lam: Weight of the perturbed loss in Eq. 10 (eq:weighted_awp), between 0 and 1. 0 is plain training, 1 is AWP.
            "auto" follows the gap between validation and training loss: 0 while a model underfits, up to 0.95 when it
            overfits. The radius is then at most rho, and smaller where the model cannot bear it; see `wtawp.core.auto`.
        layers: The perturbed parameters, theta^(awp) of Eq. 9. Either one of the words "all", "all-but-last", "first"
            and "last", which select weight matrices by layer, or one or several glob patterns over parameter names.
            The default leaves out the last layer, as the paper's T-AWP and WT-AWP do.
        radius: "layer" (the paper) limits each tensor to rho times its own norm, "global" (SAM) limits all tensors
            together to rho, "adaptive" (ASAM) does so after dividing each step by the size of the weight it changes.
        projection: "sphere" scales every step to the full radius, as the released code does; the published numbers
            need it. "ball" leaves a step that is shorter than the radius as it is, as Eq. 5 is written.
        steps: Number of steps of gradient ascent, at least 1. The first one reuses the natural gradient.
        step_size: Size of each ascent step. None means 1 / steps.
        balance: Upper limit for the norm of the perturbed gradient over all parameters, as a multiple of the norm of
            the natural gradient. None, as in the paper, sets no limit. "auto" is a limit that depends on lam="auto",
            and no limit where lam is a number.
        exact: Whether to keep the second-order term of Eq. 7 (eq:grad_exact). It is meant for studies of small models,
            because it needs second derivatives.
        every: Perturb at every `every`-th step only, beginning with the first; the steps between are plain training.
        start: The number of plain steps before the first perturbed one.

    Raises:
        ValueError: If an option is outside its allowed values.

    Example:
        >>> config = AwpConfig(rho=1.0, lam=0.7)
        >>> config.layers, config.is_plain
        ('all-but-last', False)
    """

    rho: float
    lam: Lam
    layers: Layers = "all-but-last"
    radius: Radius = "layer"
    projection: Projection = "sphere"
    steps: int = 1
    step_size: float | None = None
    balance: Balance = "auto"
    exact: bool = False
    every: int = 1
    start: int = 0

    def __post_init__(self) -> None:
        if self.lam != "auto" and not _is_number(self.lam, 0.0, 1.0):
            raise ValueError(f'lam must lie in [0, 1] or be "auto", got {self.lam!r}; 0 is plain training, 1 is AWP')
        if self.balance == "auto" and not self.is_auto:
            object.__setattr__(self, "balance", None)
        if not _is_number(self.rho, 0.0):
            raise ValueError(f"rho must be a finite number >= 0, got {self.rho!r}; 0 is plain training")
        for name, least in (("steps", 1), ("every", 1), ("start", 0)):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < least:
                raise ValueError(f"{name} must be a whole number >= {least}, got {getattr(self, name)!r}")
        for name, words in (("step_size", (None,)), ("balance", (None, "auto"))):
            if getattr(self, name) not in words and not _is_number(getattr(self, name), sys.float_info.min):
                raise ValueError(f"{name} must be a finite number > 0 or None, got {getattr(self, name)!r}")
        for name, allowed in (("radius", get_args(Radius)), ("projection", get_args(Projection))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {allowed}, got {getattr(self, name)!r}")
        if not isinstance(self.layers, Sequence) or not all(isinstance(glob, str) for glob in self.layers):
            raise ValueError(f"layers must be a word or globs over parameter names, got {self.layers!r}")
        object.__setattr__(self, "layers", self.layers if isinstance(self.layers, str) else tuple(self.layers))

    @property
    def is_auto(self) -> bool:
        """Whether lam follows the training.

        Returns:
            True if lam is "auto".
        """
        return self.lam == "auto"

    @property
    def fixed_lam(self) -> float:
        """The weight of the perturbed loss, where it is a number.

        Returns:
            lam.

        Raises:
            ValueError: If lam is "auto".
        """
        if isinstance(self.lam, str):
            raise ValueError('lam="auto" has a value in a training alone')
        return self.lam

    @property
    def is_plain(self) -> bool:
        """Whether these options describe plain training, without any perturbation (lam or rho is 0).

        Returns:
            True if nothing is perturbed.
        """
        return self.lam == 0 or self.rho == 0

    def perturbs(self, step: int) -> bool:
        """Whether a step is perturbed, or plain training.

        Args:
            step: The number of the step, counted from 0.

        Returns:
            False before `start`, between the steps that `every` chooses, and in plain training.

        Example:
            >>> [AwpConfig(rho=1.0, lam=0.7, start=2, every=2).perturbs(step) for step in range(5)]
            [False, False, True, False, True]
        """
        return not self.is_plain and step >= self.start and (step - self.start) % self.every == 0

    def __str__(self) -> str:
        defaults = {f.name: f.default for f in fields(self)} | {"balance": "auto" if self.is_auto else None}
        shown = [f for f in fields(self) if f.name in ("rho", "lam") or getattr(self, f.name) != defaults[f.name]]
        return ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in shown)


def _is_number(value: object, low: float, high: float = sys.float_info.max) -> bool:
    """Whether `value` is a number between the two limits; NaN is not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
