import copy

import torch
from torch import Tensor

from wtawp.graphs import gcn_operator
from wtawp.models.adapter import OperatorCache

EDGES = torch.tensor([[0, 1], [1, 0]])
X = torch.ones(3, 2)


def counted() -> tuple[OperatorCache, list[int]]:
    calls: list[int] = []

    def build(edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int, dtype: torch.dtype) -> Tensor:
        calls.append(num_nodes)
        return gcn_operator(edge_index, edge_weight, num_nodes, dtype)

    return OperatorCache(build), calls


def test_the_same_edges_are_built_once() -> None:
    cache, calls = counted()
    assert cache(EDGES, None, X) is cache(EDGES, None, X)
    assert calls == [3]


def test_anything_else_is_built_anew() -> None:
    cache, calls = counted()
    edges, weight = EDGES.clone(), torch.ones(2)
    cache(edges, None, X)
    cache(edges, weight, X)
    cache(edges, None, X[:2])
    cache(edges, None, X[:2].double())
    edges[:, 0] = torch.tensor([1, 1])  # changed in place
    changed = cache(edges, None, X[:2].double())
    cache(edges.clone(), None, X[:2].double())
    assert len(calls) == 6
    torch.testing.assert_close(changed, gcn_operator(edges, None, 2, torch.float64))


def test_a_new_tensor_at_an_old_address_is_not_mistaken_for_the_old_one() -> None:
    cache, calls = counted()
    for i in range(5):
        cache(torch.tensor([[0, 1], [1, i % 2]]), None, X)
    assert len(calls) == 5


def test_weights_that_need_gradients_are_never_cached() -> None:
    cache, calls = counted()
    weight = torch.ones(2, requires_grad=True)
    for _ in range(2):
        (cache(EDGES, weight, X) @ X).sum().backward()
    assert len(calls) == 2
    assert weight.grad is not None


def test_an_operator_passes_through_and_a_copy_starts_empty() -> None:
    cache, calls = counted()
    operator = gcn_operator(EDGES, None, 3)
    assert cache(operator, None, X) is operator
    cache(EDGES, None, X)
    copy.deepcopy(cache)(EDGES, None, X)
    assert len(calls) == 2
