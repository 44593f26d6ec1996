"""The geometry of trained models as measures of a plan: smoothness, landscape, sharpness, spectrum, bound.

Each returns, for each model, plain data that JSON can hold; losses that are not finite stay what they are.
"""

import math
from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any, Protocol, get_args

import numpy as np
import torch
from torch import nn
from torch_geometric.data import Data

from wtawp import analysis
from wtawp.analysis.landscape import Scale
from wtawp.analysis.smoothness import Definition, Wrt
from wtawp.core import Radius
from wtawp.experiments.results.geometry import BOUND_TERMS
from wtawp.graphs import Split

Result = dict[str, Any]
SHARES = (0.25, 0.5, 0.75, 1.0)  # of the largest radius, at which sharpness is told
DIGITS = 8
WATCHED: dict[Radius, float] = {"layer": 0.1, "adaptive": 2.0}  # balls that sharpness is told of in training


class TrainedModels(Protocol):
    """What is asked of `measures.Trained`."""

    @property
    def models(self) -> Sequence[nn.Module]: ...
    @property
    def data(self) -> Data: ...
    @property
    def splits(self) -> Sequence[Split]: ...


def smoothness(
    trained: TrainedModels, *, wrt: Wrt, definition: Definition = "paper", noise: float = 0.0005, samples: int = 100
) -> list[Result]:
    """Norms of the loss gradient by the inputs: their mean over noisy inputs, which all models share, and spread."""
    found: list[Result] = [{"norm": math.nan, "spread": math.nan} for _ in trained.models]
    sound = [i for i, model in enumerate(trained.models) if _is_sound(model)]
    if sound:
        norms = analysis.input_gradient_norms(
            [trained.models[i].eval() for i in sound], trained.data, [trained.splits[i].train for i in sound], wrt=wrt,
            seed=0, definition=definition, noise=noise, samples=samples,
        )  # fmt: skip
        for i, row in zip(sound, norms, strict=True):
            found[i] = {"norm": _short(row.mean()), "spread": _short(row.std(correction=0))}
    return found


def landscape(
    trained: TrainedModels, *, scale: Scale = "layer", reach: float = 1.0, points: int = 21, directions: int = 10
) -> list[Result]:
    """The training loss along random directions, the same ones for all models: mean and quartiles over directions."""
    distances = torch.linspace(-reach, reach, points).tolist()
    found = []
    for model, split in zip(trained.models, trained.splits, strict=True):
        loss = analysis.LossOn(model.eval(), trained.data, split.train)
        lines = analysis.loss_along_random_directions(
            model, loss, distances, seed=0, num_directions=directions, scale=scale
        )
        quartiles = torch.quantile(lines, torch.tensor([0.25, 0.75], dtype=lines.dtype), dim=0)
        curves = {"mean": lines.mean(0), "low": quartiles[0], "high": quartiles[1]}
        with torch.no_grad():
            here = _short(loss())
        found.append({
            "scale": scale, "distances": distances, "loss": here, "gaps": analysis.num_gaps(lines),
            **{name: [_short(value) for value in curve] for name, curve in curves.items()},
        })  # fmt: skip
    return found


def sharpness(
    trained: TrainedModels, *, radius: Radius = "layer", rho: float = 0.1, steps: int = 50, layers: str = "all"
) -> list[Result]:
    """The rise of the training loss inside balls of a quarter, a half, three quarters and all of `rho`."""
    rhos = [share * rho for share in SHARES]
    found = []
    for model, split in zip(trained.models, trained.splits, strict=True):
        loss = analysis.LossOn(model.eval(), trained.data, split.train)
        rises = [math.nan] * len(rhos)
        if _is_sound(model):
            rises = analysis.sharpness_over(model, loss, rhos, radius=radius, steps=steps, layers=layers)
        found.append({"radius": radius, "rhos": rhos, "rises": [round(rise, DIGITS) for rise in rises]})
    return found


