"""A model in which two layers share a weight."""

from torch import Tensor, nn


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.middle, self.out = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.out.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.middle(self.embed(x)))
