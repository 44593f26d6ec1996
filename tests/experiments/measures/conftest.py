from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from wtawp.base import rng
from wtawp.experiments.measures.shared.interface import Result, TrainedModels
from wtawp.experiments.measures.shared.registry import run_measure
from wtawp.experiments.spec import MeasureRequest
from wtawp.graphs import load, stratified
from wtawp.models import GCN
from wtawp.training import fit_many


@pytest.fixture(scope="module")
def trained() -> TrainedModels:
    """Three small models on a small graph, two of them on one split."""
    data = load("wine")
    splits = [stratified(data.y, seed=split) for split in (0, 0, 1)]
    models = [GCN(13, 3, hidden=(8,), generator=rng("init", i)) for i in range(3)]
    fit_many(models, data, splits, seeds=[0, 1, 2], epochs=20)
    return TrainedModels(models, data, "wine", splits, [(0, 0), (0, 1), (1, 0)])


@pytest.fixture
def untrained() -> TrainedModels:
    """Two small models on two splits of a small graph; a measure does not ask whether somebody trained them."""
    data = load("wine")
    splits = [stratified(data.y, seed=split) for split in (0, 1)]
    models = [GCN(13, 3, hidden=(8,), generator=rng("init", i)) for i in range(2)]
    return TrainedModels(models, data, "wine", splits, [(0, 0), (1, 0)])


@pytest.fixture
def beside_diverged(untrained: TrainedModels) -> Callable[[MeasureRequest], tuple[Result, Result, Result]]:
    """Measures a diverged model and another one together: their results, and that of the other one without it."""

    def measure(wanted: MeasureRequest) -> tuple[Result, Result, Result]:
        diverged = GCN(13, 3, hidden=(8,), generator=rng("init"))
        torch.nn.init.constant_(diverged.convs[0].weight, float("nan"))
        both = replace(untrained, models=[diverged, untrained.models[1]])
        diverged_result, other = run_measure(wanted, both)
        return diverged_result, other, run_measure(wanted, untrained)[1]

    return measure
