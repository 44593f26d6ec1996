import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from wtawp.attacks.random_attack import first_of_each, random_flips
from wtawp.graphs import undirected_pairs


@given(
    size=st.integers(2, 12), seed=st.integers(0, 1000), present=st.lists(st.booleans(), min_size=66, max_size=66),
    share=st.floats(0.01, 1),
)  # fmt: skip
def test_any_budget_on_any_graph_is_spent_to_the_last_flip(
    size: int, seed: int, present: list[bool], share: float
) -> None:
    pairs = torch.triu_indices(size, size, 1)
    kept = pairs[:, torch.tensor(present[: pairs.shape[1]])]
    data = Data(edge_index=torch.cat([kept, kept.flip(0)], dim=1), num_nodes=size)
    if kept.shape[1] == 0:
        return
    count = max(1, int(share * kept.shape[1]))
    flips = random_flips(data, budget=count, seed=seed)
    assert len(flips) == count
    assert undirected_pairs(flips.apply(data)).shape[1] == kept.shape[1] + flips.num_added(data) - flips.num_removed(
        data
    )


def test_all_pairs_are_equally_likely_on_both_ways_of_drawing() -> None:
    ring = torch.stack([torch.arange(6), (torch.arange(6) + 1) % 6])
    data = Data(edge_index=torch.cat([ring, ring.flip(0)], dim=1), num_nodes=6)
    for count in (2, 5):  # 15 pairs: by rejection, by shuffling
        seen = torch.zeros(6, 6)
        for seed in range(1000):
            i, j = random_flips(data, budget=count, seed=seed).pairs
            seen[i, j] += 1
        expected = 1000 * count / 15
        drawn = seen[tuple(torch.triu_indices(6, 6, 1))]
        assert ((drawn - expected) ** 2 / expected).sum() < 40  # chi-squared with 14 degrees: p < 0.0003


def test_the_first_of_each_stays_in_order() -> None:
    assert first_of_each(torch.tensor([5, 2, 5, 9, 2, 1])).tolist() == [5, 2, 9, 1]
