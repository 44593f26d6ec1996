from collections.abc import Callable

import torch
from torch_geometric.nn import GATConv

from wtawp.base import rng
from wtawp.core import select
from wtawp.graphs import load
from wtawp.models import GAT
from wtawp.models.dropout import masks


def test_logits_and_gradients_equal_pyg_s() -> None:
    data = load("wine")
    model = GAT(13, 3, dropout=0.0, generator=rng("init"))
    layers = [GATConv(13, 8, heads=8), GATConv(64, 3, heads=1, concat=False)]
    with torch.no_grad():
        for ours, theirs in zip(model.convs, layers, strict=True):
            theirs.lin.weight.copy_(ours.lin.weight.T)
            theirs.att_src.copy_(ours.att_src[None])
            theirs.att_dst.copy_(ours.att_dst[None])
            theirs.bias.copy_(ours.bias)
    a = model(data.x, data.edge_index)
    b = layers[1](torch.nn.functional.elu(layers[0](data.x, data.edge_index)), data.edge_index)
    torch.testing.assert_close(a, b, rtol=0, atol=1e-5)
    a.logsumexp(1).sum().backward()
    b.logsumexp(1).sum().backward()
    for ours, theirs in zip(model.convs, layers, strict=True):
        torch.testing.assert_close(ours.lin.weight.grad, theirs.lin.weight.grad.T, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(ours.att_src.grad, theirs.att_src.grad[0], rtol=1e-4, atol=1e-4)


def test_prepared_rows_give_the_loss_and_gradients_of_the_whole_graph_under_the_same_masks() -> None:
    data, rows = load("citation"), torch.tensor([3, 700, 12])
    model = GAT(data.num_features, 7, generator=rng("init")).double()
    x, results = data.x.double(), []
    for arguments, taken in ((model.prepare(x, data.edge_index, rows), slice(None)), ((x, data.edge_index), rows)):
        with masks(torch.tensor(5)):
            loss = torch.nn.functional.cross_entropy(model(*arguments)[taken], data.y[rows])
        results.append((loss, *torch.autograd.grad(loss, list(model.parameters()))))
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=1e-9)


def test_its_first_linear_map_is_perturbed_and_not_its_attention() -> None:
    assert select(GAT(13, 3, generator=rng("init"))) == ("convs.0.lin.weight",)


def test_edge_weights_of_0_and_1_take_edges_away_and_gradients_are_finite_differences(
    check_edge_weights: Callable[..., None],
) -> None:
    check_edge_weights(GAT(5, 3, width=2, heads=2, generator=rng("init")).double().eval())
