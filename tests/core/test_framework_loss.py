import pytest
import torch
from torch import nn

from wtawp.core import WTAWP
from wtawp.core.autograd_graph import nodes_of
from wtawp.core.framework_loss import WithGradients, refuse_in_loss, scaled_backward


def test_a_value_with_gradients_hands_them_to_its_leaves_times_the_factor_that_arrives() -> None:
    leaves = [torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)]
    gradients = [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0, 5.0])]
    value = WithGradients.apply(torch.tensor(7.0), gradients, *leaves)
    assert value == 7
    (value * 10).backward()
    assert [leaf.grad.tolist() for leaf in leaves] == [[10.0, 20.0], [30.0, 40.0, 50.0]]  # type: ignore[union-attr]


def test_a_scaled_loss_has_scaled_gradients() -> None:
    leaf = torch.tensor(2.0, requires_grad=True)
    scaled_backward(leaf**2, 8.0)
    assert leaf.grad == 32


def test_half_precision_needs_a_scale() -> None:
    layer = nn.Linear(2, 2, dtype=torch.float16)
    loss = layer(torch.ones(1, 2, dtype=torch.float16)).sum()
    with pytest.raises(ValueError, match=r"gradients underflow in float16: pass awp.loss\(fn, scale="):
        refuse_in_loss(None, nodes_of(loss))
    refuse_in_loss(1024.0, nodes_of(loss))


def test_hooks_of_a_foreign_parameter_are_refused() -> None:
    foreign = torch.ones(2, requires_grad=True)
    foreign.register_hook(lambda gradient: gradient)
    with pytest.raises(ValueError, match="a parameter that is not part of the model has hooks"):
        refuse_in_loss(None, nodes_of((foreign**2).sum()))


def test_the_objective_can_be_differentiated_once() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    objective = WTAWP(model, rho=0.5, lam=0.5).loss(lambda: model(torch.ones(2, 3)).square().sum())
    objective.backward(retain_graph=True)
    with pytest.raises(ValueError, match=r"differentiated twice, .* call awp.loss\(fn\) for each backward pass"):
        objective.backward()
