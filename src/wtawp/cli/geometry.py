"""`wtawp landscape | smoothness | sharpness | bound`: how flat is a model in its weights, how smooth in its inputs?

Of a model trained here, with and without WT-AWP, or of a checkpoint of one's own.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from wtawp.cli.options import Dataset, Device, Epochs, Json, Lam, Model, Plain, Rho, values_are_parameters
from wtawp.cli.printing import print_table
from wtawp.cli.shared import app, errors_in_plain_words, progress_bar, stderr_console
from wtawp.models.registry import model_spec

if TYPE_CHECKING:
    from torch.nn import Module
    from torch_geometric.data import Data

    from wtawp.experiments.inspection.models import Check, InspectedModels
    from wtawp.experiments.report.artifacts import Artifact
    from wtawp.experiments.spec import Run


def _finite(above: float, *, or_equal: bool = False, below: float = math.inf) -> Callable[[Any], Any]:
    """Checks numbers where typer reads them, so that the error names the option; its own min and max let NaN pass."""

    def check(value: Any) -> Any:
        for number in value if isinstance(value, list | tuple) else [value]:
            if number is not None and not (above < number < below or (or_equal and number == above)):
                limits = f"finite and {'>=' if or_equal else '>'} {above:g}"
                raise typer.BadParameter(
                    f"must be {limits if below == math.inf else f'between {above:g} and {below:g}'}, got {number:g}"
                )
        return value

    return check


def _readable(options: list[str] | None) -> list[str] | None:
    from wtawp.experiments.inspection.model_options import parse_options

    with values_are_parameters():
        parse_options(options or [])
    return options


Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        callback=_readable,
        help="Of the model, as hidden=8 (or 8,8) or dropout=0.2; may be repeated.",
        show_default=False,
    ),
]
Checkpoint = Annotated[
    Path | None, typer.Option(help="Measure these weights (a state dict of --model) and train nothing.")
]
SplitSeed = Annotated[int, typer.Option("--split", help="Seed of the split.")]
Init = Annotated[int, typer.Option(help="Seed of the initial weights and of dropout.")]
Out = Annotated[
    Path | None,
    typer.Option(file_okay=False, help="Write the figure (SVG, PNG) and the numbers (JSON) into this folder."),
]
SelectOn = Annotated[
    Literal["either", "loss", "accuracy", "last"] | None,
    typer.Option(help="Which weights: those that validation selects on loss or accuracy, or the last epoch's.",
                 show_default="either; of graphs accuracy"),
]  # fmt: skip
PerturbedLayers = Annotated[
    Literal["all", "all-but-last", "first", "last"] | None,
    typer.Option(help="What WT-AWP perturbs in training.", show_default="all-but-last; of graphs first"),
]
Scale = Annotated[
    Literal["unit", "layer", "filter"] | None,
    typer.Option(help="Length of random directions: 1, or that of each layer or filter.", show_default="layer"),
]
Line = Annotated[
    Literal["random", "adversarial", "between"],
    typer.Option(help="Random ones; as WT-AWP perturbs; or from one solution to another (see --other)."),
]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is inspected, and where the result goes: the options that these commands share."""

    dataset: Dataset
    model: Model = "GCN"
    option: Options = None
    checkpoint: Checkpoint = None
    rho: Rho = None
    lam: Lam = None
    plain: Plain = False
    split: SplitSeed = 0
    init: Init = 0
    epochs: Epochs = 200
    select_on: SelectOn = None
    layers: PerturbedLayers = None
    device: Device = "cpu"
    out: Out = None
    as_json: Json = False
    written: frozenset[str] = frozenset()  # options that the user wrote; all others have their defaults
    asked: Mapping[str, object] = field(default_factory=dict)  # what the command's own options say

    @property
    def name(self) -> str:
        """The name of the model in tables and files."""
        return model_spec(self.model).label

    @property
    def is_pair(self) -> bool:
        """Whether a model with WT-AWP is trained beside the one without."""
        return self.checkpoint is None and not self.plain and model_spec(self.model).is_perturbable

    def run(self, *, perturbed: bool = False) -> "Run":
        """The training of one of the two."""
        from wtawp.experiments.inspection.model_options import options_of
        from wtawp.experiments.plans.defaults import default_awp
        from wtawp.experiments.spec import Run, Setting

        with values_are_parameters():
            awp = default_awp(self.model, self.dataset, rho=self.rho, lam=self.lam, layers=self.layers)
            setting = Setting(
                dataset=self.dataset, model=self.model, options=options_of(self.model, self.option or []),
                awp=awp if perturbed else None, epochs=self.epochs,
                select_on=self.select_on or model_spec(self.model).select_on,  # type: ignore[arg-type]
            )  # fmt: skip
        return Run(setting, self.split, self.init)

    def inspect(self, check: "Check | None" = None, other: Path | None = None) -> "InspectedModels":
        """The model, and beside it the `other` one of a file, or, of a pair, the one with WT-AWP."""
        from wtawp.experiments.inspection.models import load_or_train

        runs, weights = {self.name: self.run()}, {}
        if self.checkpoint is not None:
            weights[self.name] = self.checkpoint
            for unread in ("rho", "lam", "plain", "init", "epochs", "select_on", "layers"):
                if unread in self.written:
                    raise typer.BadParameter(
                        f"--{unread.replace('_', '-')} is about training, and with --checkpoint nothing is trained"
                    )
        if other is not None:
            second = other.name if other.name != self.name else f"{other.name}, other"
            runs[second], weights[second] = self.run(), other
        elif self.is_pair:
            runs[f"{self.name}+WT-AWP"] = self.run(perturbed=True)
        with progress_bar("training", quiet=self.as_json or len(weights) == len(runs)) as progress:
            return load_or_train(runs, weights=weights, device=self.device, check=check, progress=progress)

    def show(self, what: str, inspected: "InspectedModels", artifact: "Artifact", *, kind: str | None = None) -> None:
        """Print the artifact and, if wanted, write it; kinds do not overwrite each other."""
        title = f"{what}{f' ({kind})' if kind else ''} of {self.model} on {self.dataset}"
        artifact = replace(artifact, content={"options": dict(self.asked), **artifact.content})
        if self.as_json:
            typer.echo(artifact.to_json(title, inspected.sources))
        else:
            print_table(title, artifact.table)
        if self.out is not None:
            parts = [what, *([kind] if kind else []), Path(self.dataset).stem, self.name]
            paths = artifact.write(self.out, "-".join(parts), title, inspected.sources)
            stderr_console.print(f"Written: {paths[0].resolve()}, .png and .json", highlight=False, soft_wrap=True)


