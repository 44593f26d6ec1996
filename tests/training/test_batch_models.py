from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data

from wtawp.base import DataError, WtawpError, rng
from wtawp.graphs import GcnWeights, NeighbourLists, NodeBatches, sum_operator
from wtawp.models import GAT, GCN, GIN, MLP, PPNP, GraphSAGE
from wtawp.training.batch_models import BatchModel, check_on_small_graph, num_hops_of

Build = Callable[[], nn.Module]


def graph() -> Data:
    """A directed graph in float64 with self-loops, duplicate edges and an isolated node, the last one."""
    g = rng("graph")
    edges = torch.cat([torch.randint(59, (2, 240), generator=g), torch.tensor([[0, 5], [0, 5]])], 1)
    edges = edges.unique(dim=1)[:, torch.randperm(len(edges.unique(dim=1)[0]), generator=g)]
    edges = torch.cat([edges, edges[:, (edges[0] != edges[1]).nonzero()[:3, 0]]], 1)
    x, y = torch.randn(60, 5, generator=g, dtype=torch.float64), torch.randint(3, (60,), generator=g)
    return Data(x=x, edge_index=edges, y=y)


DATA = graph()
LISTS = NeighbourLists.from_edges(DATA.edge_index, 60)


class Mixed(nn.Module):
    """Somebody's own, without an argument for weights, and with layers that must not see the loops of the others."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = pyg.GCNConv(5, 8), pyg.SAGEConv(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.two(self.one(x, edge_index).relu(), edge_index)


class OwnDegrees(nn.Module):
    """Somebody's own that divides by degrees, which it counts in the edges it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(5, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        degree = 1 + torch.bincount(edge_index[1], minlength=len(x)).to(x.dtype)
        out = self.lin(x / degree[:, None])
        return out.index_add(0, edge_index[1], out[edge_index[0]])


