from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from wtawp.base import DataError, rng
from wtawp.graphs import GcnWeights, NeighbourLists, NodeBatches, citation

DATA = citation(seed=0, num_nodes=80, num_words=6)
NODES = torch.arange(5, 60)


def same(one: Data, other: Data) -> bool:
    """Whether two batches have equal attributes."""
    assert set(one.keys()) == set(other.keys())
    pairs = [(one[key], other[key]) for key in one.keys()]  # noqa: SIM118
    return all(torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in pairs)


def test_batches_are_parts_of_the_graph() -> None:
    data = DATA.clone()
    data.n_id = torch.arange(80).flip(0)  # of some larger graph; in a batch, n_id are the numbers in this one
    data.year, data.edge_attr = torch.arange(80), torch.arange(data.num_edges)[:, None]
    batches = NodeBatches(data, NODES, (3, 2), batch_size=20, seed=0)
    seen = []
    for batch in batches:
        seeds = batch.n_id[: batch.batch_size]
        assert torch.equal(seeds, NODES[batch.input_id])
        assert torch.equal(batch.x, data.x[batch.n_id])
        assert torch.equal(batch.y, data.y[batch.n_id])
        assert torch.equal(batch.year, batch.n_id)
        assert torch.equal(batch.edge_attr[:, 0], batch.e_id)
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        assert sum(batch.num_sampled_nodes) == len(batch.n_id)
        assert sum(batch.num_sampled_edges) == len(batch.e_id)
        seen += seeds.tolist()
    assert len(batches) == 3
    assert sorted(seen) == NODES.tolist()
    assert seen != NODES.tolist()


def test_batches_depend_on_seed_epoch_and_number_alone() -> None:
    one, other = (NodeBatches(DATA, NODES, (3, 2), batch_size=20, seed=1) for _ in range(2))
    first, second = list(one), list(one)
    assert one.epoch == 2
    other.epoch = 1  # resume at the second epoch
    assert all(same(a, b) for a, b in zip(second, other, strict=True))
    assert not any(same(a, b) for a, b in zip(first, second, strict=True))
    assert not same(next(iter(NodeBatches(DATA, NODES, (3, 2), batch_size=20, seed=2))), first[0])
    ordered = NodeBatches(DATA, NODES, (3, 2), batch_size=20, seed=1, shuffle=False)
    assert torch.cat([batch.input_id for batch in ordered]).tolist() == list(range(55))


def test_workers_do_not_change_the_batches_nor_the_caller_s_randomness() -> None:
    state = torch.get_rng_state()
    lists = NeighbourLists.from_edges(DATA.edge_index, 80)
    epochs = []
    for num_workers in (0, 2):
        batches = NodeBatches(DATA, NODES, (3, 2), batch_size=10, seed=0, neighbours=lists,
                              transform=GcnWeights(lists), num_workers=num_workers)  # fmt: skip
        epochs.append([*batches, *batches])
    assert len(epochs[0]) == len(epochs[1]) == 12
    assert all(same(a, b) for a, b in zip(*epochs, strict=True))
    assert torch.equal(state, torch.get_rng_state())


def test_features_may_stay_on_disk(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", DATA.x.numpy())
    lists = NeighbourLists.from_edges(DATA.edge_index, 80)
    mapped = Data(x=np.load(tmp_path / "x.npy", mmap_mode="r"), y=DATA.y)
    assert isinstance(mapped.x, np.memmap)
    on_disk = NodeBatches(mapped, NODES, (3,), batch_size=20, seed=0, neighbours=lists)
    in_memory = NodeBatches(Data(x=DATA.x, y=DATA.y), NODES, (3,), batch_size=20, seed=0, neighbours=lists)
    assert all(same(a, b) for a, b in zip(on_disk, in_memory, strict=True))


def test_features_may_be_sparse_or_absent() -> None:
    sparse = Data(x=DATA.x.to_sparse(), edge_index=DATA.edge_index)
    batch = next(iter(NodeBatches(sparse, NODES, (3,), batch_size=20, seed=0)))
    assert torch.equal(batch.x, DATA.x[batch.n_id])
    bare = Data(edge_index=DATA.edge_index, num_nodes=80, names=["a name"] * 80)
    assert "x" not in next(iter(NodeBatches(bare, NODES, (3,), batch_size=20, seed=0)))


def test_two_iterations_at_once_are_two_epochs() -> None:
    batches, again = (NodeBatches(DATA, NODES, (3,), batch_size=20, seed=0) for _ in range(2))
    one, other = iter(batches), iter(batches)
    expected = list(again), list(again)
    pairs = [(next(one), next(other)) for _ in range(3)]
    assert all(same(a, x) and same(b, y) for (a, b), x, y in zip(pairs, *expected, strict=True))


def test_edge_weights_are_carried_along() -> None:
    data = DATA.clone()
    data.edge_weight = torch.rand(data.num_edges, generator=rng("weights"))
    for batch in NodeBatches(data, NODES, (3, -1), batch_size=20, seed=0):
        assert torch.equal(batch.edge_weight, data.edge_weight[batch.e_id])


def test_numbers_of_numpy_are_sizes_of_batches() -> None:
    batches = NodeBatches(DATA, NODES, (3,), batch_size=np.int64(20), seed=0)
    expected = NodeBatches(DATA, NODES, (3,), batch_size=20, seed=0)
    assert all(torch.equal(a.input_id, b.input_id) for a, b in zip(batches, expected, strict=True))


def test_bad_arguments_say_what_is_wrong() -> None:
    options = {"batch_size": 4, "seed": 0}
    for size in (0, 8.0, True, "8"):
        with pytest.raises(ValueError, match=rf"batch_size must be a whole number >= 1, got {size!r}"):
            NodeBatches(DATA, NODES, (3,), batch_size=size, seed=0)
    with pytest.raises(ValueError, match="num_workers must be a whole number >= 0, got -1"):
        NodeBatches(DATA, NODES, (3,), num_workers=-1, **options)
    with pytest.raises(ValueError, match="fanouts must be"):
        NodeBatches(DATA, NODES, (), **options)
    with pytest.raises(DataError, match="nodes must hold one or more of the nodes, got none"):
        NodeBatches(DATA, NODES[:0], (3,), **options)
    with pytest.raises(DataError, match="nodes must lie in 0 to 79, the nodes there are, got 80 to 80"):
        NodeBatches(DATA, torch.tensor([80]), (3,), **options)
    with pytest.raises(DataError, match="the graph has no edge_index"):
        NodeBatches(Data(x=DATA.x), NODES, (3,), **options)
    with pytest.raises(DataError, match="data has 80 nodes and its neighbour lists 9"):
        lists = NeighbourLists.from_edges(torch.zeros(2, 0, dtype=torch.long), 9)
        NodeBatches(DATA, NODES, (3,), neighbours=lists, **options)
