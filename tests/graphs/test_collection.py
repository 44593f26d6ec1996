from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.nn import global_add_pool, global_mean_pool

from wtawp.base import DataError, rng
from wtawp.graphs import batched, is_collection, load, mean_pooling, select_graphs
from wtawp.graphs.collection import GraphBatches, sum_pooling


def graph(num_nodes: int, *edges: tuple[int, int], y: int = 0, width: int = 2) -> Data:
    x = torch.randn(num_nodes, width, generator=rng("x", num_nodes, y))
    return Data(x=x, edge_index=torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T, y=torch.tensor([y]))


PATH, LONE, ISLANDS, PAIR = graph(3, (0, 1), (1, 2), y=1), graph(1), graph(2, y=2), graph(2, (0, 1), (1, 0))
GRAPHS = [PATH, LONE, ISLANDS, PAIR]  # one node; no edges


def assert_equal(ours: Data, theirs: Data) -> None:
    for name in ("x", "y", "batch"):
        assert torch.equal(ours[name], theirs[name]), name
    assert sorted(ours.edge_index.T.tolist()) == sorted(theirs.edge_index.T.tolist())


def test_it_batches_as_pyg_does() -> None:
    assert_equal(batched(GRAPHS), Batch.from_data_list(GRAPHS))


def test_what_is_one_already_passes_as_it_is() -> None:
    batch, karate = Batch.from_data_list(GRAPHS), load("karate")
    assert batched(batch) is batch
    assert batched(karate) is karate
    assert is_collection(batch)
    assert not is_collection(karate)


@pytest.mark.parametrize("rows", [[0], [3, 0], [2, 1, 3, 0]])
def test_some_graphs_are_those_graphs_in_that_order(rows: list[int]) -> None:
    found = select_graphs(batched(GRAPHS), torch.tensor(rows))
    assert_equal(found, Batch.from_data_list([GRAPHS[i] for i in rows]))


def test_graphs_can_be_selected_again_and_twice_and_their_nodes_need_not_lie_together() -> None:
    data = batched(GRAPHS)
    mixed = torch.randperm(len(data.x), generator=rng("order"))
    place = mixed.argsort()
    scattered = Data(x=data.x[mixed], edge_index=place[data.edge_index], y=data.y, batch=data.batch[mixed])
    batches = GraphBatches(data)
    for rows in ([3, 0, 3], [1], []):
        assert_equal(batches.select(rows), batched([GRAPHS[i] for i in rows]) if rows else Data(
            x=torch.empty(0, 2), y=torch.empty(0, dtype=torch.long), batch=torch.empty(0, dtype=torch.long),
            edge_index=torch.empty(2, 0, dtype=torch.long)))  # fmt: skip
    found = GraphBatches(scattered).select([2, 0])
    sizes = found.batch.bincount().tolist()
    assert sizes == [2, 3]
    for own, number in zip(found.x.split(sizes), (2, 0), strict=True):
        assert sorted(own.tolist()) == sorted(GRAPHS[number].x.tolist())
    ends = [sorted(map(tuple, found.x[edge].tolist())) for edge in found.edge_index.T]
    assert sorted(ends) == sorted(sorted(map(tuple, PATH.x[edge].tolist())) for edge in PATH.edge_index.T)


def test_the_sum_over_each_graph_is_pyg_s() -> None:
    data = batched(GRAPHS)
    found = sum_pooling(data.batch, torch.float64).to_dense() @ data.x.double()
    torch.testing.assert_close(found, global_add_pool(data.x.double(), data.batch), rtol=0, atol=1e-15)


def test_the_mean_over_each_graph_is_pyg_s() -> None:
    data = batched(GRAPHS)
    x = data.x.double()
    expected = global_mean_pool(x, data.batch)
    torch.testing.assert_close(mean_pooling(data.batch, torch.float64).to_dense() @ x, expected, rtol=0, atol=1e-15)
    mixed = torch.randperm(len(x), generator=rng("order"))  # nodes of a graph need not lie together
    pool = mean_pooling(data.batch[mixed], torch.float64)
    torch.testing.assert_close(pool.to_dense() @ x[mixed], expected, rtol=0, atol=1e-15)


