from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data

from wtawp.base import DataError, WtawpError, rng
from wtawp.graphs import NeighbourLists, citation
from wtawp.models import GAT, GCN, GIN, MLP, PPNP, GraphSAGE
from wtawp.training import compute_logits, inference

DATA = citation(seed=0, num_nodes=90, num_words=6)
Build = Callable[[], nn.Module]
LAYERED: dict[str, Build] = {
    "our GCN": lambda: GCN(6, 7, hidden=(8, 8), generator=rng("init")),
    "our GraphSAGE": lambda: GraphSAGE(6, 7, hidden=(8,), generator=rng("init")),
    "our GAT": lambda: GAT(6, 7, generator=rng("init")),
    "our GIN": lambda: GIN(6, 7, generator=rng("init")),
    "PyG's GCN": lambda: pyg.GCN(6, 8, 3, 7),
    "PyG's GraphSAGE": lambda: pyg.GraphSAGE(6, 8, 2, 7, norm="batch_norm", act="elu", act_first=True),
    "PyG's GAT": lambda: pyg.GAT(6, 8, 2, 7, heads=2, jk="last"),
    "one layer": lambda: pyg.GCN(6, 7, 1),
}
WHOLE: dict[str, Build] = {
    "our MLP": lambda: MLP(6, 7, generator=rng("init")),
    "all layers joined": lambda: pyg.GCN(6, 8, 2, 7, jk="cat"),
}


def seeded(build: Build) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build()


@pytest.mark.parametrize("name", [*LAYERED, *WHOLE])
@pytest.mark.parametrize("max_edges", [1, 40, 1 << 20])
def test_logits_are_those_of_the_whole_graph(name: str, max_edges: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "ROWS", 16)
    model = seeded({**LAYERED, **WHOLE}[name])
    with torch.no_grad():
        expected = model.eval()(DATA.x, DATA.edge_index)
    model.train()
    hops = 2 if name == "all layers joined" else None
    nodes = torch.randperm(90, generator=rng("nodes"))[:20]
    found = compute_logits(model, DATA, nodes, num_hops=hops, max_edges=max_edges)
    torch.testing.assert_close(found, expected[nodes], rtol=0, atol=1e-5)
    if max_edges > 1:
        every = compute_logits(model, DATA, num_hops=hops, max_edges=max_edges)
        torch.testing.assert_close(every, expected, rtol=0, atol=1e-5)
    assert model.training
    assert not found.requires_grad


@pytest.mark.parametrize("name", LAYERED)
def test_logits_are_those_of_the_whole_graph_if_self_loops_are_listed_twice(name: str) -> None:
    loops = torch.tensor([[3, 7, 3, 3, 8], [3, 7, 3, 3, 8]])
    data = Data(x=DATA.x, edge_index=torch.cat([loops[:, :1], DATA.edge_index, loops[:, 1:]], 1))
    model = seeded(LAYERED[name]).eval()
    torch.testing.assert_close(compute_logits(model, data), model(data.x, data.edge_index).detach(), rtol=0, atol=1e-5)


def test_features_on_disk_and_lists_in_place_of_edges(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", DATA.x.numpy())
    model, lists = GraphSAGE(6, 7, generator=rng("init")), NeighbourLists.from_edges(DATA.edge_index, 90)
    mapped = Data(x=np.load(tmp_path / "x.npy", mmap_mode="r"))
    found = compute_logits(model, mapped, neighbours=lists)
    torch.testing.assert_close(found, model.eval()(DATA.x, DATA.edge_index).detach(), rtol=0, atol=1e-5)


def test_only_nodes_that_matter_are_computed() -> None:
    """On a path, three layers for one end need four nodes."""
    path = torch.stack([torch.arange(1, 100), torch.arange(99)])
    x = torch.randn(100, 6, generator=rng("x"))
    x[4:] = torch.nan  # whoever reads these is found out
    data = Data(x=x, edge_index=path)
    calls = []
    model = seeded(LAYERED["PyG's GCN"])
    for conv in model.convs:
        conv.register_forward_pre_hook(lambda _, arguments: calls.append(len(arguments[0])))
    assert bool(compute_logits(model, data, torch.tensor([0])).isfinite().all())
    assert calls[-3:] == [4, 3, 2]  # after the calls on a small graph


def test_parts_hold_every_node_once_and_few_edges() -> None:
    edges = torch.cat([DATA.edge_index, torch.stack([torch.arange(80), torch.full((80,), 3)])], 1)  # node 3 is a hub
    lists = NeighbourLists.from_edges(edges, 90)
    parts = list(inference._parts(lists, torch.arange(90), 30))
    assert torch.cat(parts).tolist() == list(range(90))
    assert len(parts) > 5
    sizes = [int(lists.degrees[part].sum()) + len(part) for part in parts]
    assert max(size for size, part in zip(sizes, parts, strict=True) if 3 not in part.tolist()) <= 60


def test_bad_arguments_say_what_is_wrong() -> None:
    model = GCN(6, 7, generator=rng("init"))
    with pytest.raises(ValueError, match="max_edges must be >= 1, got 0"):
        compute_logits(model, DATA, max_edges=0)
    with pytest.raises(ValueError, match="GCN has 2 layers"):
        compute_logits(model, DATA, num_hops=3)
    with pytest.raises(DataError, match=r"features x of shape \[n, d\], got none"):
        compute_logits(model, Data(edge_index=DATA.edge_index, num_nodes=90))
    with pytest.raises(DataError, match="distinct"):
        compute_logits(model, DATA, torch.tensor([1, 1]))
    with pytest.raises(DataError, match="nodes must hold one or more of the nodes, got none"):
        compute_logits(model, DATA, torch.zeros(90, dtype=torch.bool))
    with pytest.raises(DataError, match="PPNP does not run"):
        compute_logits(PPNP(6, 7, generator=rng("init")), DATA)
    with pytest.raises(WtawpError, match="on a small graph"):
        compute_logits(pyg.GCN(6, 8, 2, 7, norm="pair_norm"), DATA, num_hops=2)
