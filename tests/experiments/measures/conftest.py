from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from wtawp.base import rng
from wtawp.experiments.measures.shared.interface import TrainedModels
from wtawp.experiments.measures.shared.registry import run_measure
from wtawp.experiments.spec import Measure
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
def leaves_others_alone(untrained: TrainedModels) -> Callable[[Measure, tuple[str, ...]], None]:
    """Checks that a diverged model gets NaN in the named entries, and that the other model's result does not change."""

    def check(wanted: Measure, names: tuple[str, ...]) -> None:
        diverged = GCN(13, 3, hidden=(8,), generator=rng("init"))
        torch.nn.init.constant_(diverged.convs[0].weight, float("nan"))
        both = replace(untrained, models=[diverged, untrained.models[1]])
        lost, kept = run_measure(wanted, both)
        assert all(torch.tensor(lost[name]).isnan().all() for name in names)
        assert kept == run_measure(wanted, untrained)[1]

    return check
