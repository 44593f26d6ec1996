"""Graphs and victims that the tests of attacks share."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.base import rng
from wtawp.models import GCN

SIZE, CLASSES = 12, 3


@pytest.fixture(scope="session")
def small() -> Callable[..., Data]:
    """Makes random graphs of 12 nodes in three classes, with four features."""

    def make(seed: int = 0, size: int = SIZE) -> Data:
        g = rng("pgd", seed)
        upper = (torch.rand(size, size, generator=g) > 0.7).triu(1).long()
        x = torch.randn(size, 4, generator=g, dtype=torch.float64)
        y = torch.arange(size) % CLASSES
        return Data(x=x, y=y, edge_index=(upper + upper.T).nonzero().T.contiguous())

    return make


@pytest.fixture(scope="session")
def small_victim() -> Callable[..., GCN]:
    """Makes GCNs for the small graphs, with random weights."""

    def make(seed: int = 0, hidden: tuple[int, ...] = (5,)) -> GCN:
        return GCN(4, CLASSES, hidden=hidden, generator=rng("victim", seed)).double()

    return make


class BlackBox(nn.Module):
    """A victim that shows nothing but its forward pass."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = self.inner(x, edge_index, edge_weight)
        return out


class Blind(nn.Module):
    """A victim that ignores the graph."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:  # noqa: ARG002
        return x


class Weightless(nn.Module):
    """A victim that takes no edge weights."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # noqa: ARG002
        return x


class Broken(nn.Module):
    """A victim whose logits are not finite."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:  # noqa: ARG002
        return x / 0


@pytest.fixture(scope="session")
def black_box() -> type[BlackBox]:
    """Wraps a victim so that it shows nothing but its forward pass."""
    return BlackBox


@pytest.fixture
def blind() -> Blind:
    """A victim that ignores the graph."""
    return Blind()


@pytest.fixture
def weightless() -> Weightless:
    """A victim that takes no edge weights."""
    return Weightless()


@pytest.fixture
def broken() -> Broken:
    """A victim whose logits are not finite."""
    return Broken()
