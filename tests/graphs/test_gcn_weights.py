import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_dense_adj

from wtawp.base import DataError, rng
from wtawp.graphs import GcnWeights, NeighbourLists, NodeBatches, gcn_operator, gcn_weights, sum_operator


def graph(*, weighted: bool) -> Data:
    """A directed graph with duplicate edges, self-loops (node 0 has two), and an isolated node, the last one."""
    g = rng("graph")
    edges = torch.cat([torch.randint(39, (2, 200), generator=g), torch.tensor([[0, 0, 5], [0, 0, 5]])], 1)
    weight = torch.rand(203, generator=g, dtype=torch.float64) + 0.1 if weighted else None
    return Data(x=torch.randn(40, 3, generator=g, dtype=torch.float64), edge_index=edges, edge_weight=weight)


def matrix(batch: Data) -> Tensor:
    """The operator of a batch, written out."""
    return sum_operator(batch.edge_index, batch.edge_weight, len(batch.n_id), torch.float64).to_dense()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("chunk", [1, 50, 1 << 24])
def test_with_all_neighbours_rows_are_those_of_the_whole_graph(
    weighted: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gcn_weights, "EDGES_AT_A_TIME", chunk)
    data = graph(weighted=weighted)
    whole = gcn_operator(data.edge_index, data.edge_weight, 40, torch.float64).to_dense()
    batches = NodeBatches(data, torch.arange(40), (-1,), batch_size=9, seed=0)
    weights = GcnWeights(batches.neighbours)
    for batch in batches:
        found = matrix(weights(batch))[: batch.batch_size]
        expected = whole[batch.n_id[: batch.batch_size]]
        torch.testing.assert_close(found, expected[:, batch.n_id], rtol=0, atol=1e-12)
        assert float(expected.sum()) == pytest.approx(float(found.sum()))  # no neighbour is missing


@pytest.mark.parametrize("weighted", [False, True])
def test_repeated_self_loops_count_once_as_in_pyg(weighted: bool) -> None:
    data = graph(weighted=weighted)
    normed, values = gcn_norm(data.edge_index, data.edge_weight, 40, dtype=torch.float64)
    expected = to_dense_adj(normed, edge_attr=values, max_num_nodes=40)[0].T
    batches = NodeBatches(data, torch.arange(40), (-1,), batch_size=40, seed=0, shuffle=False)
    torch.testing.assert_close(matrix(GcnWeights(batches.neighbours)(next(iter(batches)))), expected)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_sum_over_sampled_neighbours_is_unbiased(weighted: bool) -> None:
    data = graph(weighted=weighted)
    expected = gcn_operator(data.edge_index, data.edge_weight, 40, torch.float64).to_dense() @ data.x
    batches = NodeBatches(data, torch.arange(40), (2,), batch_size=40, seed=0, shuffle=False)
    weights, sums = GcnWeights(batches.neighbours), []
    for _ in range(600):
        batch = weights(next(iter(batches)))
        sums.append(matrix(batch)[:40] @ batch.x)
    draws = torch.stack(sums)
    error, deviation = (draws.mean(0) - expected).abs(), draws.std(0) / 600**0.5
    assert float(deviation.max()) > 0.01  # something was sampled
    assert bool((error <= 4.5 * deviation + 1e-12).all())


def test_self_loops_are_kept_exactly_and_marked() -> None:
    data = graph(weighted=False)
    batches = NodeBatches(data, torch.arange(40), (1,), batch_size=40, seed=0, shuffle=False)
    before = next(iter(batches))
    batch = GcnWeights(batches.neighbours)(before)
    whole = gcn_operator(data.edge_index, None, 40, torch.float64).to_dense().diagonal()
    torch.testing.assert_close(batch.edge_weight[-40:], whole[batch.n_id])
    assert batch.e_id[-40:].tolist() == [-1] * 40
    assert torch.equal(data.edge_index[:, batch.e_id[:-40]], batch.n_id[batch.edge_index[:, :-40]])
    assert not (batch.edge_index[0, :-40] == batch.edge_index[1, :-40]).any()
    assert before.get("edge_weight") is None  # the batch itself is left as it was


def test_bad_arguments_say_what_is_wrong() -> None:
    edges = torch.tensor([[0, 1], [1, 0]])
    weights = GcnWeights(NeighbourLists.from_edges(edges, 2))
    with pytest.raises(DataError, match="has no n_id"):
        weights(Data(edge_index=edges))
    once = weights(Data(edge_index=edges, n_id=torch.arange(2)))
    with pytest.raises(DataError, match="apply GcnWeights once"):
        weights(once)
    with pytest.raises(DataError, match=r"into node 1 sum to -1\.0"):
        GcnWeights(NeighbourLists.from_edges(edges, 2, torch.tensor([-2.0, 1.0])))
