"""What a measure is: options, a function of trained models, and what it applies to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from wtawp.experiments.spec import MAX_INITS, Option, RunId

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch_geometric.data import Data

    from wtawp.graphs import Split

Result = dict[str, Any]  # plain data that JSON can hold
DIGITS = 8  # to which results are rounded before they are stored


@dataclass(frozen=True)
class TrainedModels:
    """The models of a stack, with the graph and the splits they were trained on.

    Attributes:
        models: Trained models of one architecture.
        data: The graph, or batch of graphs, on the device of the models.
        dataset: The name of the data set.
        splits: The split of each model.
        run_ids: The numbers of split and initialisation of each model.
        model: The name of the model in plans.
        awp: How its weights were perturbed in training, as text.
    """

    models: "Sequence[nn.Module]"
    data: "Data"
    dataset: str
    splits: "Sequence[Split]"
    run_ids: Sequence[RunId]
    model: str = ""
    awp: str = "None"

    @property
    def seeds(self) -> list[int]:
        """The seed of each model, as in its training."""
        return [split * MAX_INITS + init for split, init in self.run_ids]


@dataclass(frozen=True, kw_only=True)
class MeasureSpec:
    """A measure: what a plan may ask of trained models under this name.

    Attributes:
        name: How plans and records call it.
        options: Makes the validated options from keyword arguments; usually a frozen dataclass.
        run: Maps trained models and the options to one result for each model.
        levels: The kinds of task it applies to: "node", "graph", or both.
        smoke_options: Smaller values of options for a run that only shows that everything works.
        check: Refuses, before anything is trained, a model or graph that the measure cannot work with; it is given the
            options, an untrained model, the graph and a split.
        cost: The cost of one model, in epochs of a GCN, for the progress bar.
    """

    name: str
    options: Callable[..., Any]
    run: Callable[[TrainedModels, Any], list[Result]]
    levels: frozenset[str] = frozenset({"node"})
    smoke_options: Mapping[str, Option] = field(default_factory=dict)
    check: "Callable[[Any, nn.Module, Data, Split], None] | None" = None
    cost: Callable[[Any], float] = lambda _: 0.0

    @property
    def reference(self) -> str:
        """Where the function that measures is defined, as "package.module:name"."""
        run: Any = self.run
        while isinstance(run, partial):
            run = run.func
        function = run if hasattr(run, "__qualname__") else type(run)
        return f"{function.__module__}:{function.__qualname__}"

    def parse(self, options: Mapping[str, Option]) -> Any:
        """Build the validated options.

        Args:
            options: Option names and values, as a plan gives them.

        Returns:
            What `self.options` makes of them.

        Raises:
            ValueError: If an option is unknown, missing, or has a value out of its range.
        """
        if is_dataclass(self.options):
            known = {f.name: f for f in fields(self.options)}
            if unknown := sorted(set(options) - set(known)):
                raise ValueError(f"{self.name} has no option {unknown[0]!r}; it has {', '.join(sorted(known))}")
            required = [n for n, f in known.items() if f.default is MISSING and f.default_factory is MISSING]
            if missing := [n for n in required if n not in options]:
                raise ValueError(f"{self.name} needs the option {missing[0]!r}")
        return self.options(**options)


def has_finite_weights(model: "nn.Module") -> bool:
    """Whether all weights are finite: a diverged model of a stack must not spoil the results of the others."""
    return all(bool(p.isfinite().all()) for p in model.parameters())


def rounded(value: "float | Tensor") -> float:
    """The value as a float with the digits that are stored."""
    return round(float(value), DIGITS)
