"""The registry of measures: the modules of this package, and what users register."""

from dataclasses import fields, is_dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from wtawp.experiments import measures
from wtawp.experiments.measures.shared.interface import MeasureSpec, Result, TrainedModels
from wtawp.experiments.spec import MeasureRequest
from wtawp.experiments.spec.sources import MEASURE_REFERENCES

if TYPE_CHECKING:
    from torch import nn
    from torch_geometric.data import Data

    from wtawp.graphs import Split

_BUILT_IN = tuple(sorted(module.name for module in iter_modules(measures.__path__) if not module.ispkg))
_REGISTERED: dict[str, MeasureSpec] = {}


def measure_names() -> tuple[str, ...]:
    """The names of all measures, those that users registered last."""
    return (*_BUILT_IN, *_REGISTERED)


def measure_spec(name: str) -> MeasureSpec:
    """Look a measure up by its name.

    Args:
        name: One of `measure_names()`.

    Returns:
        Its specification.

    Raises:
        ValueError: If there is no such measure.
    """
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name not in _BUILT_IN:
        raise ValueError(f"a measure is one of {', '.join(measure_names())}, got {name!r}")
    spec: MeasureSpec = import_module(f"{measures.__name__}.{name}").MEASURE
    return spec


def register_measure(spec: MeasureSpec) -> None:
    """Add a measure of one's own, which plans can then name.

    The hash of the source of its function becomes the option "code" of every request for it, so that results of other
    code are other results; it is not passed on. Its tables and figures are added with
    `wtawp.experiments.report.reporters.register_reporter`.

    Args:
        spec: The measure.

    Raises:
        ValueError: If the name is taken, or the measure has an option of its own named "code".
    """
    if spec.name in measure_names():
        raise ValueError(f"there is a measure called {spec.name!r} already; choose another name")
    if is_dataclass(spec.options) and "code" in {f.name for f in fields(spec.options)}:
        raise ValueError(f"the option code of {spec.name!r} is the hash of its source; choose another name for yours")
    _REGISTERED[spec.name] = spec
    MEASURE_REFERENCES[spec.name] = spec.reference


def user_measures() -> tuple[MeasureSpec, ...]:
    """The measures that `register_measure` added, for other processes to register as well."""
    return tuple(_REGISTERED.values())


def options_of(wanted: MeasureRequest) -> Any:
    """The validated options of a measure that a plan asks for."""
    options = dict(wanted.options)
    if wanted.name in _REGISTERED:
        options.pop("code", None)  # the hash of the user's measure, which is there for the key alone
    return measure_spec(wanted.name).parse(options)


def run_measure(wanted: MeasureRequest, trained: TrainedModels) -> list[Result]:
    """Measure trained models.

    Args:
        wanted: The measure and its options.
        trained: The models of one stack.

    Returns:
        One result for each model.
    """
    return measure_spec(wanted.name).run(trained, options_of(wanted))


def check_measure(wanted: MeasureRequest, model: "nn.Module", data: "Data", split: "Split") -> None:
    """Refuse, before anything is trained, what the measure would refuse after it.

    Args:
        wanted: The measure and its options.
        model: An untrained model of the kind that will be measured.
        data: Its graph.
        split: A split of it.

    Raises:
        ValueError: If the measure or one of its options is unknown or out of range.
        WtawpError: If the model or the graph cannot be measured so.
    """
    spec, options = measure_spec(wanted.name), options_of(wanted)
    if spec.check is not None:
        spec.check(options, model, data, split)
