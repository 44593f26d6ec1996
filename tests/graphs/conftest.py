import pytest
import torch
from torch import Tensor

from wtawp.base import rng
from wtawp.graphs import registry


@pytest.fixture
def random_matrix() -> Tensor:
    """A sparse 7 x 5 matrix, written out."""
    g = rng("matrix", 0)
    return torch.randn(7, 5, generator=g, dtype=torch.float64) * (torch.rand(7, 5, generator=g) < 0.4)


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data sets that the test registers are forgotten after it."""
    monkeypatch.setattr(registry, "_DATASETS", dict(registry._DATASETS))
