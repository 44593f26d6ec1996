"""`wtawp landscape | smoothness | sharpness | bound`: how flat a model is in its weights, how smooth in its inputs.

The commands measure a model that they train, with and without WT-AWP, or a checkpoint.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from wtawp.cli.options import Json, Plain, as_bad_parameter
from wtawp.cli.printing import print_table
from wtawp.cli.shared import announce, app, example, progress_bar, stderr_console
from wtawp.cli.training_options import Init, SplitSeed, Training, takes
from wtawp.graphs.composed_names import short_name
from wtawp.models.registry import model_spec

if TYPE_CHECKING:
    from torch.nn import Module
    from torch_geometric.data import Data

    from wtawp.experiments.inspection.models import Check, InspectedModels
    from wtawp.experiments.report.artifacts import Artifact
    from wtawp.experiments.spec import Run


def _finite(above: float, *, or_equal: bool = False, below: float = math.inf) -> Callable[[Any], Any]:
    """A callback for options that refuses numbers outside of limits; typer's min and max would let NaN pass."""

    def check(value: Any) -> Any:
        for number in value if isinstance(value, list | tuple) else [value]:
            if number is not None and not (above < number < below or (or_equal and number == above)):
                limits = f"finite and {'>=' if or_equal else '>'} {above:g}"
                raise typer.BadParameter(
                    f"must be {limits if below == math.inf else f'between {above:g} and {below:g}'}, got {number:g}"
                )
        return value

    return check


Checkpoint = Annotated[
    Path | None, typer.Option(help="Measure the weights in this file (a state dict of --model) without training.")
]
Out = Annotated[
    Path | None,
    typer.Option(file_okay=False, help="Write the figure (SVG, PNG) and the numbers (JSON) to this folder."),
]
Scale = Annotated[
    Literal["unit", "layer", "filter"] | None,
    typer.Option(help="Length of random directions: 1 (unit), or that of each layer or filter.", show_default="layer"),
]
Line = Annotated[
    Literal["random", "adversarial", "between"],
    typer.Option(
        help="Random lines, the direction in which WT-AWP perturbs, or the line to another solution (see --other)."
    ),
]


@dataclass(frozen=True, kw_only=True)
class InspectionOptions:
    """The options that these commands share: the model, its training, and the output.

    Attributes:
        training: What is trained, and how.
        user_set: The names of the options that the user set; all others have their defaults.
        command_options: The values of the options that only this command has, for the JSON output.
    """

    training: Training
    checkpoint: Checkpoint = None
    plain: Plain = False
    split_seed: SplitSeed = 0
    init: Init = 0
    out: Out = None
    as_json: Json = False
    user_set: frozenset[str] = frozenset()
    command_options: Mapping[str, object] = field(default_factory=dict)

    def check(self) -> None:
        """Refuse, before anything heavy is imported, what `Training.check` refuses."""
        self.training.check()

    @property
    def name(self) -> str:
        """The name of the model in tables and files."""
        return model_spec(self.training.model).label

    @property
    def is_pair(self) -> bool:
        """Whether a second model is trained with WT-AWP."""
        return self.checkpoint is None and not self.plain and model_spec(self.training.model).is_perturbable

    def run(self, *, perturbed: bool = False) -> "Run":
        """The run of the model.

        Args:
            perturbed: Whether it is trained with WT-AWP.

        Returns:
            The run.
        """
        from wtawp.experiments.spec import Run

        if self.training.inductive:
            raise typer.BadParameter(
                "the geometry of a loss is that of the graph in training, and this command looks at the full graph",
                param_hint="'--inductive'",
            )
        awp = self.training.awp()
        setting = self.training.setting(self.training.split_rule(), awp=awp if perturbed else None)
        return Run(setting, self.split_seed, self.init)

    def inspect(self, check: "Check | None" = None, other: Path | None = None) -> "InspectedModels":
        """Train or load the model, and a second one: that of a file, or the same model trained with WT-AWP.

        Args:
            check: Called with every untrained model and its data, to refuse what cannot be inspected before training.
            other: A file with the weights of the second model.

        Returns:
            The models.

        Raises:
            typer.BadParameter: If an option about training is set although nothing is trained.
        """
        from wtawp.experiments.execution.building import describe_split
        from wtawp.experiments.inspection.models import load_or_train

        runs, weights = {self.name: self.run()}, {}
        if self.checkpoint is not None:
            weights[self.name] = self.checkpoint
            for unused in (
                "rho", "lam", "balance", "plain", "init", "epochs", "lr", "weight_decay", "select_on", "average",
                "layers",
            ):  # fmt: skip
                if unused in self.user_set:
                    raise typer.BadParameter(
                        f"--{unused.replace('_', '-')} is about training, and with --checkpoint nothing is trained"
                    )
        if other is not None:
            second = other.name if other.name != self.name else f"{other.name}, other"
            runs[second], weights[second] = self.run(), other
        elif self.is_pair:
            runs[f"{self.name}+WT-AWP"] = self.run(perturbed=True)
        announce(describe_split(runs[self.name].setting, self.split_seed))
        with progress_bar("training", quiet=self.as_json or len(weights) == len(runs)) as progress:
            return load_or_train(runs, weights=weights, device=self.training.device, check=check, progress=progress)

    def show(self, what: str, inspected: "InspectedModels", artifact: "Artifact", *, kind: str | None = None) -> None:
        """Print an artifact, and write it if there is an output folder.

        Args:
            what: The name of the command, for the title and the names of files.
            inspected: The models.
            artifact: The artifact.
            kind: The kind of landscape, which distinguishes titles and files of one command.
        """
        title = f"{what}{f' ({kind})' if kind else ''} of {self.training.model} on {self.training.dataset}"
        artifact = replace(artifact, content={"options": dict(self.command_options), **artifact.content})
        if self.as_json:
            typer.echo(artifact.to_json(title, inspected.sources))
        else:
            print_table(title, artifact.table)
        if self.out is not None:
            parts = [what, *([kind] if kind else []), short_name(self.training.dataset), self.name]
            paths = artifact.write(self.out, "-".join(parts), title, inspected.sources)
            stderr_console.print(f"Written: {paths[0].resolve()}, .png and .json", highlight=False, soft_wrap=True)