def takes_subject(**defaults: object) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command that takes a `Subject` and options of its own have all of them as options, some with new defaults.

    Typer reads a function's signature and knows no groups of options, so that the signature is put together here.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command).parameters.values())[1:]
        shared = [
            inspect.Parameter(
                f.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=defaults.get(f.name, inspect.Parameter.empty if f.default is MISSING else f.default),
                annotation=f.type,
            )
            for f in fields(Subject)
            if f.name not in ("written", "asked")
        ]

        @wraps(command)
        def spread(context: typer.Context, **given: Any) -> None:
            sources = {name: context.get_parameter_source(name) for name in given}
            written = frozenset(name for name, source in sources.items() if source and source.name == "COMMANDLINE")
            with errors_in_plain_words():
                about = {p.name: given.pop(p.name) for p in shared}
                asked = {name: str(v) if isinstance(v, Path) else v for name, v in given.items() if v is not None}
                command(Subject(**about, written=written, asked=asked), **given)

        first = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        parameters = [first, *shared[:2], *own, *shared[2:]]  # in the help: whose, what, and the rest
        vars(spread)["__signature__"] = inspect.Signature(parameters)
        spread.__annotations__ = {p.name: p.annotation for p in parameters}
        return spread

    return decorate


@app.command()
@takes_subject()
def landscape(
    subject: Subject,
    *,
    line: Line = "random",
    plane: Annotated[bool, typer.Option("--plane", help="On the plane of two random directions instead.")] = False,
    other: Annotated[
        Path | None,
        typer.Option(help="With --line between: weights of the other solution.", show_default="trained with WT-AWP"),
    ] = None,
    scale: Scale = None,
    reach: Annotated[
        float | None,
        typer.Option(
            callback=_finite(0),
            help="Largest distance; between solutions, beyond both.",
            show_default="1; of scale unit 30, between 0.5",
        ),
    ] = None,
    points: Annotated[int, typer.Option(min=3, help="Along a line, or a side of the plane.")] = 51,
    directions: Annotated[int | None, typer.Option(min=1, help="Random lines.", show_default="10")] = None,
) -> None:
    """Draw the training loss around a model, along lines or on a plane through its weights."""
    from wtawp.experiments.inspection import geometry
    from wtawp.experiments.inspection.models import refuse_distributions

    kind = "plane" if plane else "lines" if line == "random" else line
    if plane and line != "random":
        raise typer.BadParameter(f"--plane is spanned by random directions; leave out --plane or --line {line}")
    for option, value, kinds in (("--scale", scale, ("lines", "plane")), ("--directions", directions, ("lines",)),
                                 ("--other", other, ("between",))):  # fmt: skip
        if value is not None and kind not in kinds:
            raise typer.BadParameter(f"{option} is not for this landscape ({kind}) but for: {', '.join(kinds)}")
    if kind == "between" and other is None and not subject.is_pair:
        raise typer.BadParameter(
            "--line between needs a second solution: give its weights, --other FILE, or leave out --checkpoint and "
            "--plain and it is trained here with WT-AWP (RGCN cannot be)"
        )
    inspected = subject.inspect(refuse_distributions if kind == "adversarial" else None, other)
    far = 30.0 if scale == "unit" else 1.0  # a step of length 1 is next to nothing among thousands of weights
    with values_are_parameters():
        if kind == "plane":
            artifact = geometry.plane(inspected, scale=scale or "layer", reach=reach or far, points=points)
        elif kind == "adversarial":
            artifact = geometry.adversarial_line(inspected, reach=reach or 1.0, points=points)
        elif kind == "between":
            artifact = geometry.between(inspected, reach=reach or 0.5, points=points)
        else:
            artifact = geometry.lines(
                inspected, scale=scale or "layer", reach=reach or far, points=points, directions=directions or 10
            )
    subject.show("landscape", inspected, artifact, kind=kind)


