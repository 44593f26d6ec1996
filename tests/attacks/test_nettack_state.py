"""The closed forms of Nettack's scores, each against A_hat^2 X W of the changed graph."""

import pytest
import torch
from torch_geometric.data import Data

from wtawp.attacks.nettack_state import NettackState, cooccurring
from wtawp.base import rng
from wtawp.graphs import EdgeFlips, FeatureFlips, gcn_operator


def graph(seed: int = 0, size: int = 15) -> Data:
    g = rng("state", seed)
    upper = (torch.rand(size, size, generator=g) < 0.25).triu(1)
    x = (torch.rand(size, 6, generator=g) < 0.4).double()
    return Data(x=x, edge_index=(upper | upper.T).nonzero().T)


WEIGHTS = torch.randn(6, 4, dtype=torch.float64, generator=rng("weights"))


def margin(data: Data, target: int, label: int) -> float:
    operator = gcn_operator(data.edge_index, None, int(data.num_nodes), torch.float64).to_dense()
    logits = (operator @ operator @ data.x @ WEIGHTS)[target]
    return float(torch.cat([logits[:label], logits[label + 1 :]]).max() - logits[label])


@pytest.mark.parametrize("seed", range(3))
def test_scores_of_edges_are_those_of_the_changed_graph_also_after_flips(seed: int) -> None:
    data, target, label = graph(seed), 4, 1
    state = NettackState(data, data.x @ WEIGHTS, WEIGHTS, target, label)
    for a, b in ((4, 2), (4, 9), (7, 3), (1, 6)):
        assert float(state.margin(state.logits)) == pytest.approx(margin(data, target, label))
        for attacker in (target, 7, 1):
            scores = state.edge_scores(attacker)
            for other in set(range(15)) - {attacker, target}:
                flipped = EdgeFlips.of(torch.tensor([[attacker], [other]]), 15).apply(data)
                assert float(scores[other]) == pytest.approx(margin(flipped, target, label))
        state.flip_edge(a, b)
        data = EdgeFlips.of(torch.tensor([[a], [b]]), 15).apply(data)
    assert state.flipped_pairs == [(4, 2), (4, 9), (7, 3), (1, 6)]


def test_scores_of_features_are_those_of_the_changed_graph_also_after_flips() -> None:
    data, target, label = graph(), 4, 1
    state = NettackState(data, data.x @ WEIGHTS, WEIGHTS, target, label)
    for node, feature in ((4, 0), (2, 5), (7, 1)):
        for attacker in (target, 2, 7):
            scores = state.entry_scores(attacker, data.x[attacker])
            for other in range(6):
                flipped = FeatureFlips(torch.tensor([[attacker], [other]]), 15, 6).apply(data)
                assert float(scores[other]) == pytest.approx(margin(flipped, target, label))
        state.flip_entry(node, feature, is_present=bool(data.x[node, feature] > 0))
        data = FeatureFlips(torch.tensor([[node], [feature]]), 15, 6).apply(data)


def test_pairs_are_flipped_once_and_no_node_is_left_alone() -> None:
    path = Data(x=torch.ones(4, 6).double(), edge_index=torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]))
    state = NettackState(path, path.x @ WEIGHTS, WEIGHTS, 1, 0)
    assert state.allowed_edges(1, None).tolist() == [False, False, True, True]  # node 0 has no other neighbour
    assert state.allowed_edges(2, None).tolist() == [True, False, False, False]  # not the edge of the target
    state.flip_edge(1, 3)
    assert state.allowed_edges(1, None).tolist() == [False, False, True, False]


def test_features_may_be_added_where_they_co_occur_with_most_of_those_of_the_node() -> None:
    x = torch.tensor([[1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 1], [0, 0, 0, 0, 0]]).float()
    # features 0, 1 and 2 are joined to each other, 3 to 4; node 0 has 0 and 1
    assert cooccurring(x, 0).tolist() == [False, False, True, False, False]
    assert cooccurring(x, 3).tolist() == [False] * 5  # 3 and 4 have each other, half of the greatest probability
    assert cooccurring(x, 4).tolist() == [False] * 5  # no features, nowhere to start
