import pytest
import torch
from torch import Tensor, nn

from wtawp.analysis import loss_along_random_directions

DISTANCES = [-1.0, -0.5, 0.0, 0.5, 1.0]


class Bowl(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.ones(3, 2).double()), nn.Parameter(torch.full((4,), 2.0).double())

    def loss(self) -> Tensor:
        return (self.a - 1).square().sum() + (self.b - 2).square().sum()


@pytest.mark.parametrize(("scale", "square"), [("unit", 1.0), ("layer", 6.0 + 16.0)])
def test_around_the_bottom_of_a_bowl_the_loss_is_the_squared_length_of_the_step(scale: str, square: float) -> None:
    model = Bowl()
    losses = loss_along_random_directions(model, model.loss, DISTANCES, seed=0, num_directions=4, scale=scale)
    expected = torch.tensor([t * t * square for t in DISTANCES]).expand(4, -1)
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-9)
    assert torch.equal(model.a, torch.ones(3, 2).double())


def test_the_seed_names_the_lines() -> None:
    model = Bowl()
    with torch.no_grad():
        model.a.add_(1.0)  # off the bottom, where lines differ
    one, two, other = (
        loss_along_random_directions(model, model.loss, DISTANCES, seed=s, num_directions=2) for s in (0, 0, 1)
    )
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
