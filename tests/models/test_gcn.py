from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch_geometric.nn.models import basic_gnn

from wtawp.base import rng
from wtawp.core import select
from wtawp.graphs import gcn_operator, load, sparse_features, stratified
from wtawp.models import GCN
from wtawp.models.gcn import linear_gcn
from wtawp.training import fit


def twins(hidden: tuple[int, ...] = (16,)) -> tuple[GCN, basic_gnn.GCN]:
    """Our GCN and PyG's with the same weights."""
    ours = GCN(13, 3, hidden=hidden, dropout=0.0, generator=rng("init"))
    theirs = basic_gnn.GCN(13, hidden[0], len(hidden) + 1, 3)
    with torch.no_grad():
        for a, b in zip(ours.convs, theirs.convs, strict=True):
            b.lin.weight.copy_(a.weight.T)
            b.bias.copy_(a.bias)
    return ours, theirs


@pytest.mark.parametrize("hidden", [(16,), (16, 16)])
@pytest.mark.parametrize("weighted", [False, True])
def test_logits_and_gradients_equal_pyg_s(hidden: tuple[int, ...], weighted: bool) -> None:
    data = load("wine")
    weight = torch.rand(data.edge_index.shape[1], generator=rng("weights")) if weighted else None
    ours, theirs = twins(hidden)
    a, b = ours(data.x, data.edge_index, weight), theirs(data.x, data.edge_index, edge_weight=weight)
    torch.testing.assert_close(a, b, rtol=0, atol=1e-5)
    a.logsumexp(1).sum().backward()
    b.logsumexp(1).sum().backward()
    for p, q in zip(ours.convs, theirs.convs, strict=True):
        torch.testing.assert_close(p.weight.grad, q.lin.weight.grad.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("hidden", [(16,), (16, 8)])
def test_a_linear_gcn_is_a_product_of_matrices_and_its_biases_stay_0(hidden: tuple[int, ...]) -> None:
    data = load("wine")
    model = linear_gcn(13, 3, hidden=hidden, generator=rng("init"))
    adjacency = torch.eye(data.num_nodes).index_put(tuple(data.edge_index), torch.tensor(1.0))
    root = adjacency.sum(1).rsqrt()
    expected = data.x
    for conv in model.convs:
        expected = root[:, None] * adjacency * root @ expected @ conv.weight
    torch.testing.assert_close(model(data.x, data.edge_index), expected, rtol=0, atol=1e-5)
    fit(model, data, stratified(data.y, seed=0), seed=0, epochs=3, weight_decay=0.0)
    assert all(float(conv.bias.abs().max()) == 0 for conv in model.convs)
    assert model.convolution_weights() == []  # fast paths for stacks with ReLU must not take it


def test_an_operator_may_stand_in_for_the_edges() -> None:
    data, (model, _) = load("wine"), twins()
    operator = gcn_operator(data.edge_index, None, data.num_nodes)
    torch.testing.assert_close(model(data.x, operator), model(data.x, data.edge_index))


@pytest.mark.parametrize("hidden", [(16,), (16, 8)])
def test_blocks_give_the_loss_and_gradients_of_the_whole_graph(
    hidden: tuple[int, ...], check_rows: Callable[..., None]
) -> None:
    data = load("citation")
    rows = torch.tensor([3, 700, 12, 1999])
    model = GCN(data.num_features, 7, hidden=hidden, generator=rng("init")).double()
    x = data.x.double()
    check_rows(model, x, data.edge_index, rows)


def test_dropout_works_on_the_hidden_layer_and_only_in_training(check_dropout: Callable[..., None]) -> None:
    data = load("wine")
    check_dropout(GCN(13, 3, dropout=0.9, generator=rng("init")), data.x, data.edge_index)


def test_its_first_layer_is_what_the_paper_perturbs() -> None:
    assert select(GCN(13, 3, generator=rng("init"))) == ("convs.0.weight",)


class Dense:
    """Stands in for an operator."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix

    def __matmul__(self, dense: Tensor) -> Tensor:
        return self.matrix @ dense


@pytest.mark.parametrize("hidden", [(16,), (16, 16)])
@pytest.mark.parametrize("sparse", [False, True])
def test_it_sees_the_graph_only_through_the_view_it_names(hidden: tuple[int, ...], sparse: bool) -> None:
    data = load("wine")
    model = GCN(13, 3, hidden=hidden, generator=rng("init")).eval()
    (view,) = model.graph_operators()
    matrix = gcn_operator(data.edge_index, None, data.num_nodes, power=view.power).to_dense()
    x = sparse_features(data.x) if sparse else data.x
    torch.testing.assert_close(model(*model.forward_args(x, (Dense(matrix),))), model(data.x, data.edge_index))
