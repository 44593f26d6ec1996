import pytest
import torch
from torch import Tensor, nn

from wtawp.analysis import sharpness
from wtawp.base import rng


class Bowl(nn.Module):
    """Loss = sum of c * (w - m)^2 over one matrix: the worst point of a ball is known."""

    def __init__(self, curvature: float, at: float) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1, bias=False).double()
        nn.init.constant_(self.layer.weight, at)
        self.curvature = curvature

    def loss(self) -> Tensor:
        return self.curvature * self.layer.weight.square().sum()


@pytest.mark.parametrize(("curvature", "at", "rho"), [(1.0, 2.0, 0.5), (3.0, -1.0, 0.1), (0.5, 4.0, 1.0)])
def test_in_a_bowl_it_is_the_height_of_the_far_rim(curvature: float, at: float, rho: float) -> None:
    model = Bowl(curvature, at)
    expected = curvature * ((abs(at) * (1 + rho)) ** 2 - at**2)
    assert sharpness(model, model.loss, rho=rho) == pytest.approx(expected, rel=1e-9)


def test_it_rises_with_rho_leaves_the_weights_alone_and_finds_more_than_chance() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    g = rng("sharp")
    x, y = torch.randn(20, 4, generator=g, dtype=torch.float64), torch.randint(0, 3, (20,), generator=g)
    before = [p.detach().clone() for p in model.parameters()]

    def loss() -> Tensor:
        return nn.functional.cross_entropy(model(x), y)

    values = [sharpness(model, loss, rho=rho) for rho in (0.0, 0.05, 0.2, 0.5)]
    assert values == sorted(values)
    assert values[0] == 0
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    # no random point of the same ball is worse than what the climb found
    start = float(loss().detach())
    for _ in range(200):
        with torch.no_grad():
            for i in (0, 2):
                d = torch.randn(model[i].weight.shape, generator=g, dtype=torch.float64)
                model[i].weight.add_(d * 0.2 * model[i].weight.norm() / d.norm())
            rise = float(loss()) - start
            for p, b in zip(model.parameters(), before, strict=True):
                p.copy_(b)
        assert rise <= values[2]
