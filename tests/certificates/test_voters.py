"""Voters are also tested through `vote`, in test_votes.py."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from wtawp.base import rng
from wtawp.certificates import Noise, vote, voters
from wtawp.certificates.noise import NoisyGraphs


def test_fewer_of_larger_graphs_are_held_together(monkeypatch: pytest.MonkeyPatch) -> None:
    def ring(size: int) -> Data:
        i = torch.arange(size)
        return Data(x=torch.ones(size, 2), edge_index=to_undirected(torch.stack([i, (i + 1) % size])))

    def room(size: int, p_add: float, **options: bool) -> int:
        return voters.at_once(NoisyGraphs.of(ring(size), None, Noise(p_add=p_add, p_del=0.1)), **options)

    for options in ({}, {"is_shared": True}):
        assert room(100, 0.001, **options) == voters.MOST_AT_ONCE["cpu"]
        assert 1 < room(20_000, 1e-6, **options) < voters.MOST_AT_ONCE["cpu"]
        assert room(20_000, 1e-4, **options) < room(20_000, 1e-6, **options)
        assert room(20_000, 0.01, **options) == 1  # 2 million edges are added
    still = NoisyGraphs.of(ring(20_000), Noise(p_add=0.02, p_del=0.5), None)
    assert voters.at_once(still) < voters.at_once(still, is_shared=True) < voters.MOST_AT_ONCE["cpu"]
    sizes: list[int] = []
    monkeypatch.setitem(voters.CELLS_AT_ONCE, "cpu", 3 * (32 * (100 + 200 + 99) + 200))
    given = {"edges": Noise(p_add=0.01, p_del=0.1), "samples": 6, "seed": 0}
    vote(ring(100), lambda x, _: sizes.append(len(x)) or x, **given)  # type: ignore[func-returns-value]
    assert max(sizes) == 300


def test_a_product_with_a_weight_in_three_parts_is_as_exact_as_one_in_float32() -> None:
    g = rng("parts")
    weight = torch.randn(13, 5, generator=g) * torch.logspace(-6, 3, 13)[:, None]
    x = (torch.rand(2, 7, 16, generator=g) < 0.5).float()
    parts = voters.weight_in_parts(weight)
    assert parts.shape == (16, 15)
    assert torch.equal(parts.double().view(16, 3, 5).sum(1), F.pad(weight, (0, 0, 0, 3)).double())
    product = voters.multiply_in_parts(x.bfloat16(), parts)
    expected = x.double() @ F.pad(weight, (0, 0, 0, 3)).double()
    assert product.dtype == torch.float32
    torch.testing.assert_close(product.double(), expected, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("part", ["features", "edges"])
def test_graphs_are_not_joined_for_a_victim_that_averages_over_all_nodes_however_weak_the_noise_is(part: str) -> None:
    i = torch.arange(12)
    data = Data(x=torch.eye(12), edge_index=to_undirected(torch.stack([i, (i + 1) % 12])))
    weight = torch.randn(12, 3, generator=rng("victim"))

    def local(x: Tensor, edge_index: Tensor) -> Tensor:
        return (x + torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]])) @ weight

    def pooled(x: Tensor, edge_index: Tensor) -> Tensor:
        logits = local(x, edge_index)
        return logits - logits.mean(0)

    for noise in (Noise(p_add=0.0, p_del=1e-6), Noise(p_add=1e-9, p_del=0.0), Noise(p_add=0.1, p_del=0.6)):
        for victim, together in ((local, voters.MOST_AT_ONCE["cpu"]), (pooled, 1)):
            graphs = NoisyGraphs.of(data, **{"features": None, "edges": None, part: noise})
            assert voters.voter_of(graphs, victim, 0, 0.0)[1] == together


def test_graphs_without_ones_are_joined_and_those_that_cannot_differ_are_not() -> None:
    empty = torch.zeros(2, 0, dtype=torch.long)
    noise = Noise(p_add=1e-3, p_del=0.1)
    for size, together in ((9, voters.MOST_AT_ONCE["cpu"]), (1, 1)):
        graphs = NoisyGraphs.of(Data(x=torch.ones(size, 2), edge_index=empty), None, noise)
        assert voters.voter_of(graphs, lambda x, _: x, 0, 0.0)[1] == together