@app.command(epilog=example("wtawp landscape wine --points 21", "wtawp landscape cora --plane --out figures"))
@takes(InspectionOptions)
def landscape(
    inspection: InspectionOptions,
    *,
    line: Line = "random",
    plane: Annotated[
        bool, typer.Option("--plane", help="Use the plane of two random directions instead of a line.")
    ] = False,
    other: Annotated[
        Path | None,
        typer.Option(
            help="With --line between: a file with the weights of the other solution.",
            show_default="trained with WT-AWP",
        ),
    ] = None,
    scale: Scale = None,
    reach: Annotated[
        float | None,
        typer.Option(
            callback=_finite(0),
            help="Largest distance from the model; with --line between, beyond both solutions.",
            show_default="1; with --scale unit 30; with --line between 0.5",
        ),
    ] = None,
    points: Annotated[int, typer.Option(min=3, help="Points along a line, or along a side of the plane.")] = 51,
    directions: Annotated[int | None, typer.Option(min=1, help="Number of random lines.", show_default="10")] = None,
) -> None:
    """Draw the training loss near a model, along lines or on a plane through its weights."""
    from wtawp.experiments.inspection import geometry
    from wtawp.experiments.inspection.models import refuse_distributions

    kind = "plane" if plane else "lines" if line == "random" else line
    if plane and line != "random":
        raise typer.BadParameter(f"--plane is spanned by random directions; omit --plane or --line {line}")
    for option, value, kinds in (("--scale", scale, ("lines", "plane")), ("--directions", directions, ("lines",)),
                                 ("--other", other, ("between",))):  # fmt: skip
        if value is not None and kind not in kinds:
            raise typer.BadParameter(f"{option} is not for this landscape ({kind}) but for: {', '.join(kinds)}")
    if kind == "between" and other is None and not inspection.is_pair:
        raise typer.BadParameter(
            "--line between needs a second solution: add its weights, --other FILE, or omit --checkpoint and "
            "--plain to train it with WT-AWP, which is impossible if weights are distributions"
        )
    inspected = inspection.inspect(refuse_distributions if kind == "adversarial" else None, other)
    default_reach = 30.0 if scale == "unit" else 1.0  # a step of length 1 hardly changes thousands of weights
    with as_bad_parameter():
        if kind == "plane":
            artifact = geometry.plane(inspected, scale=scale or "layer", reach=reach or default_reach, points=points)
        elif kind == "adversarial":
            artifact = geometry.adversarial_line(inspected, reach=reach or 1.0, points=points)
        elif kind == "between":
            artifact = geometry.between(inspected, reach=reach or 0.5, points=points)
        else:
            artifact = geometry.lines(
                inspected,
                scale=scale or "layer",
                reach=reach or default_reach,
                points=points,
                directions=directions or 10,
            )
    inspection.show("landscape", inspected, artifact, kind=kind)