@app.command()
@takes_subject(lam=0.5)
def smoothness(
    subject: Subject,
    *,
    noise: Annotated[
        float,
        typer.Option(
            callback=_finite(0, or_equal=True), help="Standard deviation of the noise, or its length as a whole."
        ),
    ] = 0.0005,
    samples: Annotated[int, typer.Option(min=1, help="Noisy inputs.")] = 100,
) -> None:
    """Measure the norm of the loss gradient by graph and features at noisy inputs, in both definitions."""
    from wtawp.experiments.inspection import geometry
    from wtawp.experiments.inspection.models import refuse_collections

    inspected = subject.inspect(refuse_collections)
    with values_are_parameters():
        artifact = geometry.smoothness(inspected, noise=noise, samples=samples)
    subject.show("smoothness", inspected, artifact)


@app.command()
@takes_subject()
def sharpness(
    subject: Subject,
    *,
    layer_radius: Annotated[
        float, typer.Option(callback=_finite(0), help="Largest rho of each layer's ball, relative to its weights.")
    ] = 0.1,
    adaptive_radius: Annotated[
        float, typer.Option(callback=_finite(0), help="Of the ball in sizes of each weight.")
    ] = 2.0,
    global_radius: Annotated[
        float, typer.Option(callback=_finite(0), help="Of the ball of all weights, as their distance.")
    ] = 0.5,
    points: Annotated[int, typer.Option(min=1, help="Radii up to each of these.")] = 8,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Of the climb.", show_default="as wtawp.analysis.sharpness")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Eigenvalues of the Hessian.")] = 5,
) -> None:
    """Measure how far the training loss rises near a model, and the curvature of that loss."""
    from wtawp.experiments.inspection import geometry

    radii: Mapping[Literal["layer", "adaptive", "global"], float]
    radii = {"layer": layer_radius, "adaptive": adaptive_radius, "global": global_radius}

    def check(model: "Module", _: "Data") -> None:
        if top > (size := geometry.num_weights(model)):
            raise typer.BadParameter(f"must be at most the number of weights, {size}, got {top}", param_hint="'--top'")

    inspected = subject.inspect(check)
    with values_are_parameters():
        artifact = geometry.sharpness(inspected, radii=radii, points=points, top=top, steps=steps)
    subject.show("sharpness", inspected, artifact)


@app.command()
@takes_subject()
def bound(
    subject: Subject,
    *,
    at: Annotated[
        list[float],
        typer.Option("--at", callback=_finite(0), help="Radius, relative to each layer; may be repeated."),
    ] = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0],  # noqa: B006, typer copies it
    delta: Annotated[
        float, typer.Option(callback=_finite(0, below=1), help="How likely the bound may be wrong.")
    ] = 0.05,
    epsilon: Annotated[float, typer.Option(callback=_finite(0, or_equal=True), help="epsilon_all of Theorem 1.")] = 1.0,
    constant: Annotated[
        float, typer.Option(callback=_finite(0, or_equal=True), help="The factor hidden in its Theta.")
    ] = 1.0,
) -> None:
    """Evaluate the generalisation bound of Theorem 1, or of graphs, term by term, beside the true gap."""
    from wtawp.analysis import refuse_bound
    from wtawp.experiments.inspection import geometry
    from wtawp.experiments.inspection.models import refuse_distributions
    from wtawp.graphs import is_collection

    def check(model: "Module", data: "Data") -> None:
        refuse_distributions(model, data)
        refuse_bound(model, data)
        if is_collection(data) and "epsilon" in subject.written:
            raise typer.BadParameter("--epsilon is of Theorem 1, and the graph-level bound has none")

    inspected = subject.inspect(check)
    with values_are_parameters():
        artifact = geometry.bound(inspected, rhos=sorted(set(at)), delta=delta, epsilon=epsilon, constant=constant)
    subject.show("bound", inspected, artifact)
