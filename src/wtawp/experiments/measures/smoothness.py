"""Smoothness: the norm of the gradient of the loss with respect to the inputs, at noisy inputs (fig:lipcora)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.analysis import input_gradient_norms
from wtawp.analysis.smoothness import Definition, Wrt
from wtawp.experiments.measures.shared.interface import MeasureSpec, Result, TrainedModels, has_finite_weights, rounded
from wtawp.experiments.measures.shared.option_checks import check_choice, check_count, check_number


@dataclass(frozen=True, kw_only=True)
class SmoothnessOptions:
    """Options of the measure.

    Attributes:
        wrt: The input: "adjacency" or "features".
        definition: That of the "paper", or that of the "released" code.
        noise: The scale of the noise that is added to the input.
        samples: Noisy inputs, the same ones for all models.
    """

    wrt: Wrt
    definition: Definition = "paper"
    noise: float = 0.0005
    samples: int = 100

    def __post_init__(self) -> None:
        check_choice("wrt", self.wrt, get_args(Wrt))
        check_choice("definition", self.definition, get_args(Definition))
        check_number("noise", self.noise, 0.0)
        check_count("samples", self.samples, 1)


def gradient_norms(
    models: Sequence[nn.Module], data: Data, nodes: Tensor | Sequence[Tensor], options: SmoothnessOptions
) -> Tensor:  # -> [models, samples]
    """The norm of each model's gradient at each noisy input."""
    return input_gradient_norms(
        models, data, nodes, wrt=options.wrt, seed=0, definition=options.definition, noise=options.noise,
        samples=options.samples,
    )  # fmt: skip


def run(trained: TrainedModels, options: SmoothnessOptions) -> list[Result]:
    """Mean and standard deviation of the norms over the noisy inputs; NaN for a model that diverged."""
    results: list[Result] = [{"norm": math.nan, "spread": math.nan} for _ in trained.models]
    finite = [i for i, model in enumerate(trained.models) if has_finite_weights(model)]
    if finite:
        models, nodes = [trained.models[i].eval() for i in finite], [trained.splits[i].train for i in finite]
        for i, norms in zip(finite, gradient_norms(models, trained.data, nodes, options), strict=True):
            results[i] = {"norm": rounded(norms.mean()), "spread": rounded(norms.std(correction=0))}
    return results


MEASURE = MeasureSpec(name="smoothness", options=SmoothnessOptions, run=run, smoke_options={"samples": 2})
