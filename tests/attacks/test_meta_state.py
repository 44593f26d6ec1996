"""One attack's state: its edges under flips, and the gradient of pairs from factors."""

import math

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from wtawp.attacks.meta_state import MetaState, PairGradient
from wtawp.base import rng
from wtawp.models.inputs import features

PATH = Data(
    x=torch.eye(4, dtype=torch.float64),
    y=torch.tensor([0, 1, 0, 1]),
    edge_index=torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]),
)


def state(train: Tensor | None = None) -> MetaState:
    nodes = torch.tensor([0, 1]) if train is None else train
    return MetaState(PATH, features(PATH.x), nodes, None, PATH.y, 2, 0, 0.0)


def test_a_flip_adds_an_edge_or_removes_it() -> None:
    attacked = state()
    assert attacked.degree.tolist() == [1, 2, 2, 1]
    attacked.flip(torch.tensor(3))  # (0, 3)
    assert attacked.edges.tolist() == [1, 3, 6, 11]
    attacked.flip(torch.tensor(6))  # (1, 2)
    assert attacked.edges.tolist() == [1, 3, 11]
    assert attacked.flipped.tolist() == [3, 6]
    assert attacked.original_degree.tolist() == [1, 2, 2, 1]


def test_training_rows_are_those_of_the_normalised_graph_applied_twice() -> None:
    attacked = state(torch.tensor([True, False, False, True]))
    adjacency = torch.eye(4, dtype=torch.float64)
    adjacency[PATH.edge_index[0], PATH.edge_index[1]] = 1
    scale = adjacency.sum(1).rsqrt()
    hat = scale[:, None] * adjacency * scale
    assert torch.allclose(attacked.build(), (hat @ hat @ PATH.x)[[0, 3]])


@pytest.mark.parametrize("is_sparse", [False, True])
def test_blocks_hold_the_symmetric_product_of_the_factors(is_sparse: bool) -> None:
    g, size = rng("pair gradient"), 40
    t, u, v = (torch.randn(size, width, generator=g, dtype=torch.float64) for width in (1, 50, 50))
    if is_sparse:
        u = torch.where(torch.rand(size, 50, generator=g) < 0.02, u, 0)
    gradient = PairGradient(t, [(u, v)])
    assert bool(gradient.sparse) == is_sparse
    whole = t + t.T + u @ v.T + v @ u.T
    for first, last in ((0, size), (3, 9)):
        assert torch.allclose(gradient.block(first, last), whole[first:last, first:])


def test_weights_are_drawn_anew_for_each_flip() -> None:
    one, again, other = (state().first_weights(flip, 3, "uniform") for flip in (0, 0, 1))
    assert [w.shape for w in one] == [(4, 3), (3, 2)]
    assert torch.equal(one[0], again[0])
    assert not torch.equal(one[0], other[0])


def test_the_first_weights_fill_the_interval_of_their_rule() -> None:
    bounds = {"uniform": (1 / math.sqrt(3), 1 / math.sqrt(2)), "glorot": (math.sqrt(6 / 7), math.sqrt(6 / 5))}
    for initial, expected in bounds.items():
        draws = [state().first_weights(flip, 3, initial) for flip in range(200)]  # type: ignore[arg-type]
        for layer, bound in enumerate(expected):
            largest = max(float(weights[layer].abs().max()) for weights in draws)
            assert 0.98 * bound < largest <= bound
