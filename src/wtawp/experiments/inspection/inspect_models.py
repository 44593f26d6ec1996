"""Looking at one model of one's own, or at a pair trained here: what the commands for flatness measure."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp import analysis
from wtawp.analysis.landscape import Scale
from wtawp.analysis.smoothness import Definition
from wtawp.base import AnalysisError
from wtawp.core import Radius
from wtawp.experiments.execution.training import MODELS, model_of, train_model
from wtawp.experiments.inspection.checkpoints import load_weights
from wtawp.experiments.inspection.figures import (
    between_figure,
    line_figure,
    plane_figure,
    sharpness_figure,
    smoothness_figure,
)
from wtawp.experiments.report.artifacts import Artifact
from wtawp.experiments.report.drawing import drawing, method_style_of_label
from wtawp.experiments.report.measures.bound import draw_bound, finish_bound
from wtawp.experiments.report.measures.landscape import distance_label
from wtawp.experiments.report.tables import Entry, Table
from wtawp.experiments.spec.plan import Option, Run
from wtawp.graphs import Split, is_collection

Check = Callable[[nn.Module, Data], None]


@dataclass(frozen=True)
class InspectedModels:
    """Models by the names they have in tables, with their graph and split, and how each was made."""

    models: dict[str, nn.Module]
    data: Data
    split: Split
    sources: dict[str, str] = field(default_factory=dict)

    def losses(self) -> dict[str, analysis.LossOn]:
        """Of each model, on the training nodes."""
        return {name: analysis.LossOn(model, self.data, self.split.train) for name, model in self.models.items()}

    def finite_losses(self) -> dict[str, float]:
        """The training losses as numbers; refuses one that is none, as there is nothing to see around it."""
        with torch.no_grad():
            here = {name: float(loss()) for name, loss in self.losses().items()}
        for name, loss in here.items():
            if not math.isfinite(loss):
                raise AnalysisError(f"the training loss of {name} is {loss}; there is no landscape around it")
        return here


def load_or_train(
    runs: Mapping[str, Run],
    *,
    weights: Mapping[str, Path] | None = None,
    device: str = "cpu",
    check: Check | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> InspectedModels:
    """Train each run, but for those with a file of `weights`: a state dict, read without pickles.

    Whatever can be refused is refused before anything is trained, also by `check`, which sees every model and its data.
    """
    files = weights or {}
    models: dict[str, nn.Module] = {}
    for name, run in runs.items():
        models[name], data, split = model_of(run, device=device)
        if check is not None:
            check(models[name], data)
        if name in files:
            load_weights(models[name], files[name])
    to_train = [name for name in runs if name not in files]
    for place, name in enumerate(to_train):

        def tell(share: float, what: str, place: int = place, name: str = name) -> None:
            if progress is not None:
                progress((place + share) / len(to_train), f"{name}, {what}")

        models[name], data, split = train_model(runs[name], device=device, progress=tell)
    for model in models.values():
        model.eval()
    return InspectedModels(models, data, split, {name: _source(run, files.get(name)) for name, run in runs.items()})


def _source(run: Run, file: Path | None) -> str:
    if file is None:
        return f"{run.setting}; split {run.split}, initialisation {run.init}"
    return f"{run.setting.model} on {run.setting.dataset} with the weights of {file.name}; split {run.split}"


def are_distributions(model: nn.Module) -> bool:
    """Whether its weights are: nobody can climb in them."""
    return any(getattr(module, "weights_are_distributions", False) for module in model.modules())


def refuse_collections(_: nn.Module, data: Data) -> None:
    """For what is told by nodes and edges."""
    if is_collection(data):
        raise AnalysisError("smoothness is measured by the nodes and edges of one graph; these are graphs to classify")


def refuse_distributions(model: nn.Module, _: Data) -> None:
    """For what climbs."""
    if are_distributions(model):
        raise AnalysisError(
            f"the weights of {type(model).__name__} are distributions and cannot be perturbed; what works for it are "
            "random lines and planes (`wtawp landscape`) and the Hessian (`wtawp sharpness`)"
        )


def options_of(model: str, texts: Sequence[str]) -> tuple[tuple[str, Option], ...]:
    """Options of a model from `name=value`; where one of our models takes several numbers, a single one will do.

    >>> options_of("GCN", ["hidden=8", "dropout=0.2"])
    (('hidden', (8,)), ('dropout', 0.2))
    """
    found: dict[str, Option] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name.isidentifier() or not value:
            raise ValueError(f"an option is name=value, as in hidden=8 or dropout=0.2, got {text!r}")
        if name in found:
            raise ValueError(f"the option {name} is given twice")
        found[name] = _value(value)
    if model not in MODELS:  # one's own class may take anything
        return tuple(found.items())
    parameters = inspect.signature(MODELS[model]).parameters
    known = {name: p for name, p in parameters.items() if name not in ("d_in", "d_out", "generator")}
    if unknown := [name for name in found if name not in known]:
        raise ValueError(f"{model} has no option {unknown[0]!r}; it has {', '.join(known)}")
    return tuple((name, _fitting(name, value, known[name].default)) for name, value in found.items())


def _fitting(name: str, value: Option, default: object) -> Option:
    """As one of our models takes it, judged by its default: sizes are whole numbers from 1 on."""
    if isinstance(default, tuple) and isinstance(value, int):
        value = (value,)
    sizes = value if isinstance(value, tuple) else (value,)
    counts = isinstance(default, int | tuple) and not isinstance(default, bool)
    if counts and not all(type(size) is int and size >= 1 for size in sizes):
        raise ValueError(f"the option {name} must be whole numbers >= 1, got {value!r}")
    return value


def _value(text: str) -> Option:
    words: dict[str, Option] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        if "," in text:
            return tuple(int(part) for part in text.rstrip(",").split(","))
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def lines(looked: InspectedModels, *, scale: Scale, reach: float, points: int, directions: int) -> Artifact:
    """The training loss along random lines through each model."""
    distances, here = _distances(-reach, reach, points), looked.finite_losses()
    found = {
        name: analysis.loss_along_random_directions(
            looked.models[name], loss, distances, seed=0, num_directions=directions, scale=scale
        )
        for name, loss in looked.losses().items()
    }
    return _line_look(f"along {directions} lines", distance_label(scale), distances, here, found)


def adversarial_line(looked: InspectedModels, *, reach: float, points: int) -> Artifact:
    """The training loss along the direction in which WT-AWP perturbs each model."""
    for model in looked.models.values():
        refuse_distributions(model, looked.data)
    distances, here = _distances(-reach, reach, points), looked.finite_losses()
    found = {}
    for name, loss in looked.losses().items():
        u = analysis.adversarial_direction(looked.models[name], loss)
        found[name] = analysis.loss_along(looked.models[name], loss, u, distances)[None]
    unit = "distance, in perturbations of radius 1"
    return _line_look("along the adversarial direction", unit, distances, here, found)


def _line_look(
    what: str, unit: str, distances: list[float], here: dict[str, float], found: dict[str, Tensor]
) -> Artifact:  # found: name -> [k, distances]
    arrays = {name: values.numpy() for name, values in found.items()}
    ends = {name: values[:, [0, -1]].flatten() for name, values in found.items()}
    return Artifact(
        _rise_table(f"{what}, up to {distances[-1]:g} ({unit})", here, found, ends),
        {"distances": distances, "loss": here, "losses": {n: v.tolist() for n, v in found.items()}},
        lambda png: line_figure(distances, arrays, here, unit, png),
    )


def plane(looked: InspectedModels, *, scale: Scale, reach: float, points: int) -> Artifact:
    """The training loss on the plane of two random directions through each model."""
    distances, here = _distances(-reach, reach, points), looked.finite_losses()
    found = {}
    for name, loss in looked.losses().items():
        model = looked.models[name]
        u, v = (analysis.random_direction(model, seed=0, number=i, scale=scale) for i in (0, 1))
        found[name] = analysis.losses_on_plane(model, loss, u, v, distances, distances)
    unit, arrays = distance_label(scale), {name: values.numpy() for name, values in found.items()}
    sides = {n: torch.cat([v[0], v[-1], v[1:-1, 0], v[1:-1, -1]]) for n, v in found.items()}
    return Artifact(
        _rise_table(f"on a plane, up to {reach:g} ({unit})", here, found, sides),
        {"distances": distances, "loss": here, "losses": {n: v.tolist() for n, v in found.items()}},
        lambda png: plane_figure(distances, arrays, here, unit, png),
    )


def _distances(low: float, high: float, points: int) -> list[float]:
    if points < 3 or not low < high < math.inf:
        raise ValueError(f"points must be >= 3 and reach finite and > 0, got {points} points up to {high}")
    found: list[float] = torch.linspace(low, high, points, dtype=torch.float64).tolist()
    return found


def _rise_table(
    what: str, here: dict[str, float], found: dict[str, Tensor], farthest: dict[str, Tensor]
) -> Table:  # farthest: the losses where the distance is largest
    rises = {name: values - here[name] for name, values in farthest.items()}
    rows = [
        (Entry(name), _number(here[name]), _number(float(rise.mean())), _number(float(rise.max())),
         Entry(str(analysis.num_gaps(found[name]))))
        for name, rise in rises.items()
    ]  # fmt: skip
    return Table(
        f"The training loss {what}: at the model, and its rise at the ends, mean and most. "
        "Gaps: points where it is not finite.",
        ("model", "loss", "mean rise", "largest rise", "gaps"),
        tuple(rows),
    )


def between(looked: InspectedModels, *, reach: float, points: int) -> Artifact:
    """The training loss on the line from the first of two models (0) to the second (1), and `reach` beyond both."""
    first, second = looked.models
    model, loss = looked.models[first], looked.losses()[first]
    here = looked.finite_losses()
    direction = analysis.direction_between(model, looked.models[second])
    # Both solutions are points of the line, wherever the others fall.
    distances = sorted({*_distances(-reach, 1 + reach, points), 0.0, 1.0})
    losses = analysis.loss_along(model, loss, direction, distances)
    ends = {first: float(losses[distances.index(0.0)]), second: float(losses[distances.index(1.0)])}
    inside = [(float(v), t) for v, t in zip(losses, distances, strict=True) if 0 <= t <= 1]
    highest, place = max(inside, key=lambda pair: math.inf if math.isnan(pair[0]) else pair[0])
    apart = float(torch.stack([d.norm() for d in direction.values()]).norm())
    row = (*map(_number, (*ends.values(), highest, place, highest - max(ends.values()), apart)),
           Entry(str(analysis.num_gaps(losses))))  # fmt: skip
    caption = (
        f"The training loss on the line from {first} (0) to {second} (1): at both, the highest between them and where, "
        "how far that is above the higher of the two, and how far apart their weights are. Gaps: points where it is "
        "not finite."
    )
    if not math.isclose(ends[second], here[second], rel_tol=1e-3, abs_tol=1e-5):  # buffers do not move
        caption += (
            f" The line moves parameters alone: with its own buffers (batch norm) {second} has {here[second]:.4g}."
        )
    headers = (f"loss of {first}", f"loss of {second}", "highest", "where", "barrier", "distance", "gaps")
    return Artifact(
        Table(caption, headers, (row,)),
        {"distances": distances, "loss": ends, "losses": losses.tolist(), "weight_distance": apart},
        lambda png: between_figure(distances, losses.numpy(), ends, png),
    )


def smoothness(looked: InspectedModels, *, noise: float, samples: int) -> Artifact:
    """Mean gradient norms by A and X in both definitions; what a model does not allow is told in its place."""
    found: dict[str, dict[str, list[float] | str]] = {}
    for matrix, wrt in (("A", "adjacency"), ("X", "features")):
        for definition in ("paper", "released"):
            found[f"{matrix}, {definition}"] = {
                name: _norms(model, looked, wrt, definition, noise, samples) for name, model in looked.models.items()
            }
    rows = []
    for what, by_model in found.items():
        cells = [Entry("not measured") if isinstance(n, str) else _mean(n) for n in by_model.values()]
        rows.append((Entry(what), *cells))
    reasons = dict.fromkeys(n for by_model in found.values() for n in by_model.values() if isinstance(n, str))
    caption = f"Norm of the loss gradient at {samples} noisy inputs (noise {noise:g}), mean ± deviation over them."
    return Artifact(
        Table(" ".join([caption, *map(str, reasons)]), ("by", *looked.models), tuple(rows)),
        {"noise": noise, "samples": samples, "norms": found},
        lambda png: smoothness_figure(found, png),
    )


def _norms(
    model: nn.Module, looked: InspectedModels, wrt: Any, definition: Definition, noise: float, samples: int
) -> list[float] | str:
    try:
        norms = analysis.input_gradient_norms(
            [model], looked.data, looked.split.train, wrt=wrt, seed=0, definition=definition, noise=noise,
            samples=samples,
        )  # fmt: skip
    except AnalysisError as error:
        return str(error)
    return [float(norm) for norm in norms[0]]


def sharpness(
    looked: InspectedModels, *, radii: Mapping[Radius, float], points: int, top: int, steps: int | None = None
) -> Artifact:
    """The rise of the loss inside balls, up to the radius of each kind, and the Hessian: eigenvalues, trace, spectrum.

    Of weights that are distributions the Hessian alone, as nobody can climb there.
    """
    losses, can_climb = looked.losses(), not any(map(are_distributions, looked.models.values()))
    rhos, rises = _rises(looked, radii, points, steps) if can_climb else ({}, {})
    values = {name: analysis.top_eigenvalues(model, losses[name], k=top) for name, model in looked.models.items()}
    traces = {name: analysis.hessian_trace(model, losses[name], seed=0) for name, model in looked.models.items()}
    density = {
        name: (analysis.spectral_density(model, losses[name], seed=0, probes=3), num_weights(model))
        for name, model in looked.models.items()
    }
    rows = [
        (Entry(f"sharpness, {kind}, rho={radii[kind]:g}"), *(_number(rise[-1]) for rise in by_model.values()))
        for kind, by_model in rises.items()
    ]
    rows += [(Entry(f"eigenvalue {i + 1}"), *(_number(v[i]) for v in values.values())) for i in range(top)]
    estimates = (Entry(f"{t.mean:.4g} ± {t.standard_error:.2g}", t.mean) for t in traces.values())
    rows.append((Entry("trace of the Hessian"), *estimates))
    caption = "The rise of the training loss inside balls of weights, found by climbing, and the Hessian of that loss."
    if not can_climb:
        caption = "The Hessian of the training loss. These weights are distributions: nobody can climb in them."
    traced = {name: asdict(trace) for name, trace in traces.items()}
    return Artifact(
        Table(caption, ("measure", *looked.models), tuple(rows)),
        {"rhos": rhos, "rises": rises, "eigenvalues": values, "trace": traced},
        lambda png: sharpness_figure(rhos, rises, density, png),
    )


def _rises(
    looked: InspectedModels, radii: Mapping[Radius, float], points: int, steps: int | None
) -> tuple[dict[Radius, list[float]], dict[Radius, dict[str, list[float]]]]:
    """The radii of each kind, and the rise of each model at them."""
    if points < 1 or not all(0 < rho < math.inf for rho in radii.values()):
        raise ValueError(f"points must be >= 1 and radii finite and > 0, got {points} and {dict(radii)}")
    climb: dict[str, Any] = {} if steps is None else {"steps": steps}
    rhos = {kind: [rho * (i + 1) / points for i in range(points)] for kind, rho in radii.items()}
    losses = looked.losses()
    rises = {
        kind: {
            name: analysis.sharpness_over(model, losses[name], each, radius=kind, **climb)
            for name, model in looked.models.items()
        }
        for kind, each in rhos.items()
    }
    return rhos, rises


def num_weights(model: nn.Module) -> int:
    """How many numbers are trained, and how many eigenvalues the Hessian has."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def bound(looked: InspectedModels, *, rhos: Sequence[float], delta: float, epsilon: float, constant: float) -> Artifact:
    """Theorem 1, or the graph-level bound, term by term at several radii, beside the true gap that it bounds."""
    for model in looked.models.values():
        refuse_distributions(model, looked.data)
    found = {
        name: analysis.bound_over_rho(
            model, looked.data, looked.split.train, rhos, delta=delta, epsilon=epsilon, constant=constant
        )
        for name, model in looked.models.items()
    }
    kind = "graphs" if is_collection(looked.data) else "nodes"
    theorem = f"Theorem 1 (epsilon_all = {epsilon:g})" if kind == "nodes" else "The graph-level bound"
    caption = (
        f"{theorem} for the loss 1 - p(right class), with probability {1 - delta:g}; the unnamed constant is "
        f"{constant:g}. The perturbed loss is found by climbing, so this is an estimate of the bound."
    )
    content = {
        name: [{**at.bound.terms(), "rho": at.rho, "total_rho": at.total_rho, "gap": at.gap,
                "bounded_gap": at.bounded_gap, "is_vacuous": at.bound.is_vacuous} for at in each]
        for name, each in found.items()
    }  # fmt: skip
    return Artifact(
        _bound_table(caption, found),
        {"delta": delta, "epsilon": epsilon, "bounds": content},
        lambda png: _bound_figure(found, png),
    )


