import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from torch import Tensor, nn

from wtawp.analysis import LossOn, SharpnessMonitor, sharpness, sharpness_over
from wtawp.base import AnalysisError, rng
from wtawp.graphs import load, stratified
from wtawp.models import GCN
from wtawp.training import fit


class Bowl(nn.Module):
    """Loss = sum of c * (w - m)^2 over one matrix: the worst point of a ball is known."""

    def __init__(self, curvature: float, at: float) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1, bias=False).double()
        nn.init.constant_(self.layer.weight, at)
        self.curvature = curvature
        self.eval()

    def loss(self) -> Tensor:
        return self.curvature * self.layer.weight.square().sum()


class Network(nn.Module):
    """Two layers with a ReLU between, without biases: its layers can be rescaled against each other."""

    def __init__(self) -> None:
        super().__init__()
        g = rng("sharp")
        self.net = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 3, bias=False)).double()
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=g))
        self.x = torch.randn(20, 4, generator=g, dtype=torch.float64)
        self.y = torch.randint(0, 3, (20,), generator=g)
        self.eval()

    def loss(self) -> Tensor:
        return nn.functional.cross_entropy(self.net(self.x), self.y)


@pytest.mark.parametrize(("curvature", "at", "rho"), [(1.0, 2.0, 0.5), (3.0, -1.0, 0.1), (0.5, 4.0, 1.0)])
@pytest.mark.parametrize("radius", ["layer", "global", "adaptive"])
def test_in_a_bowl_it_is_the_height_of_the_far_rim(curvature: float, at: float, rho: float, radius: str) -> None:
    model = Bowl(curvature, at)
    far = abs(at) + rho if radius == "global" else abs(at) * (1 + rho)
    expected = curvature * (far**2 - at**2)
    assert sharpness(model, model.loss, rho=rho, radius=radius) == pytest.approx(expected, rel=1e-9)


class Quadratic(nn.Module):
    """Loss = <b, w> + w^T H w / 2 over one matrix of six weights."""

    def __init__(self, slope: float) -> None:
        super().__init__()
        g = rng("quadratic")
        self.layer = nn.Linear(6, 1, bias=False).double()
        half = torch.randn(6, 6, generator=g, dtype=torch.float64)
        self.hessian, self.b = half @ half.T, slope * torch.randn(6, generator=g, dtype=torch.float64)
        nn.init.zeros_(self.layer.weight)
        self.eval()

    def loss(self) -> Tensor:
        w = self.layer.weight[0]
        return self.b @ w + w @ self.hessian @ w / 2


def highest_in_ball(hessian: np.ndarray, b: np.ndarray, rho: float) -> float:
    """The trust-region maximum: (mu I - H) d = b on the rim, for the mu above all eigenvalues that gives |d| = rho."""
    values, vectors = np.linalg.eigh(hessian)
    c, top = vectors.T @ b, values[-1]
    if not np.abs(b).max():
        return rho**2 * top / 2
    mu = brentq(lambda m: np.linalg.norm(c / (m - values)) - rho, top + 1e-13, top + np.linalg.norm(b) / rho + 1.0)
    d = c / (mu - values)
    return float(c @ d + (values * d**2).sum() / 2)


@pytest.mark.parametrize("slope", [0.0, 1e-3, 1.0, 100.0])
@pytest.mark.parametrize("rho", [0.1, 3.0])
def test_of_a_quadratic_it_is_the_trust_region_maximum_also_at_the_minimum_itself(slope: float, rho: float) -> None:
    model = Quadratic(slope)
    expected = highest_in_ball(model.hessian.numpy(), model.b.numpy(), rho)
    assert sharpness(model, model.loss, rho=rho, radius="global") == pytest.approx(expected, rel=1e-6)


def test_a_loss_that_is_higher_inside_than_on_the_rim_does_not_fall_with_rho() -> None:
    model = Bowl(1.0, 1.0)

    def loss() -> Tensor:  # a hill of height 1 at 1.2; a long first step lands beyond it
        return (-200 * (model.layer.weight - 1.2).square()).exp().sum()

    rhos = [0.05, 0.2, 0.25, 5.0]
    values = sharpness_over(model, loss, rhos, steps=1)
    alone = [sharpness(model, loss, rho=rho, steps=1) for rho in rhos]
    assert alone[-1] < max(alone)
    assert values == [max(alone[: i + 1]) for i in range(4)]


