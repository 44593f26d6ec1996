from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from wtawp.base import DataError, rng, seed_of
from wtawp.graphs import NeighbourLists, Sample, sample_neighbours, sampling

BOTH = pytest.mark.parametrize("compiled", [False, True])


def random_edges(num_nodes: int, num_edges: int, seed: int = 0) -> Tensor:
    """Directed edges with self-loops and duplicates among them."""
    return torch.randint(num_nodes, (2, num_edges), generator=rng("edges", seed))


def naive_sample(edges: Tensor, seeds: list[int], fanouts: tuple[int, ...], key: int) -> list[list[int]]:
    """Nodes, then source, target and edge of each sampled edge, in plain Python."""
    golden, increment, bits = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03, 2**64

    def mixed(h: int) -> int:
        h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9 % bits
        h = (h ^ (h >> 27)) * 0x94D049BB133111EB % bits
        return h ^ (h >> 31)

    nodes, frontier, sampled = list(seeds), list(seeds), []
    for hop, fanout in enumerate(fanouts):
        met = []
        for node in frontier:
            into = [e for e in range(edges.shape[1]) if int(edges[1, e]) == node]
            chosen = list(range(len(into)))
            if 0 <= fanout < len(into):
                state, chosen = mixed((seed_of("neighbours", key, hop) + node * golden) % bits), []
                for j in range(fanout):
                    last = len(into) - fanout + j
                    drawn = int((mixed((state + j * increment) % bits) >> 11) / 2**53 * (last + 1))
                    chosen.append(last if drawn in chosen else drawn)
            for e in (into[i] for i in chosen):
                source = int(edges[0, e])
                if source not in nodes:
                    nodes.append(source)
                    met.append(source)
                sampled.append((nodes.index(source), nodes.index(node), e))
        frontier = met
    return [nodes, *(list(column) for column in zip(*sampled, strict=True))]


@BOTH
@pytest.mark.parametrize("fanouts", [(2,), (3, 2), (-1, 1, 4), (0, 3), (-1, -1), (5, 5)])
def test_samples_are_those_of_a_plain_loop(compiled: bool, fanouts: tuple[int, ...]) -> None:
    edges, seeds = random_edges(30, 120), [7, 3, 29, 0]
    lists = NeighbourLists.from_edges(edges, 30)
    sample = sample_neighbours(lists, torch.tensor(seeds), fanouts, key=4, compiled=compiled)
    expected = naive_sample(edges, seeds, fanouts, 4) if fanouts != (0, 3) else [seeds, [], [], []]
    assert sample.nodes.tolist() == expected[0]
    assert sample.edge_index.tolist() == expected[1:3]
    assert lists.edge_ids is not None
    assert lists.edge_ids[sample.positions].tolist() == expected[3]
    assert sum(sample.num_nodes) == len(sample.nodes)
    assert sum(sample.num_edges) == len(sample.positions)
    assert sample.num_nodes[0] == 4


@BOTH
def test_every_subset_of_neighbours_is_equally_likely(compiled: bool) -> None:
    """Chi-square over all 35 subsets of 3 out of 7 neighbours: once over nodes, once over keys."""
    n = 7000
    targets = torch.repeat_interleave(torch.arange(n), 7)
    lists = NeighbourLists.from_edges(torch.stack([torch.arange(7).repeat(n), targets]), n)
    over_nodes = sample_neighbours(lists, torch.arange(n), (3,), key=1, compiled=compiled).positions % 7
    one = torch.tensor([11])
    samples = [sample_neighbours(lists, one, (3,), key=key, compiled=compiled).positions % 7 for key in range(3500)]
    for drawn in (over_nodes.view(-1, 3), torch.stack(samples)):
        counts = Counter(tuple(sorted(row)) for row in drawn.tolist())
        assert set(counts) == set(combinations(range(7), 3))
        assert chisquare(list(counts.values())).pvalue > 0.01


