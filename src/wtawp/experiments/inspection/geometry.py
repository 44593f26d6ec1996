"""Landscape, smoothness, sharpness and bound of inspected models: tables, numbers and figures for the commands.

The numbers come from `wtawp.experiments.measures`, as those of plans do.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from wtawp import analysis
from wtawp.analysis.landscape import Scale
from wtawp.analysis.smoothness import Definition
from wtawp.base import AnalysisError
from wtawp.core import Radius
from wtawp.experiments.inspection.figures import (
    Methods,
    between_figure,
    line_figure,
    plane_figure,
    sharpness_figure,
    smoothness_figure,
)
from wtawp.experiments.inspection.models import InspectedModels, are_distributions, refuse_distributions
from wtawp.experiments.measures.bound import bounds
from wtawp.experiments.measures.landscape import losses_along_lines
from wtawp.experiments.measures.sharpness import SharpnessOptions, radii_up_to, rises
from wtawp.experiments.measures.smoothness import SmoothnessOptions, gradient_norms
from wtawp.experiments.measures.spectrum import eigenvalues_and_trace
from wtawp.experiments.report.artifacts import Artifact
from wtawp.experiments.report.drawing import drawing, method_style
from wtawp.experiments.report.measures.bound import draw_bound, finish_bound
from wtawp.experiments.report.measures.landscape import distance_label
from wtawp.experiments.report.tables import Entry, Table
from wtawp.graphs import is_collection


def lines(inspected: InspectedModels, *, scale: Scale, reach: float, points: int, directions: int) -> Artifact:
    """The training loss along random lines through each model."""
    distances, here = _distances(-reach, reach, points), inspected.finite_losses()
    found = {
        name: losses_along_lines(inspected.models[name], loss, distances, directions=directions, scale=scale)
        for name, loss in inspected.losses().items()
    }
    return _line_artifact(f"along {directions} lines", distance_label(scale), distances, here, found, inspected.methods)


def adversarial_line(inspected: InspectedModels, *, reach: float, points: int) -> Artifact:
    """The training loss along the direction in which WT-AWP perturbs each model."""
    for model in inspected.models.values():
        refuse_distributions(model, inspected.data)
    distances, here = _distances(-reach, reach, points), inspected.finite_losses()
    found = {}
    for name, loss in inspected.losses().items():
        u = analysis.adversarial_direction(inspected.models[name], loss)
        found[name] = analysis.loss_along(inspected.models[name], loss, u, distances)[None]
    unit = "distance, in perturbations of radius 1"
    return _line_artifact("along the adversarial direction", unit, distances, here, found, inspected.methods)


def _line_artifact(
    what: str,
    unit: str,
    distances: list[float],
    here: dict[str, float],
    found: dict[str, Tensor],
    methods: Methods,
) -> Artifact:  # found: name -> [k, distances]
    arrays = {name: values.numpy() for name, values in found.items()}
    ends = {name: values[:, [0, -1]].flatten() for name, values in found.items()}
    return Artifact(
        _rise_table(f"{what}, up to {distances[-1]:g} ({unit})", here, found, ends),
        {"distances": distances, "loss": here, "losses": {n: v.tolist() for n, v in found.items()}},
        lambda png: line_figure(distances, arrays, here, unit, png, methods),
    )


def plane(inspected: InspectedModels, *, scale: Scale, reach: float, points: int) -> Artifact:
    """The training loss on the plane of two random directions through each model."""
    distances, here = _distances(-reach, reach, points), inspected.finite_losses()
    found = {}
    for name, loss in inspected.losses().items():
        model = inspected.models[name]
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


def between(inspected: InspectedModels, *, reach: float, points: int) -> Artifact:
    """The training loss on the line from the first of two models (0) to the second (1), and `reach` beyond both."""
    first, second = inspected.models
    model, loss = inspected.models[first], inspected.losses()[first]
    here = inspected.finite_losses()
    direction = analysis.direction_between(model, inspected.models[second])
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
        lambda png: between_figure(distances, losses.numpy(), ends, png, inspected.methods),
    )


def smoothness(inspected: InspectedModels, *, noise: float, samples: int) -> Artifact:
    """Mean gradient norms by A and X in both definitions; what a model does not allow is told in its place."""
    found: dict[str, dict[str, list[float] | str]] = {}
    for matrix, wrt in (("A", "adjacency"), ("X", "features")):
        for definition in ("paper", "released"):
            found[f"{matrix}, {definition}"] = {
                name: _norms(model, inspected, wrt, definition, noise, samples)
                for name, model in inspected.models.items()
            }
    rows = []
    for what, by_model in found.items():
        cells = [Entry("not measured") if isinstance(n, str) else _mean(n) for n in by_model.values()]
        rows.append((Entry(what), *cells))
    reasons = dict.fromkeys(n for by_model in found.values() for n in by_model.values() if isinstance(n, str))
    caption = f"Norm of the loss gradient at {samples} noisy inputs (noise {noise:g}), mean ± deviation over them."
    return Artifact(
        Table(" ".join([caption, *map(str, reasons)]), ("by", *inspected.models), tuple(rows)),
        {"noise": noise, "samples": samples, "norms": found},
        lambda png: smoothness_figure(found, png, inspected.methods),
    )


def _norms(
    model: nn.Module, inspected: InspectedModels, wrt: Any, definition: Definition, noise: float, samples: int
) -> list[float] | str:
    try:
        options = SmoothnessOptions(wrt=wrt, definition=definition, noise=noise, samples=samples)
        norms = gradient_norms([model], inspected.data, inspected.split.train, options)
    except AnalysisError as error:
        return str(error)
    return [float(norm) for norm in norms[0]]


def sharpness(
    inspected: InspectedModels, *, radii: Mapping[Radius, float], points: int, top: int, steps: int | None = None
) -> Artifact:
    """The rise of the loss inside balls, up to the radius of each kind, and the Hessian: eigenvalues, trace, spectrum.

    Of weights that are distributions the Hessian alone, as nobody can climb there.
    """
    losses, can_climb = inspected.losses(), not any(map(are_distributions, inspected.models.values()))
    rhos, risen = _rises(inspected, radii, points, steps) if can_climb else ({}, {})
    spectra = {n: eigenvalues_and_trace(model, losses[n], top=top) for n, model in inspected.models.items()}
    values = {n: eigenvalues for n, (eigenvalues, _) in spectra.items()}
    traces = {n: trace for n, (_, trace) in spectra.items()}
    density = {
        name: (analysis.spectral_density(model, losses[name], seed=0, probes=3), num_weights(model))
        for name, model in inspected.models.items()
    }
    rows = [
        (Entry(f"sharpness, {kind}, rho={radii[kind]:g}"), *(_number(rise[-1]) for rise in by_model.values()))
        for kind, by_model in risen.items()
    ]
    rows += [(Entry(f"eigenvalue {i + 1}"), *(_number(v[i]) for v in values.values())) for i in range(top)]
    estimates = (Entry(f"{t.mean:.4g} ± {t.standard_error:.2g}", t.mean) for t in traces.values())
    rows.append((Entry("trace of the Hessian"), *estimates))
    caption = "The rise of the training loss inside balls of weights, found by climbing, and the Hessian of that loss."
    if not can_climb:
        caption = "The Hessian of the training loss. These weights are distributions: nobody can climb in them."
    traced = {name: asdict(trace) for name, trace in traces.items()}
    return Artifact(
        Table(caption, ("measure", *inspected.models), tuple(rows)),
        {"rhos": rhos, "rises": risen, "eigenvalues": values, "trace": traced},
        lambda png: sharpness_figure(rhos, risen, density, png, inspected.methods),
    )


def _rises(
    inspected: InspectedModels, radii: Mapping[Radius, float], points: int, steps: int | None
) -> tuple[dict[Radius, list[float]], dict[Radius, dict[str, list[float]]]]:
    """The radii of each kind, and the rise of each model at them."""
    if points < 1 or not all(0 < rho < math.inf for rho in radii.values()):
        raise ValueError(f"points must be >= 1 and radii finite and > 0, got {points} and {dict(radii)}")
    rhos = {kind: radii_up_to(rho, points) for kind, rho in radii.items()}
    losses, steps = inspected.losses(), SharpnessOptions.steps if steps is None else steps
    risen = {
        kind: {n: rises(model, losses[n], each, radius=kind, steps=steps) for n, model in inspected.models.items()}
        for kind, each in rhos.items()
    }
    return rhos, risen


def num_weights(model: nn.Module) -> int:
    """How many numbers are trained, and how many eigenvalues the Hessian has."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def bound(
    inspected: InspectedModels, *, rhos: Sequence[float], delta: float, epsilon: float, constant: float
) -> Artifact:
    """Theorem 1, or the graph-level bound, term by term at several radii, beside the true gap that it bounds."""
    for model in inspected.models.values():
        refuse_distributions(model, inspected.data)
    found = {
        name: bounds(
            model, inspected.data, inspected.split.train, rhos, delta=delta, epsilon=epsilon, constant=constant
        )
        for name, model in inspected.models.items()
    }
    kind = "graphs" if is_collection(inspected.data) else "nodes"
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
        lambda png: _bound_figure(found, inspected.methods, png),
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


def _bound_figure(found: dict[str, list[analysis.BoundAt]], methods: Methods, png: Path | None) -> str:
    with drawing(1, 1, 6.0, 3.4, png=png) as ((ax,), out):
        for name, each in found.items():
            totals = [at.bound.total for at in each]
            losses, colour = (each[0].all_loss, each[0].train_loss), method_style(methods.get(name))["color"]
            draw_bound(ax, name, [at.rho for at in each], totals, *losses, colour=colour)
        finish_bound(ax)
        ax.set_ylabel("1 - p(right class), mean")
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return out[0]


def _number(value: float) -> Entry:
    return Entry(f"{value:.4g}", value if math.isfinite(value) else None)


def _mean(values: Sequence[float]) -> Entry:
    return Entry(f"{np.mean(values):.4g} ± {np.std(values):.2g}", float(np.mean(values)))
