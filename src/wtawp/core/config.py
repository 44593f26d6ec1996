"""The options of the method, validated when they are built. This module does not import torch.

Plans, tables and the command line read options without computing anything, and importing torch takes seconds.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from numbers import Integral, Real
from typing import Any, Literal, get_args

Radius = Literal["layer", "global", "adaptive"]
Projection = Literal["sphere", "ball"]
Layers = str | Sequence[str]
Lam = float | Literal["auto"]
Balance = float | Literal["auto"] | None
Direction = Literal["gradient", "momentum", "without-edges"]
PerturbedGradient = Literal["full", "functional", "without-edges"]

LAYER_WORDS = ("all", "all-but-last", "first", "last")
# The version of the rule of lam="auto" in `wtawp.core.auto`. It is part of the keys of stored runs, so that those of
# another rule are not taken for those of the present one.
AUTO_RULE = 2
MIN_AUTO_LR = 0.005  # of Adam: the rule counts epochs, and with a smaller learning rate it perturbs models too early


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
        direction: The direction of the perturbation. "gradient" is the gradient of the loss at theta. "momentum" is
            the direction in which the optimizer moves, minus its averaged gradient, as in momentum-SAM; it needs no
            pass. "without-edges" is the gradient at theta of the model on the graph without its edges.
        perturbed_gradient: What g(theta + delta) is. "full" is the gradient of the loss there. "functional" takes the
            derivative of the loss by the outputs at theta, and the derivative of the outputs by the weights at theta +
            delta, as in functional SAM. "without-edges" is the gradient at theta + delta of the model on the graph
            without its edges, as in FGSAM.

    `WTAWP` takes "gradient" and "full" alone: `fit` and `fit_many` know the optimizer, the outputs and the graph.

    Raises:
        ValueError: If an option is outside its allowed values, or contradicts another one.

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
    direction: Direction = "gradient"
    perturbed_gradient: PerturbedGradient = "full"

    def __post_init__(self) -> None:
        for name in ("rho", "lam", "step_size", "balance"):
            value: Any = getattr(self, name)
            if isinstance(value, str | float | int | None):
                continue
            if isinstance(value, Real):  # a number of NumPy
                object.__setattr__(self, name, int(value) if isinstance(value, Integral) else float(value))
            elif hasattr(value, "item"):
                raise ValueError(f"{name} must be a number, got {type(value).__name__}; pass its .item()")
        if self.lam != "auto" and not _is_number(self.lam, 0.0, 1.0):
            raise ValueError(f'lam must lie in [0, 1] or be "auto", got {self.lam!r}; 0 is plain training, 1 is AWP')
        if self.balance == "auto" and not self.is_auto:
            object.__setattr__(self, "balance", None)
        if not _is_number(self.rho, 0.0):
            raise ValueError(f"rho must be a finite number >= 0, got {self.rho!r}; 0 is plain training")
        for name, least in (("steps", 1), ("every", 1), ("start", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
                raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}")
            object.__setattr__(self, name, int(value))
        if not isinstance(self.exact, bool):
            raise ValueError(f"exact must be True or False, got {self.exact!r}")
        for name, words in (("step_size", (None,)), ("balance", (None, "auto"))):
            if getattr(self, name) not in words and not _is_number(getattr(self, name), sys.float_info.min):
                raise ValueError(f"{name} must be a finite number > 0 or None, got {getattr(self, name)!r}")
        words_of = {"radius": Radius, "projection": Projection, "direction": Direction,
                    "perturbed_gradient": PerturbedGradient}  # fmt: skip
        for name, allowed in words_of.items():
            if getattr(self, name) not in get_args(allowed):
                raise ValueError(f"{name} must be one of {get_args(allowed)}, got {getattr(self, name)!r}")
        self._refuse_contradictions()
        if not isinstance(self.layers, Sequence) or not all(isinstance(glob, str) for glob in self.layers):
            raise ValueError(f"layers must be a word or globs over parameter names, got {self.layers!r}")
        object.__setattr__(self, "layers", self.layers if isinstance(self.layers, str) else tuple(self.layers))

    def _refuse_contradictions(self) -> None:
        """Refuse options that a substituted direction or perturbed gradient leaves without a meaning."""
        name = "direction" if self.direction != "gradient" else "perturbed_gradient"
        if self.needs_fit and (self.exact or self.is_auto):
            other = "exact=True" if self.exact else 'lam="auto"'
            raise ValueError(
                f"{other} is for a perturbation along the gradient and the gradient of the loss there; it cannot be"
                f" combined with {name}={getattr(self, name)!r}"
            )
        if self.direction != "gradient" and self.steps > 1:
            raise ValueError(
                f"steps={self.steps} needs gradients to climb; with direction={self.direction!r} use steps=1"
            )

    @property
    def needs_fit(self) -> bool:
        """Whether `fit` and `fit_many` alone can train so, and no `WTAWP` in a loop of one's own.

        Returns:
            True if the direction or the perturbed gradient needs more than a loss and its gradient.

        Example:
            >>> AwpConfig(rho=3.0, lam=1.0, direction="momentum").needs_fit
            True
        """
        return self.direction != "gradient" or self.perturbed_gradient != "full"

    @property
    def needs_natural_gradient(self) -> bool:
        """Whether a perturbed step needs g(theta). Otherwise it skips that pass, and L(theta) is not known.

        Returns:
            False if the direction comes from elsewhere, g(theta) has no weight, and nothing is compared with it.

        Example:
            >>> AwpConfig(rho=3.0, lam=1.0, direction="momentum").needs_natural_gradient
            False
        """
        is_unused = self.lam == 1 and self.balance is None and self.perturbed_gradient == "full"
        return self.direction == "gradient" or not is_unused

    @property
    def content(self) -> dict[str, Any]:
        """The options as plain data, from which keys are made; the newest are left out at their defaults.

        Returns:
            Name -> value; with lam="auto" also the version of its rule, as "rule".
        """
        newer = {"direction": "gradient", "perturbed_gradient": "full"}
        content = {name: value for name, value in asdict(self).items() if name not in newer or value != newer[name]}
        return {**content, "rule": AUTO_RULE} if self.is_auto else content

    @staticmethod
    def from_content(content: Mapping[str, Any]) -> "AwpConfig":
        """Build options from plain data.

        Args:
            content: The `content` of options, also after a round trip through JSON; the newest may be missing.

        Returns:
            The options.

        Raises:
            TypeError: If an option is unknown.
            ValueError: If a value is out of its range, or belongs to another version of the rule of lam="auto".
        """
        options = {name: value for name, value in content.items() if name != "rule"}
        config = AwpConfig(**options)
        rule = content.get("rule", 1 if config.is_auto else None)
        if rule != (AUTO_RULE if config.is_auto else None):
            raise ValueError(f'lam="auto" followed rule {rule} there, and follows rule {AUTO_RULE} in this version')
        return config

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