def test_the_monitor_measures_every_tenth_epoch_with_one_radius() -> None:
    data = load("wine")
    split = stratified(data.y, seed=0)
    monitor = SharpnessMonitor(data, split.train, rhos={"layer": 0.1, "global": 0.5}, steps=5)
    truth: list[float] = []

    def observe(model: nn.Module, epoch: int) -> None:
        monitor(model, epoch)
        if epoch in (0, 10):
            own = GCN(13, 3, hidden=(4,), generator=rng("init")).eval()
            own.load_state_dict(model.state_dict())
            truth.append(sharpness(own, LossOn(own, data, split.train), rho=0.1, steps=5))

    fit(GCN(13, 3, hidden=(4,), generator=rng("init")), data, split, seed=0, epochs=12, observe=observe)
    assert monitor.history["sharpness_layer"] == pytest.approx(truth)
    assert len(monitor.history["sharpness_global"]) == 2


@pytest.mark.parametrize("radius", ["layer", "global", "adaptive"])
def test_of_a_loss_that_is_linear_in_the_weights_it_is_the_dual_norm_of_the_gradient(radius: str) -> None:
    model, rho = Network(), 0.3
    slopes = [torch.randn(p.shape, generator=rng("slope", i)).double() for i, p in enumerate(model.parameters())]
    theta = [p.detach() for p in model.parameters()]
    if radius == "layer":
        expected = sum(rho * w.norm() * s.norm() for w, s in zip(theta, slopes, strict=True))
    else:
        unit = [w.abs() if radius == "adaptive" else torch.ones_like(w) for w in theta]
        expected = rho * torch.stack([(u * s).norm() for u, s in zip(unit, slopes, strict=True)]).norm()

    def loss() -> Tensor:
        return sum(((p * s).sum() for p, s in zip(model.parameters(), slopes, strict=True)), torch.zeros(()))

    assert sharpness(model, loss, rho=rho, radius=radius) == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize("radius", ["layer", "global", "adaptive"])
def test_it_never_falls_with_rho_and_is_never_negative(radius: str) -> None:
    model = Network()
    rhos = [0.0, 0.01, 0.05, 0.2, 0.5, 2.0, 5.0]
    values = sharpness_over(model, model.loss, rhos, radius=radius, steps=3)
    assert values == sorted(values)
    assert values[0] == 0
    assert sharpness_over(model, model.loss, rhos[::-1], radius=radius, steps=3) == values[::-1]
    falling = -1.0  # whichever way one goes from the top of a hill the loss falls
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    hill = sharpness(model, lambda: falling * sum(p.square().sum() for p in model.parameters()), rho=1.0, radius=radius)
    assert hill == 0


def test_it_leaves_the_weights_alone_and_finds_more_than_chance() -> None:
    model, g = Network(), rng("chance")
    before = [p.detach().clone() for p in model.parameters()]
    value = sharpness(model, model.loss, rho=0.2)
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    start = float(model.loss().detach())
    for _ in range(200):
        with torch.no_grad():
            for p in model.parameters():
                d = torch.randn(p.shape, generator=g, dtype=torch.float64)
                p.add_(d * 0.2 * p.norm() / d.norm())
            rise = float(model.loss()) - start
            for p, b in zip(model.parameters(), before, strict=True):
                p.copy_(b)
        assert rise <= value


def test_rescaling_two_layers_against_each_other_changes_only_the_global_version() -> None:
    def values(factor: float) -> dict[str, float]:
        model = Network()
        with torch.no_grad():
            model.net[0].weight.mul_(factor)
            model.net[2].weight.div_(factor)
        return {r: sharpness(model, model.loss, rho=0.3, radius=r) for r in ("layer", "adaptive", "global")}

    one, other = values(1.0), values(8.0)
    assert other["layer"] == pytest.approx(one["layer"], rel=1e-9)
    assert other["adaptive"] == pytest.approx(one["adaptive"], rel=1e-9)
    assert abs(other["global"] - one["global"]) > 0.1 * one["global"]


def test_infinite_rises_are_infinite_and_bad_input_is_refused() -> None:
    model = Bowl(1.0, 1.0)
    assert sharpness(model, lambda: (2 - model.layer.weight).log().neg().sum(), rho=1.5) == math.inf
    with pytest.raises(AnalysisError, match="nan before its weights move"):
        sharpness(model, lambda: (model.layer.weight - 2).log().sum(), rho=0.1)
    with pytest.raises(ValueError, match="radius must be one of"):
        sharpness(model, model.loss, rho=0.1, radius="layers")
    with pytest.raises(ValueError, match="rho finite and >= 0"):
        sharpness(model, model.loss, rho=-0.1)
    with pytest.raises(ValueError, match="in training mode"):
        sharpness(model.train(), model.loss, rho=0.1)
