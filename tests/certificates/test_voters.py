"""Voters are also tested through `vote`, in test_votes.py."""

import pytest
import torch
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