def seeded(build: Build) -> nn.Module:
    """A module of PyG with fixed initial weights, in float64."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build().double()


MODELS: dict[str, Build] = {
    "our GCN": lambda: GCN(5, 3, hidden=(8, 8), generator=rng("init")),
    "our GraphSAGE": lambda: GraphSAGE(5, 3, hidden=(8, 8), generator=rng("init")),
    "our GAT": lambda: GAT(5, 3, generator=rng("init")),
    "our GIN": lambda: GIN(5, 3, generator=rng("init")),
    "our MLP": lambda: MLP(5, 3, generator=rng("init")),
    "PyG's GCN": lambda: pyg.GCN(5, 8, 3, 3),
    "PyG's GraphSAGE": lambda: pyg.GraphSAGE(5, 8, 2, 3),
    "PyG's GAT": lambda: pyg.GAT(5, 8, 2, 3, heads=2),
    "GCN with norms": lambda: pyg.GCN(5, 8, 2, 3, norm="batch_norm", jk="cat"),
    "mixed layers": Mixed,
}
HOPS = {"our GCN": 3, "our GraphSAGE": 3, "PyG's GCN": 3}


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_gradients_of_all_neighbours_are_those_of_the_whole_graph(name: str) -> None:
    model = seeded(MODELS[name]).eval()
    runner = BatchModel(model, LISTS, HOPS.get(name, 2) if name != "our MLP" else None)
    whole = model(DATA.x, DATA.edge_index)
    nodes = torch.arange(5, 60)
    batches = list(NodeBatches(DATA, nodes, (-1,) * (runner.num_hops or 1), batch_size=20, seed=0))
    parts = [runner.logits(runner.prepare(batch))[: batch.batch_size] for batch in batches]
    order = torch.cat([batch.n_id[: batch.batch_size] for batch in batches])
    torch.testing.assert_close(torch.cat(parts), whole[order], rtol=0, atol=1e-10)
    losses = [logits[rows].logsumexp(1).sum() for logits, rows in ((whole, order), (torch.cat(parts), slice(None)))]
    parameters = [p for p in model.parameters() if p.requires_grad]
    for a, b in zip(*(torch.autograd.grad(loss, parameters) for loss in losses), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)
    for layer in model.modules():  # nothing is left behind
        assert getattr(layer, "normalize", True) or isinstance(layer, pyg.SAGEConv)
        assert not layer._forward_pre_hooks


def test_edge_weights_are_normalised_over_the_whole_graph() -> None:
    model, data = seeded(MODELS["PyG's GCN"]).eval(), DATA.clone()
    data.edge_index, data.edge_weight = DATA.edge_index.unique(dim=1), None
    data.edge_weight = torch.rand(data.edge_index.shape[1], generator=rng("w"), dtype=torch.float64)
    batches = NodeBatches(data, torch.arange(60), (-1, -1, -1), batch_size=7, seed=0)
    runner, whole = BatchModel(model, batches.neighbours), model(data.x, data.edge_index, data.edge_weight)
    for batch in batches:
        part = runner.logits(runner.prepare(batch))[: batch.batch_size]
        torch.testing.assert_close(part, whole[batch.n_id[: batch.batch_size]], rtol=0, atol=1e-10)


def test_the_degrees_of_a_batch_alone_would_be_wrong() -> None:
    model = seeded(MODELS["PyG's GCN"]).eval()
    whole = model(DATA.x, DATA.edge_index)
    batch = next(iter(NodeBatches(DATA, torch.arange(60), (-1, -1, -1), batch_size=5, seed=0)))
    part = model(batch.x, batch.edge_index)[:5]
    assert float((part - whole[batch.n_id[:5]]).detach().abs().max()) > 1e-3


def test_the_recipes_for_a_loop_of_one_s_own_are_right() -> None:
    ours, theirs = GCN(5, 3, generator=rng("init")).double(), seeded(lambda: pyg.GCN(5, 8, 2, 3, normalize=False))
    reference = seeded(lambda: pyg.GCN(5, 8, 2, 3)).eval()
    reference.load_state_dict(theirs.state_dict())
    weights = GcnWeights(LISTS)
    for batch in NodeBatches(DATA, torch.arange(60), (-1, -1), batch_size=9, seed=0, transform=weights):
        seeds = batch.n_id[: batch.batch_size]
        operator = sum_operator(batch.edge_index, batch.edge_weight, batch.num_nodes, torch.float64)
        part = ours.eval()(batch.x, operator)[: batch.batch_size]
        torch.testing.assert_close(part, ours(DATA.x, DATA.edge_index)[seeds])
        part = theirs.eval()(batch.x, batch.edge_index, batch.edge_weight)[: batch.batch_size]
        torch.testing.assert_close(part, reference(DATA.x, DATA.edge_index)[seeds])


@pytest.mark.parametrize("build", [lambda: GCN(5, 3, generator=rng("init")), lambda: pyg.GCN(5, 8, 2, 3)])
def test_batches_with_weights_are_not_normalised_twice(build: Build) -> None:
    model = seeded(build).eval()
    plain, weighted = (
        next(iter(NodeBatches(DATA, torch.arange(60), (3, 3), batch_size=9, seed=0, transform=transform)))
        for transform in (None, GcnWeights(LISTS))
    )
    runner = BatchModel(model, LISTS)
    one, other = (runner.logits(runner.prepare(batch))[:9] for batch in (plain, weighted))
    torch.testing.assert_close(one, other)
    del weighted.num_sampled_nodes  # as from a loader that does not say it
    torch.testing.assert_close(runner.logits(runner.prepare(weighted))[:9], one)


def test_a_part_of_the_graph_without_numbers_is_a_graph_of_its_own() -> None:
    nodes = torch.arange(0, 60, 2)
    part = DATA.subgraph(nodes)
    for build in (lambda: GCN(5, 3, generator=rng("init")), lambda: pyg.GCN(5, 8, 2, 3)):
        model = seeded(build).eval()
        runner = BatchModel(model, LISTS)
        torch.testing.assert_close(runner.logits(runner.prepare(part)), model(part.x, part.edge_index))


def test_models_that_batches_do_not_suit_are_refused() -> None:
    with pytest.raises(DataError, match="PPNP does not run on sampled neighbourhoods"):
        BatchModel(PPNP(5, 3, generator=rng("init")), LISTS)
    with pytest.raises(
        ValueError, match=r"GCN has 2 layers .* got 3; pass fanouts= .* or in compute_logits num_hops=2"
    ):
        BatchModel(GCN(5, 3, generator=rng("init")), LISTS, 3)
    with pytest.raises(
        ValueError, match=r"how far does Mixed reach .* num_hops=2 in compute_logits, .* fanouts=\(10, 10\)"
    ):
        BatchModel(Mixed(), LISTS)
    with pytest.raises(WtawpError, match="cached=True"):
        BatchModel(pyg.GCN(5, 8, 2, 3, cached=True), LISTS)
    with pytest.raises(WtawpError, match="without improved=True"):
        BatchModel(pyg.GCN(5, 8, 2, 3, improved=True), LISTS)


@pytest.mark.parametrize(
    ("build", "hops"),
    [
        (OwnDegrees, 1),
        (Mixed, 1),
        (lambda: pyg.GCN(5, 8, 2, 3, norm="pair_norm"), 2),
        (lambda: pyg.GCN(5, 8, 3, 3, jk="cat"), 2),
    ],
)
def test_outputs_that_batches_would_change_are_refused(build: Build, hops: int) -> None:
    model = seeded(build)
    with pytest.raises(WtawpError, match="on a small graph, the output of"):
        check_on_small_graph(model, torch.zeros(9, 5), hops)
    assert model.training


@pytest.mark.parametrize("name", MODELS)
def test_outputs_that_batches_do_not_change_are_accepted(name: str) -> None:
    check_on_small_graph(seeded(MODELS[name]), torch.zeros(9, 5), HOPS.get(name, 2))
    check_on_small_graph(seeded(OwnDegrees), torch.zeros(9, 5), 2)  # one hop farther, the degrees are known


def test_a_layer_that_is_called_with_other_edges_is_refused() -> None:
    class Backwards(Mixed):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return super().forward(x, edge_index.flip(0))

    batch = next(iter(NodeBatches(DATA, torch.arange(60), (3, 3), batch_size=9, seed=0)))
    model = seeded(Backwards)
    runner = BatchModel(model, LISTS, 2)
    with pytest.raises(WtawpError, match="must be called with the edges of the batch"):
        runner.logits(runner.prepare(batch))
    assert model.one.normalize
    assert not model.one._forward_pre_hooks


def test_models_know_how_far_they_reach() -> None:
    assert num_hops_of(pyg.GraphSAGE(5, 8, 4, 3)) == 4
    assert num_hops_of(GCN(5, 3, hidden=(4, 4), generator=rng("init"))) == 3
    assert num_hops_of(Mixed()) is None