@BOTH
def test_every_neighbour_of_a_hub_is_equally_likely(compiled: bool) -> None:
    degree, k = 1000, 20
    lists = NeighbourLists.from_edges(torch.stack([torch.arange(degree), torch.zeros(degree).long()]), degree)
    drawn = [sample_neighbours(lists, torch.tensor([0]), (k,), key=i, compiled=compiled).positions for i in range(1000)]
    assert all(len(set(d.tolist())) == k for d in drawn)
    counts = torch.bincount(torch.cat(drawn), minlength=degree)
    # Without replacement the counts vary less than those of independent draws, by the factor 1 - k / degree.
    statistic = float(((counts - k) ** 2 / (k * (1 - k / degree))).sum())
    assert abs(statistic - (degree - 1)) < 4 * (2 * (degree - 1)) ** 0.5


@settings(max_examples=60, deadline=None)
@given(
    num_nodes=st.integers(1, 20),
    num_edges=st.integers(0, 60),
    fanouts=st.lists(st.integers(-1, 4), min_size=1, max_size=3),
    key=st.integers(0, 2**62),
)
def test_samples_keep_their_promises(num_nodes: int, num_edges: int, fanouts: list[int], key: int) -> None:
    edges, seeds = random_edges(num_nodes, num_edges), torch.arange(0, num_nodes, 2)
    lists = NeighbourLists.from_edges(edges, num_nodes)
    one, other = (sample_neighbours(lists, seeds, fanouts, key=key, compiled=c) for c in (False, True))
    for name in ("nodes", "edge_index", "positions", "num_nodes", "num_edges"):
        a, b = getattr(one, name), getattr(other, name)
        assert torch.equal(a, b) if isinstance(a, Tensor) else a == b
    assert len(set(one.positions.tolist())) == len(one.positions)
    ids = one.positions if lists.edge_ids is None else lists.edge_ids[one.positions]
    assert torch.equal(one.nodes[one.edge_index], edges[:, ids])
    assert len(set(one.nodes.tolist())) == len(one.nodes)
    check_counts(one, edges, fanouts)


def check_counts(sample: Sample, edges: Tensor, fanouts: list[int]) -> None:
    """Each node has as many edges as the hop after the one that met it takes."""
    degrees = torch.bincount(edges[1], minlength=int(sample.nodes.max()) + 1)
    sampled = torch.bincount(sample.edge_index[1], minlength=len(sample.nodes))
    hop = torch.repeat_interleave(torch.arange(len(fanouts) + 1), torch.tensor(sample.num_nodes))
    for i, node in enumerate(sample.nodes.tolist()):
        fanout = (*fanouts, 0)[int(hop[i])]
        assert int(sampled[i]) == (int(degrees[node]) if fanout < 0 else min(fanout, int(degrees[node])))


def test_a_node_s_sample_does_not_depend_on_the_other_seeds() -> None:
    lists = NeighbourLists.from_edges(random_edges(50, 1000), 50)
    alone = sample_neighbours(lists, torch.tensor([9]), (4,), key=2)
    among = sample_neighbours(lists, torch.tensor([4, 9, 1]), (4,), key=2)
    assert torch.equal(among.positions[among.edge_index[1] == 1], alone.positions)
    other_key = sample_neighbours(lists, torch.tensor([9]), (4,), key=3)
    assert not torch.equal(other_key.positions, alone.positions)


def test_isolated_nodes_and_nodes_with_out_edges_only_have_no_neighbours() -> None:
    lists = NeighbourLists.from_edges(torch.tensor([[0], [1]]), 3)
    sample = sample_neighbours(lists, torch.tensor([2, 0]), (5, 5), key=0)
    assert sample.nodes.tolist() == [2, 0]
    assert sample.edge_index.shape == (2, 0)
    assert sample.num_nodes == (2, 0, 0)


@BOTH
def test_lists_sort_edges_by_target_and_keep_their_order(compiled: bool) -> None:
    edges, weight = random_edges(9, 50), torch.rand(50, generator=rng("weights"))
    lists = NeighbourLists.from_edges(edges, 9, weight, compiled=compiled)
    order = sorted(range(50), key=lambda e: int(edges[1, e]))  # stable
    assert lists.edge_ids is not None
    assert lists.edge_weight is not None
    assert lists.edge_ids.tolist() == order
    assert lists.sources.tolist() == edges[0, order].tolist()
    assert torch.equal(lists.edge_weight, weight[order])
    assert lists.degrees.tolist() == [int((edges[1] == i).sum()) for i in range(9)]
    assert (lists.num_nodes, lists.num_edges) == (9, 50)


