import copy
import pickle

import torch
from torch import Tensor

from wtawp.graphs import Operator, gcn_operator, load, spmm
from wtawp.models import GCN
from wtawp.models.caches import LastCallCache, OperatorCache

EDGES = torch.tensor([[0, 1], [1, 0]])
X = torch.ones(3, 2)


def counted() -> tuple[OperatorCache, list[int]]:
    calls: list[int] = []

    def build(edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int, dtype: torch.dtype) -> Operator:
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
    torch.testing.assert_close(changed.to_dense(), gcn_operator(edges, None, 2, torch.float64).to_dense())


def test_a_new_tensor_at_an_old_address_is_not_mistaken_for_the_old_one() -> None:
    cache, calls = counted()
    for i in range(5):
        cache(torch.tensor([[0, 1], [1, i % 2]]), None, X)
    assert len(calls) == 5


def test_weights_that_need_gradients_are_never_cached() -> None:
    cache, calls = counted()
    weight = torch.ones(2, requires_grad=True)
    for _ in range(2):
        spmm(cache(EDGES, weight, X), X).sum().backward()
    assert len(calls) == 2
    assert weight.grad is not None


def test_an_operator_passes_through_and_a_copy_starts_empty() -> None:
    cache, calls = counted()
    operator = gcn_operator(EDGES, None, 3)
    assert cache(operator, None, X) is operator
    cache(EDGES, None, X)
    copy.deepcopy(cache)(EDGES, None, X)
    assert len(calls) == 2


def test_a_used_model_can_be_saved() -> None:
    data = load("wine")
    model = GCN(13, 3, generator=torch.Generator().manual_seed(0)).eval()
    before = model(data.x, data.edge_index)
    assert torch.equal(pickle.loads(pickle.dumps(model))(data.x, data.edge_index), before)


def test_edges_made_in_inference_mode_are_not_cached() -> None:
    cache, calls = counted()
    with torch.inference_mode():
        edges = EDGES.clone()
        cache(edges, None, X)
        cache(edges, None, X)
    assert len(calls) == 2


def test_what_was_built_last_is_kept_while_its_tensors_stay_as_they_are() -> None:
    calls = []

    def build(*given: object) -> int:
        calls.append(given)
        return len(calls)

    kept, x, edges = LastCallCache(build), torch.ones(3, 2), torch.tensor([[0, 1], [1, 0]])
    assert [kept(edges, None, x, 3), kept(edges, None, x, 3)] == [1, 1]
    assert kept(edges, None, x, 4) == 2
    x[0] = 0  # changed in place
    assert [kept(edges, None, x, 4), kept(edges, None, x, 4)] == [3, 3]
    assert kept(edges, None, x.clone(), 4) == 4
    assert kept(edges, x, None, 4) == 5  # the same tensors in other places
    weight = torch.ones(2, requires_grad=True)
    assert [kept(edges, weight), kept(edges, weight)] == [6, 7]
    with torch.inference_mode():
        new = torch.ones(2)
        assert [kept(new), kept(new)] == [8, 9]
    assert copy.deepcopy(kept)(edges, x, None, 4) == 10
