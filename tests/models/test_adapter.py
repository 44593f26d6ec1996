import copy
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, SGConv

from wtawp.base import WtawpError
from wtawp.graphs import Operator, gcn_operator, load, spmm
from wtawp.models import GCN
from wtawp.models.adapter import LastCallCache, OperatorCache, evaluating, features, prepare, refuse_cached

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


def test_bags_of_words_become_sparse_and_dense_features_stay() -> None:
    assert isinstance(features(load("citation").x), Operator)
    assert isinstance(features(load("wine").x), Tensor)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("rows", [None, torch.tensor([5, 2])])
def test_sparse_tensors_stay_sparse(rows: Tensor | None) -> None:
    x = load("wine").x
    for given in (x.to_sparse(), x.to_sparse_csr()):
        found = features(given, rows)
        assert isinstance(found, Operator)
        assert torch.equal(found.to_dense(), x if rows is None else x[rows])


def test_a_foreign_module_gets_the_graph_as_it_is() -> None:
    data = load("wine")
    rows = torch.tensor([1, 2])
    assert prepare(torch.nn.Linear(13, 3), data, rows) == ((data.x, data.edge_index), rows)


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


def test_modes_come_back_also_after_an_error() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Dropout()).train()
    model[0].eval()
    with pytest.raises(KeyError), evaluating(model):
        assert not any(module.training for module in model.modules())
        raise KeyError
    assert [module.training for module in model.modules()] == [True, False, True]
    with evaluating(lambda x, _: x):  # a callable that is no module has no mode
        pass


def test_layers_that_keep_the_first_graph_are_refused() -> None:
    class Own(nn.Module):
        def __init__(self, layer: nn.Module) -> None:
            super().__init__()
            self.layer = layer

        def cached(self) -> None:
            """Something else by that name."""

    with torch.random.fork_rng():
        for fine in (GCNConv(2, 2), Own(SGConv(2, 2)), nn.Linear(2, 2), lambda x, _: x):
            refuse_cached(fine)
        with pytest.raises(WtawpError, match=r"Own\.layer, a SGConv, keeps the graph it saw first \(cached=True\)"):
            refuse_cached(Own(SGConv(2, 2, cached=True)))
        with pytest.raises(WtawpError, match=r"the model, a GCNConv, .* build it with cached=False"):
            refuse_cached(GCNConv(2, 2, cached=True))
