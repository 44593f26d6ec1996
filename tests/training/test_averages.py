"""Averages of the weights, against `torch.optim.swa_utils` in a loop of one's own."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn

from wtawp.base import rng
from wtawp.core import AwpConfig
from wtawp.graphs import load, stratified
from wtawp.models import GCN
from wtawp.training import fit, fit_many
from wtawp.training.averages import WeightAverage
from wtawp.training.options import Average

DATA = load("wine")
SPLIT = stratified(DATA.y, seed=0)


def gcn(seed: int = 0, **options: Any) -> GCN:
    return GCN(13, 3, generator=rng("init", seed), **options)


def weights(model: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def averaged_by_hand(average: Average, epochs: int) -> nn.Module:
    """Train as `fit` does without dropout, and average with torch's own class."""
    model = gcn(dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    mean = AveragedModel(model) if average == "swa" else AveragedModel(model, avg_fn=get_ema_avg_fn(average))
    for epoch in range(epochs):
        optimizer.zero_grad()
        F.cross_entropy(model(DATA.x, DATA.edge_index)[SPLIT.train], DATA.y[SPLIT.train]).backward()
        optimizer.step()
        if average != "swa" or epoch >= epochs - epochs // 4:
            mean.update_parameters(model)
    module: nn.Module = mean.module
    return module


@pytest.mark.parametrize("average", [0.9, 0.99, "swa"])
def test_the_average_is_that_of_torch(average: Average) -> None:
    model = gcn(dropout=0.0)
    result = fit(model, DATA, SPLIT, seed=0, epochs=24, average=average, select_on="last")
    by_hand = averaged_by_hand(average, 24)
    for ours, theirs in zip(weights(model), weights(by_hand), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        logits = by_hand(DATA.x, DATA.edge_index)[SPLIT.val]
    assert result.history["val_loss"][-1] == pytest.approx(float(F.cross_entropy(logits, DATA.y[SPLIT.val])), rel=1e-4)


def test_the_training_itself_is_not_changed() -> None:
    plain, averaged = (fit(gcn(), DATA, SPLIT, seed=0, epochs=20, average=average) for average in (None, 0.9))
    assert averaged.history["train_loss"] == plain.history["train_loss"]
    assert averaged.history["val_loss"][0] == plain.history["val_loss"][0]
    assert averaged.history["val_loss"][1:] != plain.history["val_loss"][1:]


def test_members_of_a_stack_are_averaged_alone_also_with_perturbed_weights() -> None:
    awp = AwpConfig(rho=1.0, lam=0.7)
    together = [gcn(i) for i in range(3)]
    results = fit_many(together, DATA, SPLIT, seeds=[0, 1, 2], awp=awp, epochs=20, average=0.9)
    for i, model in enumerate(together):
        alone = gcn(i)
        result = fit(alone, DATA, SPLIT, seed=i, awp=awp, epochs=20, average=0.9)
        assert result.history["val_loss"] == pytest.approx(results[i].history["val_loss"], rel=1e-4)
        for a, b in zip(weights(alone), weights(model), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


class KilledError(Exception):
    pass


@pytest.mark.parametrize("average", [0.9, "swa"])
def test_a_resumed_training_has_the_bits_of_an_uninterrupted_one(average: Average, tmp_path: Path) -> None:
    whole = gcn()
    result = fit(whole, DATA, SPLIT, seed=0, epochs=30, average=average)

    def kill(_model: nn.Module, epoch: int) -> None:
        if epoch == 26:  # four of the last seven epochs are in the mean
            raise KilledError

    path = tmp_path / "run.pt"
    with pytest.raises(KilledError):
        fit(gcn(), DATA, SPLIT, seed=0, epochs=30, average=average, checkpoint=path, checkpoint_every=1,
            observe=kill)  # fmt: skip
    resumed = gcn()
    assert fit(resumed, DATA, SPLIT, seed=0, epochs=30, average=average, checkpoint=path) == result
    assert all(map(torch.equal, weights(resumed), weights(whole)))


def test_observers_see_the_averaged_weights() -> None:
    losses = []

    def measure(model: nn.Module, _epoch: int) -> None:
        with torch.no_grad():
            logits = model.eval()(DATA.x, DATA.edge_index)[SPLIT.val]
        losses.append(float(F.cross_entropy(logits, DATA.y[SPLIT.val])))

    result = fit(gcn(), DATA, SPLIT, seed=0, epochs=12, average=0.8, observe=measure)
    assert result.history["val_loss"] == pytest.approx(losses, rel=1e-5)


def test_swa_of_a_short_training_averages_its_last_epoch_alone() -> None:
    theta = {"w": torch.zeros(1, 2)}
    average = WeightAverage(theta, "swa", 3)
    for epoch in range(3):
        theta["w"].fill_(epoch)
        average.update(torch.tensor(epoch))
        assert average.weights["w"].tolist() == [[epoch, epoch]]


def test_swa_keeps_an_epoch_of_the_mean_also_if_an_earlier_one_was_better() -> None:
    plain = fit(gcn(), DATA, SPLIT, seed=0, epochs=100)
    assert plain.epoch < 75
    assert fit(gcn(), DATA, SPLIT, seed=0, epochs=100, average="swa").epoch >= 75
    with pytest.raises(ValueError, match="which patience may skip; leave one out"):
        fit(gcn(), DATA, SPLIT, seed=0, epochs=40, average="swa", patience=5)


@pytest.mark.parametrize("average", [0, 1, 1.5, True, "ema", float("nan")])
def test_what_is_no_average_is_refused(average: Any) -> None:
    with pytest.raises(ValueError, match=r'average must be the decay of a moving average, between 0 and 1, or "swa"'):
        fit(gcn(), DATA, SPLIT, seed=0, epochs=2, average=average)