BELOW = "below 1, if the climb found the highest loss"


def _bound_table(caption: str, found: dict[str, list[analysis.BoundAt]]) -> Table:
    terms = {"loss": "perturbed loss", "tail": "tail", "complexity": "complexity", "remainder": "remainder",
             "total": "bound"}  # fmt: skip
    rows = [
        (Entry(name), Entry(f"{at.rho:g}"), *(_number(at.bound.terms()[term]) for term in terms),
         _number(at.bounded_gap), _number(at.gap), Entry("vacuous" if at.bound.is_vacuous else BELOW))
        for name, each in found.items() for at in each
    ]  # fmt: skip
    return Table(caption, ("model", "rho", *terms.values(), "bound on the gap", "gap", "verdict"), tuple(rows))


def _bound_figure(found: dict[str, list[analysis.BoundAt]], png: Path | None) -> str:
    with drawing(1, 1, 6.0, 3.4, png=png) as ((ax,), out):
        for name, each in found.items():
            totals = [at.bound.total for at in each]
            losses, colour = (each[0].all_loss, each[0].train_loss), method_style_of_label(name)["color"]
            draw_bound(ax, name, [at.rho for at in each], totals, *losses, colour=colour)
        finish_bound(ax)
        ax.set_ylabel("1 - p(right class), mean")
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return out[0]


def _number(value: float) -> Entry:
    return Entry(f"{value:.4g}", value if math.isfinite(value) else None)


def _mean(values: Sequence[float]) -> Entry:
    return Entry(f"{np.mean(values):.4g} ± {np.std(values):.2g}", float(np.mean(values)))
