"""The registry of methods that a search can tune beside plain training and WT-AWP: other ways to flat minima.

Every method has learning rate, weight decay and dropout to vary, and what is listed here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from wtawp.core.config import MIN_AUTO_LR
from wtawp.experiments.tuning.dimensions import RANGES, Choice, Range, Value

DECAYS = (0.9, 0.95, 0.98, 0.99)  # of moving averages


@dataclass(frozen=True)
class Method:
    """What a method fixes and what it varies: options of `AwpConfig`, and `average`, as `fit` takes it.

    Attributes:
        summary: What it does, in a few words.
        fixed: The values of the options that it fixes.
        varied: What a search varies, by name. A learning rate takes the place of the one that all methods vary.
        untuned: The values of what is varied that are used without tuning; rho and lam are WT-AWP's where they are
            missing here.
        uses_model_layers: Whether it perturbs the layers that WT-AWP perturbs in the model.
    """

    summary: str
    fixed: Mapping[str, Value] = field(default_factory=dict)
    varied: Mapping[str, Range | Choice] = field(default_factory=dict)
    untuned: Mapping[str, Value] = field(default_factory=dict)
    uses_model_layers: bool = False


_OF_WT_AWP = {"rho": RANGES["rho"], "lam": RANGES["lam"]}
METHODS: dict[str, Method] = {
    "WT-AWP auto": Method(
        "lam follows the training", fixed={"rho": 1.0, "lam": "auto"},
        varied={"lr": replace(RANGES["lr"], low=MIN_AUTO_LR)}, uses_model_layers=True,
    ),
    "W-AWP": Method("WT-AWP of all layers", fixed={"layers": "all"}, varied=_OF_WT_AWP),
    "SAM": Method(
        "sharpness-aware minimisation", fixed={"lam": 1.0, "layers": "*", "radius": "global"},
        varied={"rho": Range(0.005, 1.0, is_log=True)}, untuned={"rho": 0.05},
    ),
    "ASAM": Method(
        "adaptive sharpness-aware minimisation", fixed={"lam": 1.0, "layers": "*", "radius": "adaptive"},
        varied={"rho": Range(0.05, 10.0, is_log=True)}, untuned={"rho": 0.5},
    ),
    "Momentum-SAM": Method(
        "SAM downhill along the momentum, one pass a step",
        fixed={"lam": 1.0, "layers": "*", "radius": "global", "direction": "momentum"},
        varied={"rho": Range(0.05, 10.0, is_log=True)}, untuned={"rho": 3.0},
    ),
    "FGSAM": Method(
        "SAM that descends without message passing, and with the GNN's gradient",
        fixed={"layers": "*", "radius": "global", "perturbed_gradient": "without-edges"},
        varied={"rho": Range(0.005, 1.0, is_log=True), "lam": RANGES["lam"]}, untuned={"rho": 0.05, "lam": 0.5},
    ),
    "functional AWP": Method(
        "WT-AWP with the derivative of the loss by the outputs at the weights themselves",
        fixed={"perturbed_gradient": "functional"}, varied=_OF_WT_AWP, uses_model_layers=True,
    ),
    "EMA": Method("moving average of the weights", varied={"average": Choice(DECAYS)}, untuned={"average": 0.95}),
    "SWA": Method("mean of the weights of the last quarter", fixed={"average": "swa"}),
    "WT-AWP and EMA": Method(
        "both", varied={**_OF_WT_AWP, "average": Choice(DECAYS)}, untuned={"average": 0.95}, uses_model_layers=True
    ),
    "WT-AWP, late start": Method(
        "plain epochs first", varied={**_OF_WT_AWP, "start": Choice((10, 20, 50))}, untuned={"start": 20},
        uses_model_layers=True,
    ),
    "WT-AWP, every other step": Method(
        "plain steps between", fixed={"every": 2}, varied=_OF_WT_AWP, uses_model_layers=True
    ),
}  # fmt: skip


def method_names() -> tuple[str, ...]:
    """The names of all registered methods.

    Returns:
        The names, in the order of the table.

    Example:
        >>> "SAM" in method_names()
        True
    """
    return tuple(METHODS)


def register_method(name: str, method: Method) -> None:
    """Register a method of one's own, which `wtawp tune --method NAME` then knows.

    Args:
        name: Its name.
        method: What it fixes and varies.

    Raises:
        ValueError: If there is one of that name.
    """
    if name in METHODS or name in ("plain", "WT-AWP"):
        raise ValueError(f"there is a method {name!r} already; choose another name")
    METHODS[name] = method
