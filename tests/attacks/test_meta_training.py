"""The training of the surrogate and its gradient, against autograd through the same training."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from wtawp.attacks.meta_training import Descent, adam_trajectory
from wtawp.base import rng

ROWS, WORDS, HIDDEN, CLASSES, STEPS = 6, 5, 3, 4, 7


def inputs(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """M, targets, shares and first weights of two surrogates, the second one with two rows that do not count."""
    g = rng("meta training", seed)
    rows, first, second = (
        torch.randn(2, *shape, generator=g, dtype=torch.float64)
        for shape in ((ROWS, WORDS), (WORDS, HIDDEN), (HIDDEN, CLASSES))
    )
    targets = F.one_hot(torch.arange(ROWS) % CLASSES, CLASSES).double().expand(2, -1, -1)
    share = torch.full((2, ROWS, 1), 1 / ROWS, dtype=torch.float64)
    share[1] = torch.tensor([0.25, 0.25, 0.25, 0.25, 0, 0], dtype=torch.float64)[:, None]
    return rows, targets, share, first, second


def training_loss(rows: Tensor, targets: Tensor, share: Tensor, weights: Tensor) -> Tensor:
    return -(share * targets * (rows @ weights).log_softmax(2)).sum()


def test_descent_and_its_gradient_are_those_of_autograd() -> None:
    rows, targets, share, first, second = inputs(0)
    to_weights = torch.randn(2, WORDS, CLASSES, generator=rng("to weights"), dtype=torch.float64)
    rows.requires_grad_()
    w1, w2 = first.clone().requires_grad_(), second.clone().requires_grad_()
    v1, v2 = torch.zeros_like(w1), torch.zeros_like(w2)
    for _ in range(STEPS):
        loss = training_loss(rows, targets, share, w1 @ w2)
        g1, g2 = torch.autograd.grad(loss, (w1, w2), create_graph=True)
        v1, v2 = 0.9 * v1 + g1, 0.9 * v2 + g2
        w1, w2 = w1 - 0.1 * v1, w2 - 0.1 * v2
    # The weights' own dependence on M goes through the recursion alone, so `to_weights` is held constant.
    (expected,) = torch.autograd.grad((to_weights * (w1 @ w2)).sum(), rows)
    with torch.no_grad():
        training = Descent(rows, targets, share, first, second, STEPS)
        gradient = training.gradient(to_weights)
    assert torch.allclose(training.first, w1, atol=1e-12)
    assert torch.allclose(training.second, w2, atol=1e-12)
    assert torch.allclose(gradient, expected, atol=1e-10)
    assert float(expected.abs().max()) > 1e-3


@pytest.mark.parametrize("seed", [0, 1])
def test_the_trajectory_of_adam_is_that_of_each_surrogate_alone(seed: int) -> None:
    rows, targets, share, first, second = inputs(seed)
    start = first.clone(), second.clone()
    path = adam_trajectory(rows, targets, share, first, second, STEPS)
    assert path.shape == (2, WORDS, STEPS, CLASSES)
    for b in range(2):
        w1, w2 = (w[b].clone().requires_grad_() for w in start)
        optimizer = torch.optim.Adam([w1, w2], lr=0.01)
        for step in range(STEPS):
            assert torch.allclose(path[b, :, step], w1 @ w2, atol=1e-12)
            optimizer.zero_grad()
            training_loss(rows[b, None], targets[b, None], share[b, None], (w1 @ w2)[None]).backward()
            optimizer.step()
