import pytest
import torch
from torch import Tensor, nn

from wtawp.analysis import (
    LossOn,
    adversarial_direction,
    direction_between,
    loss_along,
    loss_along_random_directions,
    losses_at,
    losses_on_plane,
    num_non_finite,
    random_direction,
)
from wtawp.base import rng
from wtawp.graphs import load
from wtawp.models import GAT, GCN

DISTANCES = [-1.0, -0.5, 0.0, 0.5, 1.0]


class Bowl(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.ones(3, 2).double()), nn.Parameter(torch.full((4,), 2.0).double())
        self.eval()

    def loss(self) -> Tensor:
        return (self.a - 1).square().sum() + (self.b - 2).square().sum()


class Layers(nn.Module):
    """Two linear layers, whose loss is quadratic in each."""

    def __init__(self) -> None:
        super().__init__()
        g = rng("layers")
        self.one, self.two = nn.Linear(3, 4).double(), nn.Linear(4, 2).double()
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=g))
        self.x = torch.randn(5, 3, generator=g, dtype=torch.float64)
        self.eval()

    def loss(self) -> Tensor:
        return self.two(self.one(self.x)).square().mean()


@pytest.mark.parametrize(("scale", "square"), [("unit", 1.0), ("layer", 6.0 + 16.0), ("filter", 6.0 + 16.0)])
def test_around_the_bottom_of_a_bowl_the_loss_is_the_squared_length_of_the_step(scale: str, square: float) -> None:
    model = Bowl()
    losses = loss_along_random_directions(model, model.loss, DISTANCES, seed=0, num_directions=4, scale=scale)
    expected = torch.tensor([t * t * square for t in DISTANCES], dtype=torch.float64).expand(4, -1)
    torch.testing.assert_close(losses, expected, rtol=1e-9, atol=1e-9)
    assert torch.equal(model.a, torch.ones(3, 2).double())


def test_on_a_plane_a_quadratic_loss_is_that_of_each_axis() -> None:
    model = Bowl()
    u, v = {"a": torch.ones(3, 2)}, {"b": torch.tensor([3.0, 0.0, 0.0, 0.0])}  # squared lengths 6 and 9; in float32
    found = losses_on_plane(model, model.loss, u, v, [0.0, 1.0, 2.0], [0.0, 10.0])
    expected = torch.tensor([[6 * s * s + 9 * t * t for t in (0.0, 10.0)] for s in (0.0, 1.0, 2.0)])
    torch.testing.assert_close(found, expected.double(), rtol=1e-9, atol=1e-9)


def test_of_a_layer_the_whole_is_as_long_as_its_weights_and_no_filter_is() -> None:
    model = Layers()
    u = random_direction(model, seed=0, scale="layer")
    weight, found = model.one.weight.detach(), u["one.weight"]
    torch.testing.assert_close(found.norm(), weight.norm())
    assert not torch.allclose(found.norm(dim=1), weight.norm(dim=1), rtol=0.05)


def test_the_seed_names_the_lines() -> None:
    model = Bowl()
    with torch.no_grad():
        model.a.add_(1.0)  # off the bottom, where lines differ
    one, two, other = (
        loss_along_random_directions(model, model.loss, DISTANCES, seed=s, num_directions=2) for s in (0, 0, 1)
    )
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_filters_are_rows_of_torchs_matrices_and_columns_of_ours() -> None:
    model = Layers()
    u = random_direction(model, seed=0, scale="filter")
    torch.testing.assert_close(u["one.weight"].norm(dim=1), model.one.weight.detach().norm(dim=1))
    torch.testing.assert_close(u["one.bias"].norm(), model.one.bias.detach().norm())
    ours = GCN(6, 3, generator=rng("init"))
    v = random_direction(ours, seed=0, scale="filter")
    torch.testing.assert_close(v["convs.0.weight"].norm(dim=0), ours.convs[0].weight.detach().norm(dim=0))
    attention = GAT(6, 3, width=4, heads=2, generator=rng("init"))
    w = random_direction(attention, seed=0, scale="filter")["convs.0.att_src"]  # a row for each head
    torch.testing.assert_close(w.norm(dim=1), attention.convs[0].att_src.detach().norm(dim=1))
    with pytest.raises(ValueError, match="scale must be one of"):
        random_direction(model, seed=0, scale="layers")


@pytest.mark.parametrize("count", [1, 7])
def test_a_plane_of_a_graph_network_as_one_ensemble_is_that_of_moving_the_model_itself(count: int) -> None:
    data = load("karate")
    model = GCN(34, 4, hidden=(5,), generator=rng("init")).eval()
    loss = LossOn(model, data, torch.arange(0, 30, 3))
    u, v = (random_direction(model, seed=0, number=i, scale="filter") for i in (0, 1))
    ticks = torch.linspace(-1, 1, count).tolist()
    fast = losses_on_plane(model, loss, u, v, ticks, [0.0, 0.3])
    slow = losses_on_plane(model, lambda: loss(), u, v, ticks, [0.0, 0.3])
    torch.testing.assert_close(fast, slow, rtol=1e-5, atol=1e-6)
    assert fast.shape == (count, 2)


def test_between_two_solutions_and_along_the_adversarial_direction() -> None:
    here, there = Layers(), Layers()
    with torch.no_grad():
        there.one.weight.mul_(0.3)
    line = loss_along(here, here.loss, direction_between(here, there), [0.0, 1.0])
    torch.testing.assert_close(line, torch.stack([here.loss(), there.loss()]).detach())
    u = adversarial_direction(here, here.loss)
    assert list(u) == ["one.weight"]
    torch.testing.assert_close(u["one.weight"].norm(), here.one.weight.detach().norm())
    (slope,) = torch.autograd.grad(here.loss(), here.one.weight)
    torch.testing.assert_close(u["one.weight"] / u["one.weight"].norm(), slope / slope.norm())
    low, here_now, high = loss_along(here, here.loss, u, [-0.1, 0.0, 0.1]).tolist()
    assert low < here_now < high


def test_losses_that_are_not_finite_stay_and_are_counted() -> None:
    model = Bowl()

    def loss() -> Tensor:
        return model.a.sum().log()  # no number where the sum is negative, infinite where it is 0

    u = {"a": torch.full((3, 2), 1.0, dtype=torch.float64)}
    losses = loss_along(model, loss, u, [-2.0, -1.0, 0.0])
    assert losses.isnan().tolist() == [True, False, False]
    assert num_non_finite(losses) == 2


def test_what_does_not_fit_is_refused() -> None:
    model = Layers()
    with pytest.raises(ValueError, match=r"direction 0 has shape \[2, 3\] at one.weight, the parameter \[4, 3\]"):
        loss_along(model, model.loss, {"one.weight": torch.ones(2, 3)}, [0.0])
    with pytest.raises(ValueError, match="moves 'three', which is no trainable parameter"):
        loss_along(model, model.loss, {"three": torch.ones(2)}, [0.0])
    with pytest.raises(ValueError, match=r"coordinates must be \[k, 1\]"):
        losses_at(model, model.loss, [{"one.bias": torch.ones(4)}], torch.zeros(3, 2))
    with pytest.raises(ValueError, match="no parameter 'one"):
        direction_between(model, Bowl())
    with pytest.raises(ValueError, match="the directions move no parameter; they may move"):
        loss_along(model, model.loss, {}, [0.0])
    with pytest.raises(ValueError, match="num_directions must be >= 1"):
        loss_along_random_directions(model, model.loss, [0.0], seed=0, num_directions=0)
    with pytest.raises(ValueError, match="in training mode"):
        loss_along(model.train(), model.loss, {}, [0.0])
