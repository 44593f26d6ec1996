"""A tiny graph, a model as users write them, and one whole audit of it that all tests of this folder share."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from wtawp.base import rng
from wtawp.experiments.audit import runner
from wtawp.experiments.audit.findings import Audit
from wtawp.experiments.audit.sizes import Sizes

SMALL = Sizes(
    splits=2,
    poisoned_splits=2,
    budgets=(0.05, 0.1),
    searched_budgets=(0.05,),
    attack_seconds=0.0,
    certified=("edges",),
    votes=20,
)
MODULE = '''
"""Models as users write them."""
import torch
from torch import nn
from torch_geometric.nn import GCNConv, SAGEConv


class Weighted(nn.Module):
    """Takes weights of edges, so that every attack can follow its gradient."""

    def __init__(self, d_in, d_out):
        super().__init__()
        self.first, self.last = GCNConv(d_in, 8), GCNConv(8, d_out)

    def forward(self, x, edge_index, edge_weight=None):
        return self.last(self.first(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


class Unweighted(nn.Module):
    """Takes no weights of edges."""

    def __init__(self, d_in, d_out):
        super().__init__()
        self.first, self.last = SAGEConv(d_in, 8), SAGEConv(8, d_out)

    def forward(self, x, edge_index):
        return self.last(self.first(x, edge_index).relu(), edge_index)


class Cached(nn.Module):
    """Keeps the normalized graph of its first call, and cannot be asked about another one."""

    def __init__(self, d_in, d_out):
        super().__init__()
        self.first, self.last = GCNConv(d_in, 8, cached=True), GCNConv(8, d_out, cached=True)

    def forward(self, x, edge_index):
        return self.last(self.first(x, edge_index).relu(), edge_index)


class Detached(Unweighted):
    """Has no gradient by its inputs either."""

    def forward(self, x, edge_index):
        return super().forward(x.detach(), edge_index)
'''


@pytest.fixture(scope="session")
def graph_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """48 nodes of three classes on a ring with chords, binary features that hint at the class; no masks."""
    n, g = 48, rng("audit", "graph")
    y = torch.arange(n) % 3
    ends = torch.arange(n)
    pairs = torch.cat([torch.stack([ends, (ends + 3) % n]), torch.stack([ends, (ends + 9) % n])], dim=1)
    x = ((torch.rand(n, 9, generator=g) < 0.15) | (torch.arange(9) % 3 == y[:, None])).float()
    path = tmp_path_factory.mktemp("graph") / "ring.pt"
    torch.save({"x": x, "y": y, "edge_index": torch.cat([pairs, pairs.flip(0)], dim=1)}, path)
    return path


@pytest.fixture(scope="session")
def user_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a module of a user."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "audited_models.py").write_text(MODULE, encoding="utf-8")
    sys.path.insert(0, str(folder))
    yield "audited_models"
    sys.path.remove(str(folder))
    sys.modules.pop("audited_models", None)


@pytest.fixture(scope="session")
def small_audit(
    graph_file: Path, user_module: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Audit, Path]]:
    """An audit with every section, at sizes that mean nothing, and the folder of its store."""
    folder = tmp_path_factory.mktemp("audit")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WTAWP_HOME", str(folder))
        patch.setattr(runner, "fit_sizes", lambda *_, **__: SMALL)
        yield runner.audit(f"{user_module}:Weighted", graph_file, minutes=1.0, epochs=5, workers=1), folder
