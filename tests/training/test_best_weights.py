"""The weights that are kept, against a loop over the epochs of each model."""

import pytest
import torch

from wtawp.training.best_weights import BestWeights
from wtawp.training.options import FitSelectOn

LOSSES = [[1.0, 2.0], [0.8, 3.0], [0.9, 1.0], [0.7, float("nan")], [0.95, 0.5]]
SCORES = [[0.5, 0.5], [0.4, 0.6], [0.7, 0.6], [0.6, 0.9], [0.6, float("nan")]]


def chosen_epoch(losses: list[float], scores: list[float], select_on: FitSelectOn, patience: int | None) -> int:
    """The epoch that one model keeps, one comparison after another."""
    best_loss, best_score, chosen = float("inf"), -float("inf"), 0
    for epoch, (loss, score) in enumerate(zip(losses, scores, strict=True)):
        better = {"loss": loss < best_loss, "accuracy": score > best_score, "metric": score > best_score, "last": True}
        better["either"] = better["loss"] or better["accuracy"]
        chosen = epoch if better[select_on] else chosen
        best_loss = loss if loss < best_loss else best_loss
        best_score = score if score > best_score else best_score
        if patience is not None and epoch - chosen >= patience:
            break
    return chosen


def run(select_on: FitSelectOn, patience: int | None, epochs: range, best: BestWeights | None = None) -> BestWeights:
    """Let two models of one weight each, which is the number of the epoch, run through the losses above."""
    theta, buffers = {"w": torch.zeros(2, 1)}, {"b": torch.zeros(2, 1)}
    if best is None:
        best = BestWeights(theta, buffers, 2, torch.device("cpu"), select_on)
    for epoch in epochs:
        best.theta["w"].fill_(epoch)
        best.buffers["b"].fill_(-epoch)
        best.update(torch.tensor(epoch), torch.tensor(LOSSES[epoch]), torch.tensor(SCORES[epoch]).double(), patience)
    return best


@pytest.mark.parametrize("patience", [None, 1, 2])
@pytest.mark.parametrize("select_on", ["loss", "accuracy", "metric", "either", "last"])
def test_each_model_keeps_its_best_epoch(select_on: FitSelectOn, patience: int | None) -> None:
    best = run(select_on, patience, range(5))
    for member in range(2):
        column = [[row[member] for row in table] for table in (LOSSES, SCORES)]
        expected = chosen_epoch(*column, select_on, patience)
        assert best.epoch[member] == best.best["w"][member] == -best.best_buffers["b"][member] == expected


def test_a_saved_state_continues() -> None:
    """The first model has its best score before the state is saved, and would choose another epoch without it."""
    half, other = run("accuracy", None, range(3)), run("accuracy", None, range(0))
    other.load_state_dict(half.state_dict())
    whole, continued = run("accuracy", None, range(5)), run("accuracy", None, range(3, 5), other)
    assert run("accuracy", None, range(3, 5)).epoch[0] != whole.epoch[0]
    assert continued.epoch.equal(whole.epoch)
    assert continued.best["w"].equal(whole.best["w"])
    assert continued.best_buffers["b"].equal(whole.best_buffers["b"])
    assert continued.loss.equal(whole.loss)
    assert continued.score.equal(whole.score)


def test_epochs_before_the_first_are_not_kept_however_good_they_are() -> None:
    theta = {"w": torch.zeros(1, 1)}
    best = BestWeights(theta, {}, 1, torch.device("cpu"), "either", first=2)
    for epoch, loss in enumerate([0.1, 0.2, 0.9, 0.8, 0.85]):
        theta["w"].fill_(epoch)
        best.update(torch.tensor(epoch), torch.tensor([loss]), torch.tensor([1.0 - loss]).double(), None)
    assert best.epoch.tolist() == [3]
    assert best.best["w"].tolist() == [[3.0]]
