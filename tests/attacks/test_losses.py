import math
from collections.abc import Callable
from importlib import import_module

import pytest
import torch
from torch_geometric.data import Data

from wtawp.attacks.gradient import FactoredVictims
from wtawp.attacks.losses import LOSSES, loss_spec, margins, misclassified
from wtawp.attacks.relaxed import RelaxedFlips, target_of
from wtawp.base import rng
from wtawp.models import GCN

PYG = import_module("wtawp.attacks.prbcd_attack").PRBCDAttack  # imported there without PyG's warning
LOGITS = 2 * torch.randn(2, 6, 4, generator=rng("logits"), dtype=torch.float64)
LABELS = torch.randint(4, (2, 6), generator=rng("labels"))
SHARE = torch.tensor([[1 / 6] * 6, [1 / 4] * 4 + [0.0] * 2], dtype=torch.float64)  # the second has two nodes less


def by_hand(name: str, rows: list[list[float]], labels: list[int]) -> float:
    """The loss of one copy, node by node."""
    values, correct = [], []
    for row, label in zip(rows, labels, strict=True):
        whole = sum(math.exp(v) for v in row)
        p = [math.exp(v) / whole for v in row]
        other = max(v for c, v in enumerate(row) if c != label)
        kinds = {
            "ce": -math.log(p[label]),
            "masked_ce": -math.log(p[label]),
            "margin": min(0.0, other - row[label]),
            "prob_margin": max(v for c, v in enumerate(p) if c != label) - p[label],
            "tanh_margin": math.tanh(other - row[label]),  # a difference of logits is one of log-probabilities
        }
        values.append(kinds[name])
        correct.append(row[label] > other)
    if name == "masked_ce" and any(correct):
        values = [v for v, is_correct in zip(values, correct, strict=True) if is_correct]
    return sum(values) / len(values)


@pytest.mark.parametrize("name", LOSSES)
def test_each_loss_is_its_definition_and_padding_does_not_count(name: str) -> None:
    found = loss_spec(name).value(LOGITS, LABELS, SHARE)
    for b, count in enumerate((6, 4)):
        expected = by_hand(name, LOGITS[b, :count].tolist(), LABELS[b, :count].tolist())
        assert float(found[b]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_the_derivative_by_logits_is_that_of_finite_differences(name: str) -> None:
    logits = LOGITS.clone().requires_grad_()
    value = loss_spec(name).value
    assert torch.autograd.gradcheck(lambda z: value(z, LABELS, SHARE), logits)
    (gradient,) = torch.autograd.grad(value(logits, LABELS, SHARE).sum(), logits)
    assert not gradient[1, 4:].any()


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("masked_ce", PYG._masked_cross_entropy),
        ("prob_margin", PYG._probability_margin_loss),
        ("tanh_margin", PYG._tanh_margin_loss),
    ],
)
def test_values_and_gradients_are_pygs(name: str, theirs: Callable[..., torch.Tensor]) -> None:
    logits = LOGITS[0].float().requires_grad_()
    log_probabilities = logits.log_softmax(1)  # what PyG's losses expect
    ours = loss_spec(name).value(log_probabilities[None], LABELS[:1], SHARE[:1].float())[0]
    expected = theirs(log_probabilities, LABELS[0])
    assert torch.allclose(ours, expected, rtol=1e-6)
    gradients = [torch.autograd.grad(each, logits, retain_graph=True)[0] for each in (ours, expected)]
    assert torch.allclose(*gradients, rtol=1e-5, atol=1e-8)


def test_only_the_plain_cross_entropy_pulls_most_at_nodes_that_are_lost() -> None:
    pulls = {}
    for name in LOSSES:
        logits = torch.tensor([[[0.0, 4.0], [1.0, 0.0]]], dtype=torch.float64, requires_grad=True)
        value = loss_spec(name).value(logits, torch.tensor([[0, 0]]), torch.full((1, 2), 0.5, dtype=torch.float64))
        (gradient,) = torch.autograd.grad(value.sum(), logits)
        pulls[name] = float(gradient[0, 0].abs().max() / gradient[0, 1].abs().max())  # lost node by correct one
    assert {name for name, pull in pulls.items() if pull > 0.1} == {"ce"}


def test_where_every_node_is_lost_the_masked_loss_is_that_of_all() -> None:
    wrong = LOGITS.argmin(2)
    masked, whole = (loss_spec(name).value(LOGITS, wrong, SHARE) for name in ("masked_ce", "ce"))
    assert torch.allclose(masked, whole)


@pytest.mark.parametrize("name", LOSSES)
def test_factored_gradients_are_those_of_finite_differences(name: str, small: Callable[..., Data]) -> None:
    data = small(2)
    model = GCN(4, 3, hidden=(5,), generator=rng("victim", 2)).double().eval()
    target = target_of(data, [torch.arange(12)], [data.y], name)  # type: ignore[arg-type]
    attacked = FactoredVictims(target, [model])
    codes = torch.tensor([i * 12 + j for i in range(12) for j in range(i + 1, 12)])
    amounts = 0.2 + 0.5 * torch.rand(len(codes), generator=rng("amounts"), dtype=torch.float64)
    found = attacked.gradient(RelaxedFlips(codes, amounts)).at(codes)
    for k in range(0, len(codes), 7):
        step = torch.zeros_like(amounts)
        step[k] = 1e-6
        up, down = (float(attacked.losses(RelaxedFlips(codes, amounts + s))[0]) for s in (step, -step))
        assert float(found[k]) == pytest.approx((up - down) / 2e-6, abs=1e-7)


def test_margins_and_lost_nodes_are_counted() -> None:
    scores = torch.tensor([[[3.0, 1, 0], [0, 2, 5], [1, 4, 0]]])
    labels = torch.tensor([[0, 1, 0]])
    assert margins(scores, labels).tolist() == [[-2, 3, 3]]
    assert misclassified(scores, labels, torch.tensor([[0.5, 0.5, 0.0]])).tolist() == [0.5]


def test_an_unknown_loss_is_refused() -> None:
    with pytest.raises(ValueError, match=r"loss must be one of 'ce', .*, got 'cw'"):
        loss_spec("cw")
