import pytest
import torch
from torch_geometric.data import Data

from wtawp.base import DataError, rng
from wtawp.graphs import NodeBatches, gcn_operator, mean_operator, receptive_field, sum_operator
from wtawp.models import GAT, GCN, GIN, MLP, GraphSAGE
from wtawp.models.batch_blocks import batch_blocks

WHOLE = {
    "sum": sum_operator,
    "mean": mean_operator,
    "with loops": lambda *arguments: gcn_operator(*arguments, power=0.0),
}


def graph(*, weighted: bool) -> Data:
    """A directed graph with duplicate edges and self-loops."""
    g = rng("graph")
    edges = torch.cat([torch.randint(30, (2, 90), generator=g), torch.tensor([[0, 5], [0, 5]])], 1)
    weight = torch.rand(92, generator=g, dtype=torch.float64) + 0.1 if weighted else None
    return Data(x=torch.randn(30, 4, generator=g, dtype=torch.float64), edge_index=edges, edge_weight=weight)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("aggregation", WHOLE)
def test_blocks_of_all_neighbours_are_the_receptive_field(aggregation: str, weighted: bool) -> None:
    data = graph(weighted=weighted)
    whole = WHOLE[aggregation](data.edge_index, data.edge_weight, 30, torch.float64)
    batch = next(iter(NodeBatches(data, torch.tensor([3, 8]), (-1, -1), batch_size=2, seed=0, shuffle=False)))
    blocks, expected = batch_blocks(batch, 2, aggregation), receptive_field(whole, torch.tensor([3, 8]), 2)
    dense = whole.to_dense()
    for operator, (columns, rows), other in zip(
        blocks.operators, zip(blocks.nodes, blocks.nodes[1:], strict=False), expected.nodes, strict=False
    ):
        torch.testing.assert_close(operator.to_dense(), dense[rows][:, columns])
        assert sorted(columns.tolist()) == sorted(other.tolist())


@pytest.mark.parametrize("model", [GCN, GraphSAGE, GAT, GIN, MLP])
def test_models_say_what_they_need_of_a_batch(model: type) -> None:
    built = model(4, 2, generator=rng("init")).double()
    assert built.num_hops == (0 if model is MLP else 2)
    assert built.needs_gcn_weights is (model is GCN)
    batch = next(iter(NodeBatches(graph(weighted=False), torch.arange(30), (2, 2), batch_size=7, seed=0)))
    assert built(*built.batch_arguments(batch)).shape == (7, 2)


def test_weights_of_edges_reach_the_attention() -> None:
    model, data = GAT(4, 2, generator=rng("init")).double().eval(), graph(weighted=True)
    batch = next(iter(NodeBatches(data, torch.arange(30), (-1, -1), batch_size=30, seed=0, shuffle=False)))
    found, expected = model(*model.batch_arguments(batch)), model(data.x, data.edge_index, data.edge_weight)
    torch.testing.assert_close(found, expected)
    assert float((found - model(data.x, data.edge_index)).detach().abs().max()) > 1e-3


def test_batches_of_another_kind_are_refused() -> None:
    batch = next(iter(NodeBatches(graph(weighted=False), torch.arange(30), (2, 2), batch_size=7, seed=0)))
    with pytest.raises(DataError, match="3 layers need batches of 3 hops, got 2"):
        batch_blocks(batch, 3, "sum")
    del batch.num_sampled_nodes
    with pytest.raises(DataError, match="has no num_sampled_nodes"):
        batch_blocks(batch, 2, "sum")