@app.command(epilog=example("wtawp smoothness wine --samples 20"))
@takes(InspectionOptions, lam="0.5")
def smoothness(
    inspection: InspectionOptions,
    *,
    noise: Annotated[
        float,
        typer.Option(
            callback=_finite(0, or_equal=True), help="Standard deviation of the noise, or the norm of all of it."
        ),
    ] = 0.0005,
    samples: Annotated[int, typer.Option(min=1, help="Number of noisy inputs.")] = 100,
) -> None:
    """Measure the norm of the loss gradient with respect to graph and features at noisy inputs."""
    from wtawp.experiments.inspection import geometry
    from wtawp.experiments.inspection.models import refuse_collections

    inspected = inspection.inspect(refuse_collections)
    with as_bad_parameter():
        artifact = geometry.smoothness(inspected, noise=noise, samples=samples)
    inspection.show("smoothness", inspected, artifact)


@app.command(epilog=example("wtawp sharpness wine --top 3"))
@takes(InspectionOptions)
def sharpness(
    inspection: InspectionOptions,
    *,
    layer_radius: Annotated[
        float, typer.Option(callback=_finite(0), help="Largest radius of the ball of each layer, relative to its norm.")
    ] = 0.1,
    adaptive_radius: Annotated[
        float,
        typer.Option(callback=_finite(0), help="Largest radius of the ball that is scaled by the size of each weight."),
    ] = 2.0,
    global_radius: Annotated[
        float, typer.Option(callback=_finite(0), help="Largest radius of the ball of all weights, as a distance.")
    ] = 0.5,
    points: Annotated[int, typer.Option(min=1, help="Number of radii up to the largest one.")] = 8,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps of gradient ascent.", show_default="as in wtawp.analysis.sharpness")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of eigenvalues of the Hessian.")] = 5,
) -> None:
    """Measure how far the training loss rises near a model, and the curvature of the loss."""
    from wtawp.experiments.inspection import geometry

    radii: Mapping[Literal["layer", "adaptive", "global"], float]
    radii = {"layer": layer_radius, "adaptive": adaptive_radius, "global": global_radius}

    def check(model: "Module", _: "Data") -> None:
        if top > (size := geometry.num_weights(model)):
            raise typer.BadParameter(f"must be at most the number of weights, {size}, got {top}", param_hint="'--top'")

    inspected = inspection.inspect(check)
    with as_bad_parameter():
        artifact = geometry.sharpness(inspected, radii=radii, points=points, top=top, steps=steps)
    inspection.show("sharpness", inspected, artifact)


@app.command(epilog=example("wtawp bound wine --at 0.1 --at 1"))
@takes(InspectionOptions)
def bound(
    inspection: InspectionOptions,
    *,
    at: Annotated[
        list[float],
        typer.Option("--at", callback=_finite(0), help="Radius, relative to the norm of each layer; may be repeated."),
    ] = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0],  # noqa: B006, typer copies it
    delta: Annotated[
        float, typer.Option(callback=_finite(0, below=1), help="Probability that the bound does not hold.")
    ] = 0.05,
    epsilon: Annotated[float, typer.Option(callback=_finite(0, or_equal=True), help="epsilon_all of Theorem 1.")] = 1.0,
    constant: Annotated[
        float, typer.Option(callback=_finite(0, or_equal=True), help="The factor hidden in the Theta of Theorem 1.")
    ] = 1.0,
) -> None:
    """Evaluate the generalisation bound of Theorem 1, or the graph-level bound, term by term, beside the true gap."""
    from wtawp.analysis import refuse_bound
    from wtawp.experiments.inspection import geometry
    from wtawp.experiments.inspection.models import refuse_distributions
    from wtawp.graphs import is_collection

    def check(model: "Module", data: "Data") -> None:
        refuse_distributions(model, data)
        refuse_bound(model, data)
        if is_collection(data) and "epsilon" in inspection.user_set:
            raise typer.BadParameter("--epsilon belongs to Theorem 1; the graph-level bound has none")

    inspected = inspection.inspect(check)
    with as_bad_parameter():
        artifact = geometry.bound(inspected, rhos=sorted(set(at)), delta=delta, epsilon=epsilon, constant=constant)
    inspection.show("bound", inspected, artifact)
