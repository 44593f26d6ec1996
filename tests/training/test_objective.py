from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from wtawp.base import DataError, rng
from wtawp.graphs import load, stratified
from wtawp.training import fit, fit_batches
from wtawp.training.objective import Objective

OUTPUTS = torch.randn(2, 5, 3, generator=rng("outputs"))
Y = torch.tensor([0, 2, 1, 1, 0])


def recall(output: Tensor, target: Tensor) -> float:
    """A metric that returns a plain number, computed with what vmap could not map."""
    hits = [int(row.argmax()) == t for row, t in zip(output, target.tolist(), strict=True) if t == 0]
    return sum(hits) / len(hits)


def test_the_default_is_cross_entropy_and_accuracy_of_each_member() -> None:
    objective = Objective()
    other = torch.stack([Y, Y.flip(0)])
    for y, is_shared in ((Y, True), (other, False)):
        losses, scores = (f(OUTPUTS, y, is_shared=is_shared) for f in (objective.losses, objective.scores))
        for i in range(2):
            own = y if is_shared else y[i]
            torch.testing.assert_close(losses[i], F.cross_entropy(OUTPUTS[i], own))
            assert float(scores[i]) == pytest.approx(float((OUTPUTS[i].argmax(1) == own).float().mean()))
    assert objective.is_default


@pytest.mark.parametrize("is_shared", [True, False])
def test_functions_of_the_caller_are_called_for_each_member(is_shared: bool) -> None:
    objective = Objective(loss=F.multi_margin_loss, metric=recall)
    y = Y if is_shared else torch.stack([Y, Y.flip(0)])
    losses, scores = (f(OUTPUTS, y, is_shared=is_shared) for f in (objective.losses, objective.scores))
    for i in range(2):
        own = y if is_shared else y[i]
        assert torch.equal(losses[i], F.multi_margin_loss(OUTPUTS[i], own))
        assert float(scores[i]) == recall(OUTPUTS[i], own)
    assert not objective.is_default


def test_gradients_of_members_do_not_mix() -> None:
    outputs = OUTPUTS.clone().requires_grad_()
    target = torch.randn(5, 3, generator=rng("target"))
    losses = Objective(loss=F.mse_loss, metric=recall).losses(outputs, target)
    (gradient,) = torch.autograd.grad(losses.sum(), outputs)
    torch.testing.assert_close(gradient, 2 * (OUTPUTS - target) / 15)


def test_lower_can_be_better() -> None:
    scores = torch.tensor([1.0, 2.0])
    assert torch.equal(Objective().goodness(scores), scores)
    assert torch.equal(Objective(metric=recall, lower_is_better=True).goodness(scores), -scores)
    with pytest.raises(ValueError, match=r"lower_is_better describes the metric, .* pass metric= too"):
        Objective(lower_is_better=True)


@pytest.mark.parametrize(
    ("given", "y", "words"),
    [
        (
            {},
            torch.ones(4),
            r"cross-entropy and accuracy need class numbers .*float32 of shape \[4\]; pass loss= and m",
        ),
        ({}, torch.ones(4, 2).long(), r"got torch.int64 of shape \[4, 2\]"),
        ({"loss": F.mse_loss}, torch.ones(4), r"accuracy needs class numbers .* pass metric= for"),
        ({"metric": recall}, torch.ones(4), r"cross-entropy needs class numbers .* pass loss= for"),
        ({"loss": F.mse_loss, "metric": recall}, None, "the data have no targets y"),
    ],
)
def test_targets_that_do_not_fit_are_refused(given: dict[str, Any], y: Tensor | None, words: str) -> None:
    with pytest.raises(DataError, match=words):
        Objective(**given).check_targets(y)
    Objective(loss=F.mse_loss, metric=recall).check_targets(torch.ones(4, 2))
    Objective().check_targets(Y)


def test_a_loss_without_a_gradient_is_refused_where_one_is_needed() -> None:
    outputs = OUTPUTS.clone().requires_grad_()
    detached = Objective(loss=lambda o, y: F.cross_entropy(o, y).detach(), metric=recall)
    with pytest.raises(
        ValueError, match=r"loss must return a tensor through which gradients reach the output, got a d"
    ):
        detached.losses(outputs, Y)
    with torch.no_grad():
        assert detached.losses(outputs, Y).shape == (2,)
    assert detached.losses(OUTPUTS, Y).shape == (2,)


def test_results_of_a_wrong_kind_are_refused() -> None:
    for loss, got in ((lambda o, _: o.sum(1), r"shape \[5\]"), (lambda o, _: float(o.sum()), "float")):
        with pytest.raises(ValueError, match=f"loss must return a scalar tensor, .* got {got}"):
            Objective(loss=loss).losses(OUTPUTS, Y)
    with pytest.raises(ValueError, match=r"metric must return one number, got shape \[5\]"):
        Objective(metric=lambda o, _: o.sum(1)).scores(OUTPUTS, Y)
    flat = OUTPUTS[..., 0]
    with pytest.raises(DataError, match=r"cross-entropy needs one row of logits .* returns shape \[5\]; pass loss="):
        Objective().losses(flat, Y)
    with pytest.raises(DataError, match=r"accuracy needs one row of logits .* returns shape \[5\]; pass metric="):
        Objective().scores(flat, Y)


def test_probabilities_in_place_of_logits_are_warned_of_once() -> None:
    for outputs in (OUTPUTS, OUTPUTS.log_softmax(2), OUTPUTS.softmax(2) + 0.1, OUTPUTS.sigmoid()):
        Objective().losses(outputs, Y)
    Objective(loss=F.nll_loss).losses(OUTPUTS.softmax(2), Y)
    objective = Objective()
    with pytest.warns(UserWarning, match=r"the model returns probabilities: .* return logits, without the softmax, or"):
        objective.losses(OUTPUTS.softmax(2), Y)
    objective.losses(OUTPUTS.softmax(2), Y)


class Softmaxed(torch.nn.Module):
    """A user's module that ends in a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(13, 3)

    def forward(self, x: Tensor, _edge_index: Tensor) -> Tensor:
        return self.lin(x).softmax(1)


def test_all_that_train_warn_of_probabilities() -> None:
    data = load("wine")
    split = stratified(data.y, seed=0)
    with pytest.warns(UserWarning, match="the model returns probabilities"):
        fit(Softmaxed(), data, split, seed=0, epochs=1)
    with pytest.warns(UserWarning, match="the model returns probabilities"):
        fit_batches(Softmaxed(), data, split, seed=0, batch_size=8, fanouts=(5,), epochs=1)