def changed(like: Data, **values: Any) -> Data:
    copy = like.clone()
    for name, value in values.items():
        copy[name] = value
    return copy


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (graph(2, width=3), r"graph 1 has features of shape \[2, 3\], graph 0 of \[3, 2\]: all graphs need as many"),
        (changed(PAIR, x=torch.ones(2)), r"graph 1 has features of shape \[2\]"),
        (changed(PAIR, x=None), "graph 1 has no x"),
        (changed(PAIR, edge_index=None), "graph 1 has no edge_index"),
        (graph(0), "graph 1 has no nodes"),
        (changed(PAIR, y=None), "graph 1 needs one class number as its label y .* got none"),
        (changed(PAIR, y=1), r"the label y of graph 1 must be a tensor, such as y=torch.tensor\(\[1\]\), got int"),
        (changed(PAIR, y=[1]), r"the label y of graph 1 must be a tensor, .* got list"),
        (changed(PAIR, y=torch.tensor([0, 1])), r"needs one class number .* got torch.int64 of shape \[2\]"),
        (changed(PAIR, y=torch.tensor([0.5])), "needs one class number .* got torch.float32"),
        (graph(2, (0, 2)), "edges of graph 1 must join its nodes 0 to 1, got 0 to 2"),
    ],
)
def test_a_bad_graph_is_named(bad: Data, words: str) -> None:
    with pytest.raises(DataError, match=words):
        batched([PATH, bad])


def test_labels_of_a_small_type_become_class_numbers() -> None:
    for dtype in (torch.bool, torch.int8, torch.int32):
        together = batched([changed(PAIR, y=torch.tensor([y], dtype=dtype)) for y in (0, 1)])
        assert together.y.dtype == torch.int64
        assert together.y.tolist() == [0, 1]


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(DataError, match="one graph or more, got none"):
        batched([])


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("y", torch.tensor([0, 1]), "a batch of 4 graphs needs as many class numbers y, got torch.int64 of shape"),
        ("batch", torch.tensor([0, 0, 0, 0, 2, 2, 3, 3]), r"graphs \[1\] of the batch have no nodes"),
        ("edge_index", torch.tensor([[0], [7]]), "joins two different graphs"),
    ],
)
def test_a_bad_batch_is_refused(name: str, value: Tensor, words: str) -> None:
    with pytest.raises(DataError, match=words):
        batched(changed(batched(GRAPHS), **{name: value}))


def test_any_target_of_a_graph_is_taken_on_request() -> None:
    numbers = [changed(PAIR, y=torch.tensor(value)) for value in ([0.5], [-2.0])]
    assert batched(numbers, any_target=True).y.tolist() == [0.5, -2.0]
    pairs = [changed(PAIR, y=torch.tensor([value])) for value in ([0.5, 1.0], [2.0, 3.0])]
    together = batched(pairs, any_target=True)
    assert together.y.tolist() == [[0.5, 1.0], [2.0, 3.0]]
    assert batched(together, any_target=True) is together
    with pytest.raises(DataError, match=r"needs as many class numbers y, got torch\.float32"):
        batched(together)
    for bad, words in (
        (changed(PAIR, y=0.5), r"graph 1 must be a tensor, such as y=torch.tensor\(\[0.5\]\), got float"),
        (changed(PAIR, y=None), "graph 1 needs a target y of shape .* got none"),
        (changed(PAIR, y=torch.tensor([1.0, 2.0])), r"graph 1 needs a target y of shape .* got shape \[2\]"),
        (pairs[0], r"with the same t in all graphs, got shape \[1, 2\]"),
    ):
        with pytest.raises(DataError, match=words):
            batched([numbers[0], bad], any_target=True)
    with pytest.raises(DataError, match=r"a batch of 2 graphs needs as many targets y, got torch\.float32"):
        batched(changed(together, y=torch.ones(3)), any_target=True)