def test_edges_that_are_sorted_keep_their_positions_without_a_copy() -> None:
    lists = NeighbourLists.from_edges(torch.tensor([[2, 1, 0], [0, 0, 1]]), 3)
    assert lists.edge_ids is None
    lists.share_memory()
    assert lists.sources.is_shared()


@BOTH
def test_pointers_and_positions_go_beyond_31_bits(compiled: bool) -> None:
    far = 2**31 + 5
    indptr, nodes = np.array([0, far, far + 40, far + 41]), np.array([1, 2])
    key = np.uint64(0)
    positions, counts = sampling._draw_positions(indptr, nodes, 3, key, compiled=compiled)
    assert counts.tolist() == [3, 1]
    assert len(set(positions.tolist())) == 4
    assert all(far <= p < far + 40 for p in positions[:3])
    assert positions[3] == far + 40
    sources = torch.tensor([2], dtype=torch.int32).expand(far + 41).numpy()  # one number in memory
    numbering = sampling._Numbering(nodes, compiled=compiled)
    assert numbering.add(sources, positions).tolist() == [1, 1, 1, 1]


def test_without_numba_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    edges, seeds = random_edges(40, 300), torch.arange(10)
    expected = sample_neighbours(NeighbourLists.from_edges(edges, 40), seeds, (3, 3), key=0)
    monkeypatch.setattr(sampling, "HAS_NUMBA", False)
    sample = sample_neighbours(NeighbourLists.from_edges(edges, 40), seeds, (3, 3), key=0)
    assert torch.equal(sample.nodes, expected.nodes)
    assert torch.equal(sample.positions, expected.positions)


def test_bad_arguments_say_what_is_wrong() -> None:
    lists = NeighbourLists.from_edges(random_edges(5, 9), 5)
    for fanouts in ((), (3, -2), 3, "33", ("a",), (3.0,), (True,), None):
        with pytest.raises(ValueError, match="fanouts must be one number or more"):
            sample_neighbours(lists, torch.tensor([0]), fanouts, key=0)
    with pytest.raises(DataError, match="distinct, but 1 of 3"):
        sample_neighbours(lists, torch.tensor([0, 1, 0]), (1,), key=0)
    with pytest.raises(DataError, match="between 0 and 4, got 0 to 5"):
        sample_neighbours(lists, torch.tensor([0, 5]), (1,), key=0)
    with pytest.raises(DataError, match=r"list of node numbers, got torch\.bool"):
        sample_neighbours(lists, torch.ones(5, dtype=torch.bool), (1,), key=0)
    for edges in (torch.tensor([[0], [5]]), torch.tensor([[5], [0]]), torch.tensor([[-1], [0]])):
        with pytest.raises(DataError, match="nodes 0 to 4"):
            NeighbourLists.from_edges(edges, 5)
    with pytest.raises(DataError, match=r"integers of shape \[2, e\]"):
        NeighbourLists.from_edges(torch.zeros(3, 2), 5)
    with pytest.raises(DataError, match=r"edge_weight must have the shape \[9\]"):
        NeighbourLists.from_edges(random_edges(5, 9), 5, torch.ones(8))
    with pytest.raises(DataError, match="indptr must be int64"):
        NeighbourLists(torch.tensor([0, 1], dtype=torch.int32), torch.tensor([0]))
    with pytest.raises(DataError, match="rise from 0 to the number of edges, 1; it ends at 2"):
        NeighbourLists(torch.tensor([0, 2]), torch.tensor([0]))
    with pytest.raises(DataError, match="sources must be int32 or int64"):
        NeighbourLists(torch.tensor([0, 1]), torch.tensor([0.0]))
    with pytest.raises(DataError, match=r"edge_ids must have the shape \[1\]"):
        NeighbourLists(torch.tensor([0, 1]), torch.tensor([0]), torch.tensor([0, 1]))
