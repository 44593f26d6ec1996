import torch
from torch import nn

from wtawp.base import rng
from wtawp.core import select
from wtawp.models import MLP


def test_it_is_a_stack_of_linear_layers_and_ignores_edges() -> None:
    model = MLP(2, 2, hidden=(5, 4), dropout=0.0, generator=rng("init"))
    x = torch.randn(7, 2, generator=rng("x"))
    stack: list[nn.Module] = []
    for lin in model.lins:
        same = nn.Linear(*lin.weight.shape)
        same.load_state_dict({"weight": lin.weight.T, "bias": lin.bias})
        stack += [same, nn.ReLU()]
    torch.testing.assert_close(model(x), nn.Sequential(*stack[:-1])(x))
    assert torch.equal(model(x), model(x, torch.tensor([[0], [1]])))


def test_linear_means_without_activation() -> None:
    model = MLP(2, 2, hidden=(100, 100), dropout=0.0, linear=True, generator=rng("init"))
    x = torch.randn(7, 2, generator=rng("x"))
    torch.testing.assert_close(model(3 * x) - model(0 * x), 3 * (model(x) - model(0 * x)), rtol=1e-4, atol=1e-5)
    assert select(model) == ("lins.0.weight", "lins.1.weight")
