"""What a search varies: ranges of hyper-parameters for plain training, for WT-AWP and for other methods, as plain data.

Plain training is tuned as well, with the same number of trials: otherwise a gain of WT-AWP could be the gain of tuning.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import nn

from wtawp.core import AwpConfig, select
from wtawp.core.config import AUTO_RULE, LAYER_WORDS
from wtawp.experiments.spec import Setting
from wtawp.experiments.tuning.dimensions import RANGES, Choice, Parameters, Range, Value
from wtawp.experiments.tuning.methods import METHODS
from wtawp.models.registry import model_spec

Arm = str  # a way to train: "plain", "WT-AWP", or the name of a method
BALANCES = (None, 1.0, 4.0, 16.0)  # None is the paper's method, without a limit
DIGITS = 3  # significant digits of a number, so that a command line repeats a trial exactly


@dataclass(frozen=True)
class Space:
    """The hyper-parameters of one arm.

    Attributes:
        arm: The name of the way to train.
        dimensions: What is varied, by name.
        fixed: The values of the other hyper-parameters of the arm.
        start: The first trial: the values that are used without tuning; None if they are outside of the ranges.
    """

    arm: Arm
    dimensions: Mapping[str, Range | Choice]
    fixed: Parameters
    start: Parameters | None

    @property
    def content(self) -> dict[str, Any]:
        """The space as plain data for JSON, which identifies a search."""
        varied = {name: asdict(dimension) for name, dimension in self.dimensions.items()}
        fixed = {**self.fixed, **({"rule": AUTO_RULE} if self.fixed.get("lam") == "auto" else {})}
        return {"varied": varied, "fixed": fixed, "start": None if self.start is None else dict(self.start)}

    @property
    def example(self) -> Parameters:
        """Typical values: those of the first trial, or the first value of each dimension."""
        return {name: d.first for name, d in self.dimensions.items()} if self.start is None else self.start

    def setting(self, base: Setting, parameters: Parameters) -> Setting:
        """Build the setting of a trial.

        Args:
            base: What all trials share.
            parameters: Values of what is varied; numbers are rounded to three digits.

        Returns:
            The setting.

        Example:
            >>> space = Space("plain", {"lr": Range(0.002, 0.05)}, {"weight_decay": 5e-4}, None)
            >>> space.setting(Setting(dataset="wine"), {"lr": 0.0123456}).lr
            0.0123
        """
        values = {**self.fixed, **{name: rounded(value) for name, value in parameters.items()}}
        options = dict(base.options)
        if "dropout" in values:
            options["dropout"] = values.pop("dropout")
        others: dict[str, Any] = {n: values.pop(n) for n in ("lr", "weight_decay", "average") if n in values}
        perturbation: dict[str, Any] = values
        awp = AwpConfig(**perturbation) if perturbation else None
        return replace(base, **others, awp=awp, options=tuple(options.items()), hash_sources=False)


def rounded(value: Value) -> Value:
    """Round a number to the digits that a command line shows; other values stay.

    Args:
        value: A value of a hyper-parameter.

    Returns:
        The rounded value.

    Example:
        >>> rounded(0.70123), rounded("first")
        (0.701, 'first')
    """
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def search_spaces(
    base: Setting, awp: AwpConfig, model: nn.Module, user_set: Collection[str], methods: Sequence[str] = ()
) -> dict[Arm, Space]:
    """Choose what is varied for a model. What the user set stays as it is.

    Args:
        base: The setting of plain training without tuning.
        awp: The perturbation without tuning, the paper's by default.
        model: A model of the setting, which tells the layers apart.
        user_set: Names of the hyper-parameters that the user chose; all of `base.options` are chosen too.
        methods: The names of further methods.

    Returns:
        The space of each arm: plain training, WT-AWP and `methods`. Dropout is varied if the constructor of the model
        has an argument `dropout` whose default is a number, see `varies_dropout`.

    Raises:
        ValueError: If a method cannot be used with so few epochs.
    """
    untuned: dict[str, Value] = {"lr": base.lr, "weight_decay": base.weight_decay}
    if varies_dropout(base):
        untuned["dropout"] = float(model_spec(base.model).options()["dropout"])  # type: ignore[arg-type]
    perturbation: dict[str, Value] = {"rho": awp.rho, "lam": awp.fixed_lam, "balance": awp.balance}
    dimensions: dict[str, Range | Choice] = {}
    for name, value in {**untuned, **perturbation}.items():
        if name in RANGES and name not in user_set:
            dimensions[name] = _including(RANGES[name], value)
    if "balance" not in user_set:
        dimensions["balance"] = Choice(BALANCES)
    words = layer_words(model, str(awp.layers))
    if "layers" not in user_set and len(words) > 1:
        dimensions["layers"] = Choice(words)
    perturbation["layers"] = str(awp.layers)
    spaces = {
        "plain": _space("plain", dimensions, untuned),
        "WT-AWP": _space("WT-AWP", dimensions, untuned | perturbation),
    }
    shared = {name: dimension for name, dimension in dimensions.items() if name in untuned}
    for name in methods:
        method = METHODS[name]
        is_free = {name: name in shared or name not in untuned for name in method.varied}  # the user did not set it
        varied = {name: dimension for name, dimension in method.varied.items() if is_free[name]}
        values = dict(method.untuned)
        for of_wt_awp in ("rho", "lam"):
            if of_wt_awp in varied and of_wt_awp not in values:
                values[of_wt_awp] = perturbation[of_wt_awp]
                varied[of_wt_awp] = _including(RANGES[of_wt_awp], perturbation[of_wt_awp])
        if isinstance(starts := varied.get("start"), Choice):  # those that leave epochs to perturb
            possible = tuple(start for start in starts.values if isinstance(start, int) and start < base.epochs)
            if len(possible) < 2:
                raise ValueError(f"{name} needs more than {starts.values[1]} epochs, got {base.epochs}")
            varied["start"], values["start"] = Choice(possible), possible[1]
        layers = {"layers": perturbation["layers"]} if method.uses_model_layers else {}
        spaces[name] = _space(name, {**shared, **varied}, {**untuned, **layers, **method.fixed, **values})
    return spaces


def varies_dropout(base: Setting) -> bool:
    """Whether the dropout of a model can be varied.

    Args:
        base: The setting of plain training.

    Returns:
        False if the user chose it, or if the constructor has no argument of that name with a number as its default.
    """
    default = model_spec(base.model).options().get("dropout")
    return "dropout" not in dict(base.options) and isinstance(default, int | float) and not isinstance(default, bool)


def layer_words(model: nn.Module, preferred: str) -> tuple[str, ...]:
    """Find the words for layers that perturb different weights of a model.

    Args:
        model: The model.
        preferred: The word that is kept if another one perturbs the same weights.

    Returns:
        One word for each set of weights, the preferred one first.

    Example:
        >>> from torch.nn import Linear, Sequential
        >>> layer_words(Sequential(Linear(2, 2), Linear(2, 2)), "all-but-last")
        ('all-but-last', 'all', 'last')
    """
    words: dict[tuple[str, ...], str] = {}
    for word in dict.fromkeys((preferred, *LAYER_WORDS)):
        try:
            words.setdefault(tuple(select(model, word)), word)
        except ValueError:  # such as "all-but-last" of a model with one layer
            continue
    return tuple(words.values())


def _including(range_: Range, value: Value) -> Range:
    """The range, extended to the value that is used without tuning if that is possible."""
    if not isinstance(value, float) or (range_.is_log and value <= 0):
        return range_
    return replace(range_, low=min(range_.low, value), high=max(range_.high, value))


def _space(arm: Arm, dimensions: Mapping[str, Range | Choice], untuned: Parameters) -> Space:
    """The space of an arm, which has the hyper-parameters in `untuned`."""
    varied = {name: dimension for name, dimension in dimensions.items() if name in untuned}
    start = {name: untuned[name] for name in varied}
    is_inside = all(dimension.contains(start[name]) for name, dimension in varied.items())
    fixed = {name: value for name, value in untuned.items() if name not in varied}
    return Space(arm, varied, fixed, start if is_inside else None)