def spectrum(trained: TrainedModels, *, top: int = 5, probes: int = 30) -> list[Result]:
    """The largest eigenvalues of the Hessian of the training loss, and its trace with a standard error."""
    found = []
    for model, split in zip(trained.models, trained.splits, strict=True):
        loss = analysis.LossOn(model.eval(), trained.data, split.train)
        values, trace = [math.nan] * top, analysis.Trace(math.nan, math.nan)
        if _is_sound(model):
            values = analysis.top_eigenvalues(model, loss, k=top)
            trace = analysis.hessian_trace(model, loss, seed=0, probes=probes)
        found.append({
            "top": [round(value, DIGITS) for value in values],
            "trace": round(trace.mean, DIGITS), "trace_error": round(trace.standard_error, DIGITS),
        })  # fmt: skip
    return found


def bound(
    trained: TrainedModels, *, rho: float = 10.0, least: float = 0.01, points: int = 7, delta: float = 0.05,
    constant: float = 1.0,
) -> list[Result]:  # fmt: skip
    """The generalisation bound term by term, at radii relative to each layer that grow from `least` to `rho`."""
    rhos = [round(r, DIGITS) for r in np.geomspace(least, rho, points).tolist()]
    found = []
    for model, split in zip(trained.models, trained.splits, strict=True):
        over_rho = analysis.bound_over_rho(
            model.eval(), trained.data, split.train, rhos, delta=delta, constant=constant
        )
        terms = [at.bound.terms() for at in over_rho]
        found.append({
            "rhos": rhos,
            "total_rhos": [round(at.total_rho, DIGITS) for at in over_rho],
            "train_loss": round(over_rho[0].train_loss, DIGITS), "all_loss": round(over_rho[0].all_loss, DIGITS),
            **{name: [round(each[name], DIGITS) for each in terms] for name in BOUND_TERMS},
        })  # fmt: skip
    return found


MEASURES: dict[str, Callable[..., list[Result]]] = {
    "bound": bound,
    "smoothness": smoothness,
    "landscape": landscape,
    "sharpness": sharpness,
    "spectrum": spectrum,
}
WORDS = {"wrt": get_args(Wrt), "definition": get_args(Definition), "scale": get_args(Scale), "radius": get_args(Radius)}
COUNTS = ("samples", "points", "directions", "steps", "top", "probes")
OF_GRAPHS = ("bound", "landscape", "sharpness", "spectrum")  # what the classifiers of whole graphs have too
LEAST = {"samples": 1, "points": 2, "directions": 1, "steps": 1, "top": 1, "probes": 2, "rho": 0.0, "reach": 0.0,
         "noise": 0.0, "least": 1e-9, "constant": 0.0}  # fmt: skip


def check_options(name: str, options: dict[str, Any]) -> None:
    """Refuse, before anything is trained, what a measure would refuse after it."""
    takes = {n: p for n, p in signature(MEASURES[name]).parameters.items() if n != "trained"}
    if unknown := sorted(set(options) - set(takes)):
        raise ValueError(f"{name} has no option {unknown[0]!r}; it has {', '.join(sorted(takes))}")
    if missing := [n for n, p in takes.items() if p.default is p.empty and n not in options]:
        raise ValueError(f"{name} needs the option {missing[0]!r}")
    for option, value in options.items():
        if option in WORDS and value not in WORDS[option]:
            raise ValueError(f"{option} must be one of {', '.join(WORDS[option])}, got {value!r}")
        kinds: tuple[type, ...] = (int,) if option in COUNTS else (int, float)
        known = option in LEAST and (isinstance(value, bool) or not isinstance(value, kinds))
        if known or (option in LEAST and not LEAST[option] <= value < float("inf")):
            number = "whole number" if option in COUNTS else "finite number"
            raise ValueError(f"{option} must be a {number} >= {LEAST[option]:g}, got {value!r}")
    delta = options.get("delta", 0.5)
    if not (isinstance(delta, float) and 0 < delta < 1):
        raise ValueError(f"delta must lie in (0, 1), got {delta!r}")
    if name == "bound" and not options.get("least", 0.01) <= options.get("rho", 10.0):
        raise ValueError(f"least must be at most rho, got {options.get('least', 0.01)} and {options.get('rho', 10.0)}")


def _is_sound(model: nn.Module) -> bool:
    """Whether its weights are numbers: one that diverged must not take from the others of its stack what they gave."""
    return all(bool(p.isfinite().all()) for p in model.parameters())


def _short(value: torch.Tensor) -> float:
    return round(float(value.detach()), DIGITS)
