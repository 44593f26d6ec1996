"""Landscape, smoothness, sharpness and bound of inspected models: tables, numbers and figures for the commands.

The numbers are computed by `wtawp.experiments.measures`, as those of plans are.
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
    """Compute the training loss along random lines through each model.

    Args:
        inspected: The models.
        scale: The length of the random directions: "unit", or that of each "layer" or "filter".
        reach: The largest distance from the model, in lengths of the direction, above 0.
        points: Points along a line, at least 3.
        directions: The number of lines.

    Returns:
        A table of losses and rises, the losses, and a figure.

    Raises:
        ValueError: If `reach` or `points` is not valid.
        AnalysisError: If the loss of a model is not finite.
    """
    distances, loss_at_model = _distances(-reach, reach, points), inspected.finite_losses()
    losses = {
        name: losses_along_lines(inspected.models[name], loss, distances, directions=directions, scale=scale)
        for name, loss in inspected.losses().items()
    }
    unit = distance_label(scale)
    return _line_artifact(f"along {directions} lines", unit, distances, loss_at_model, losses, inspected.methods)


def adversarial_line(inspected: InspectedModels, *, reach: float, points: int) -> Artifact:
    """Compute the training loss along the direction in which WT-AWP perturbs each model.

    Args:
        inspected: The models.
        reach: The largest distance from the model, in perturbations of radius 1, above 0.
        points: Points along the line, at least 3.

    Returns:
        A table of losses and rises, the losses, and a figure.

    Raises:
        ValueError: If `reach` or `points` is not valid.
        AnalysisError: If the weights of a model are distributions, or its loss is not finite.
    """
    for model in inspected.models.values():
        refuse_distributions(model, inspected.data)
    distances, loss_at_model = _distances(-reach, reach, points), inspected.finite_losses()
    losses = {}
    for name, loss in inspected.losses().items():
        u = analysis.adversarial_direction(inspected.models[name], loss)
        losses[name] = analysis.loss_along(inspected.models[name], loss, u, distances)[None]
    unit = "distance, in perturbations of radius 1"
    return _line_artifact("along the adversarial direction", unit, distances, loss_at_model, losses, inspected.methods)


def _line_artifact(
    where: str,
    unit: str,
    distances: list[float],
    loss_at_model: dict[str, float],
    losses: dict[str, Tensor],
    methods: Methods,
) -> Artifact:  # losses: name -> [lines, distances]
    """The artifact of losses along lines; `where` names the lines in its caption."""
    arrays = {name: values.numpy() for name, values in losses.items()}
    farthest = {name: values[:, [0, -1]].flatten() for name, values in losses.items()}
    return Artifact(
        _rise_table(f"{where}, up to {distances[-1]:g} ({unit})", loss_at_model, losses, farthest),
        {"distances": distances, "loss": loss_at_model, "losses": {n: v.tolist() for n, v in losses.items()}},
        lambda png: line_figure(distances, arrays, loss_at_model, unit, png, methods),
    )


def plane(inspected: InspectedModels, *, scale: Scale, reach: float, points: int) -> Artifact:
    """Compute the training loss on the plane of two random directions through each model.

    Args:
        inspected: The models.
        scale: The length of the random directions: "unit", or that of each "layer" or "filter".
        reach: The largest distance from the model along a direction, in its lengths, above 0.
        points: Points along a side of the plane, at least 3.

    Returns:
        A table of losses and rises, the losses, and a figure.

    Raises:
        ValueError: If `reach` or `points` is not valid.
        AnalysisError: If the loss of a model is not finite.
    """
    distances, loss_at_model = _distances(-reach, reach, points), inspected.finite_losses()
    losses = {}
    for name, loss in inspected.losses().items():
        model = inspected.models[name]
        u, v = (analysis.random_direction(model, seed=0, number=i, scale=scale) for i in (0, 1))
        losses[name] = analysis.losses_on_plane(model, loss, u, v, distances, distances)
    unit, arrays = distance_label(scale), {name: values.numpy() for name, values in losses.items()}
    sides = {n: torch.cat([v[0], v[-1], v[1:-1, 0], v[1:-1, -1]]) for n, v in losses.items()}
    return Artifact(
        _rise_table(f"on a plane, up to {reach:g} ({unit})", loss_at_model, losses, sides),
        {"distances": distances, "loss": loss_at_model, "losses": {n: v.tolist() for n, v in losses.items()}},
        lambda png: plane_figure(distances, arrays, loss_at_model, unit, png),
    )


def _distances(low: float, high: float, points: int) -> list[float]:
    """Equidistant points from `low` to `high`."""
    if points < 3 or not low < high < math.inf:
        raise ValueError(f"points must be >= 3 and reach finite and > 0, got {points} points up to {high}")
    distances: list[float] = torch.linspace(low, high, points, dtype=torch.float64).tolist()
    return distances


def _rise_table(
    where: str, loss_at_model: dict[str, float], losses: dict[str, Tensor], farthest: dict[str, Tensor]
) -> Table:  # farthest: the losses where the distance is largest
    """The loss of each model and its rise at the largest distance."""
    rises = {name: values - loss_at_model[name] for name, values in farthest.items()}
    rows = [
        (Entry(name), _number(loss_at_model[name]), _number(float(rise.mean())), _number(float(rise.max())),
         Entry(str(analysis.num_non_finite(losses[name]))))
        for name, rise in rises.items()
    ]  # fmt: skip
    return Table(
        f"The training loss {where}: at the model, and its mean and largest rise at the ends. "
        "Gaps: points where it is not finite.",
        ("model", "loss", "mean rise", "largest rise", "gaps"),
        tuple(rows),
    )


def between(inspected: InspectedModels, *, reach: float, points: int) -> Artifact:
    """Compute the training loss on the line from the first of two models (0) to the second (1).

    Args:
        inspected: The two models.
        reach: How far the line goes beyond both models, as a share of their distance, above 0.
        points: Points along the line, at least 3; the two models are added to them.

    Returns:
        A table with the barrier between the models, the losses, and a figure.

    Raises:
        ValueError: If `reach` or `points` is not valid.
        AnalysisError: If the loss of a model is not finite.
    """
    first, second = inspected.models
    model, loss = inspected.models[first], inspected.losses()[first]
    loss_at_model = inspected.finite_losses()
    direction = analysis.direction_between(model, inspected.models[second])
    # The two solutions are always among the points.
    distances = sorted({*_distances(-reach, 1 + reach, points), 0.0, 1.0})
    losses = analysis.loss_along(model, loss, direction, distances)
    ends = {first: float(losses[distances.index(0.0)]), second: float(losses[distances.index(1.0)])}
    inside = [(float(v), t) for v, t in zip(losses, distances, strict=True) if 0 <= t <= 1]
    highest, position = max(inside, key=lambda pair: math.inf if math.isnan(pair[0]) else pair[0])
    apart = float(torch.stack([d.norm() for d in direction.values()]).norm())
    row = (*map(_number, (*ends.values(), highest, position, highest - max(ends.values()), apart)),
           Entry(str(analysis.num_non_finite(losses))))  # fmt: skip
    caption = (
        f"The training loss on the line from {first} (0) to {second} (1): at both, the highest between them and where, "
        "how far that is above the higher of the two, and how far apart their weights are. Gaps: points where it is "
        "not finite."
    )
    if not math.isclose(
        ends[second], loss_at_model[second], rel_tol=1e-3, abs_tol=1e-5
    ):  # buffers are not interpolated
        caption += (
            f" The line moves parameters alone: with its own buffers (batch norm) {second} has "
            f"{loss_at_model[second]:.4g}."
        )
    headers = (f"loss of {first}", f"loss of {second}", "highest", "where", "barrier", "distance", "gaps")
    return Artifact(
        Table(caption, headers, (row,)),
        {"distances": distances, "loss": ends, "losses": losses.tolist(), "weight_distance": apart},
        lambda png: between_figure(distances, losses.numpy(), ends, png, inspected.methods),
    )


def smoothness(inspected: InspectedModels, *, noise: float, samples: int) -> Artifact:
    """Measure the norms of the loss gradient by A and X in both definitions.

    Args:
        inspected: The models.
        noise: The size of the noise on the inputs, at least 0.
        samples: The number of noisy inputs.

    Returns:
        A table of mean norms, all norms, and a figure. If a norm cannot be measured on a model, the reason is in the
        caption and in the place of the norms.
    """
    norms: dict[str, dict[str, list[float] | str]] = {}
    for matrix, wrt in (("A", "adjacency"), ("X", "features")):
        for definition in ("paper", "released"):
            norms[f"{matrix}, {definition}"] = {
                name: _norms(model, inspected, wrt, definition, noise, samples)
                for name, model in inspected.models.items()
            }
    rows = []
    for label, by_model in norms.items():
        cells = [Entry("not measured") if isinstance(n, str) else _mean(n) for n in by_model.values()]
        rows.append((Entry(label), *cells))
    reasons = dict.fromkeys(n for by_model in norms.values() for n in by_model.values() if isinstance(n, str))
    caption = f"Norm of the loss gradient at {samples} noisy inputs (noise {noise:g}), mean ± deviation over them."
    return Artifact(
        Table(" ".join([caption, *map(str, reasons)]), ("by", *inspected.models), tuple(rows)),
        {"noise": noise, "samples": samples, "norms": norms},
        lambda png: smoothness_figure(norms, png, inspected.methods),
    )


def _norms(
    model: nn.Module, inspected: InspectedModels, wrt: Any, definition: Definition, noise: float, samples: int
) -> list[float] | str:
    """The gradient norms of a model, or the reason why they cannot be measured."""
    try:
        options = SmoothnessOptions(wrt=wrt, definition=definition, noise=noise, samples=samples)
        norms = gradient_norms([model], inspected.data, inspected.split.train, options)
    except AnalysisError as error:
        return str(error)
    return [float(norm) for norm in norms[0]]


def sharpness(
    inspected: InspectedModels, *, radii: Mapping[Radius, float], points: int, top: int, steps: int | None = None
) -> Artifact:
    """Measure how far the loss rises within balls of weights, and the eigenvalues, trace and spectrum of the Hessian.

    Weights that are distributions cannot be perturbed, so that only the Hessian is measured for them.

    Args:
        inspected: The models.
        radii: The largest radius of each kind of ball, above 0.
        points: The number of radii up to the largest one, at least 1.
        top: The number of eigenvalues.
        steps: Steps of gradient ascent within a ball; None uses the default of `wtawp.analysis.sharpness`.

    Returns:
        A table, the numbers, and a figure.

    Raises:
        ValueError: If `points` or a radius is not valid.
    """
    losses, can_ascend = inspected.losses(), not any(map(are_distributions, inspected.models.values()))
    rhos, rises_of = _rises(inspected, radii, points, steps) if can_ascend else ({}, {})
    spectra = {n: eigenvalues_and_trace(model, losses[n], top=top) for n, model in inspected.models.items()}
    values = {n: eigenvalues for n, (eigenvalues, _) in spectra.items()}
    traces = {n: trace for n, (_, trace) in spectra.items()}
    density = {
        name: (analysis.spectral_density(model, losses[name], seed=0, probes=3), num_weights(model))
        for name, model in inspected.models.items()
    }
    rows = [
        (Entry(f"sharpness, {kind}, rho={radii[kind]:g}"), *(_number(rise[-1]) for rise in by_model.values()))
        for kind, by_model in rises_of.items()
    ]
    rows += [(Entry(f"eigenvalue {i + 1}"), *(_number(v[i]) for v in values.values())) for i in range(top)]
    estimates = (Entry(f"{t.mean:.4g} ± {t.standard_error:.2g}", t.mean) for t in traces.values())
    rows.append((Entry("trace of the Hessian"), *estimates))
    caption = (
        "The rise of the training loss inside balls of weights, found by gradient ascent, and the Hessian of that loss."
    )
    if not can_ascend:
        caption = "The Hessian of the training loss. These weights are distributions, which cannot be perturbed."
    traced = {name: asdict(trace) for name, trace in traces.items()}
    return Artifact(
        Table(caption, ("measure", *inspected.models), tuple(rows)),
        {"rhos": rhos, "rises": rises_of, "eigenvalues": values, "trace": traced},
        lambda png: sharpness_figure(rhos, rises_of, density, png, inspected.methods),
    )


def _rises(
    inspected: InspectedModels, radii: Mapping[Radius, float], points: int, steps: int | None
) -> tuple[dict[Radius, list[float]], dict[Radius, dict[str, list[float]]]]:
    """The radii of each kind, and the rise of each model at them."""
    if points < 1 or not all(0 < rho < math.inf for rho in radii.values()):
        raise ValueError(f"points must be >= 1 and radii finite and > 0, got {points} and {dict(radii)}")
    rhos = {kind: radii_up_to(rho, points) for kind, rho in radii.items()}
    losses, steps = inspected.losses(), SharpnessOptions.steps if steps is None else steps
    rises_of = {
        kind: {
            n: rises(model, losses[n], radii_of_kind, radius=kind, steps=steps) for n, model in inspected.models.items()
        }
        for kind, radii_of_kind in rhos.items()
    }
    return rhos, rises_of


def num_weights(model: nn.Module) -> int:
    """Count the trained numbers of a model, which is also the number of eigenvalues of the Hessian.

    Args:
        model: The model.

    Returns:
        The number of elements of all parameters that require a gradient.
    """
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def bound(
    inspected: InspectedModels, *, rhos: Sequence[float], delta: float, epsilon: float, constant: float
) -> Artifact:
    """Evaluate Theorem 1, or the graph-level bound, term by term, beside the true gap that it bounds.

    Args:
        inspected: The models.
        rhos: The radii, relative to each layer.
        delta: The probability that the bound does not hold, between 0 and 1.
        epsilon: `epsilon_all` of Theorem 1, at least 0; the graph-level bound has none.
        constant: The factor hidden in the Theta of the theorem, at least 0.

    Returns:
        A table of the terms, the numbers, and a figure.

    Raises:
        AnalysisError: If the weights of a model are distributions.
    """
    for model in inspected.models.values():
        refuse_distributions(model, inspected.data)
    bounds_of = {
        name: bounds(
            model, inspected.data, inspected.split.train, rhos, delta=delta, epsilon=epsilon, constant=constant
        )
        for name, model in inspected.models.items()
    }
    kind = "graphs" if is_collection(inspected.data) else "nodes"
    theorem = f"Theorem 1 (epsilon_all = {epsilon:g})" if kind == "nodes" else "The graph-level bound"
    caption = (
        f"{theorem} for the loss 1 - p(right class), with probability {1 - delta:g}; the unnamed constant is "
        f"{constant:g}. The perturbed loss is found by gradient ascent, so this is an estimate of the bound."
    )
    content = {
        name: [{**at.bound.terms(), "rho": at.rho, "total_rho": at.total_rho, "gap": at.generalisation_gap,
                "bounded_gap": at.bounded_gap, "is_vacuous": at.bound.is_vacuous} for at in model_bounds]
        for name, model_bounds in bounds_of.items()
    }  # fmt: skip
    return Artifact(
        _bound_table(caption, bounds_of),
        {"delta": delta, "epsilon": epsilon, "bounds": content},
        lambda png: _bound_figure(bounds_of, inspected.methods, png),
    )


BELOW = "below 1, if gradient ascent found the highest loss"


def _bound_table(caption: str, bounds_of: dict[str, list[analysis.BoundAt]]) -> Table:
    """The terms of the bound of each model at each radius."""
    terms = {"loss": "perturbed loss", "tail": "tail", "complexity": "complexity", "remainder": "remainder",
             "total": "bound"}  # fmt: skip
    rows = [
        (Entry(name), Entry(f"{at.rho:g}"), *(_number(at.bound.terms()[term]) for term in terms),
         _number(at.bounded_gap), _number(at.generalisation_gap), Entry("vacuous" if at.bound.is_vacuous else BELOW))
        for name, model_bounds in bounds_of.items() for at in model_bounds
    ]  # fmt: skip
    return Table(caption, ("model", "rho", *terms.values(), "bound on the gap", "gap", "verdict"), tuple(rows))


def _bound_figure(bounds_of: dict[str, list[analysis.BoundAt]], methods: Methods, png: Path | None) -> str:
    """The bound of each model over the radii."""
    with drawing(1, 1, 6.0, 3.4, png=png) as ((ax,), out):
        for name, model_bounds in bounds_of.items():
            rhos, totals = [at.rho for at in model_bounds], [at.bound.total for at in model_bounds]
            losses = (model_bounds[0].all_loss, model_bounds[0].train_loss)
            colour = method_style(methods.get(name))["color"]
            draw_bound(ax, name, rhos, totals, *losses, colour=colour)
        finish_bound(ax)
        ax.set_ylabel("1 - p(right class), mean")
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return out[0]


def _number(value: float) -> Entry:
    """A number as an entry of a table."""
    return Entry(f"{value:.4g}", value if math.isfinite(value) else None)


def _mean(values: Sequence[float]) -> Entry:
    """A mean with its deviation as an entry of a table."""
    return Entry(f"{np.mean(values):.4g} ± {np.std(values):.2g}", float(np.mean(values)))
