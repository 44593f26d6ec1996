from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GINConv

from wtawp.base import DataError, rng
from wtawp.core import WTAWP
from wtawp.graphs import gcn_operator, load, receptive_field, sparse_features, sum_operator
from wtawp.models import GIN

EDGES = torch.tensor([[0, 1, 1, 2, 2, 1], [1, 0, 2, 1, 2, 2]])  # a self-loop, an edge given twice; node 3 is isolated
X = torch.randn(4, 13, generator=rng("x"))
THEIR_NAMES = {
    "first_weight": "nn.0.weight",
    "first_bias": "nn.0.bias",
    "second_weight": "nn.2.weight",
    "second_bias": "nn.2.bias",
    "eps": "eps",
}


class Pyg(nn.Module):
    """The same model of PyG's layers."""

    def __init__(self, ours: GIN, eps: float, train_eps: bool) -> None:
        super().__init__()
        shapes = [(*c.first_weight.shape, c.second_weight.shape[1]) for c in ours.convs]
        self.convs = nn.ModuleList(
            GINConv(nn.Sequential(nn.Linear(a, h), nn.ReLU(), nn.Linear(h, b)), eps, train_eps) for a, h, b in shapes
        )
        weights = {theirs_of(n): p.detach().T if p.dim() == 2 else p for n, p in ours.named_parameters()}
        self.load_state_dict(weights, strict=train_eps)  # a fixed eps is a buffer of theirs and a number of ours

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv in self.convs[:-1]:
            x = conv(x, edge_index).relu()
        return self.convs[-1](x, edge_index)


def theirs_of(name: str) -> str:
    conv, own = name.rsplit(".", 1)
    return f"{conv}.{THEIR_NAMES[own]}"


def twins(hidden: tuple[int, ...] = (16,), eps: float = 0.0, train_eps: bool = False) -> tuple[GIN, Pyg]:
    ours = GIN(13, 3, hidden=hidden, eps=eps, train_eps=train_eps, dropout=0.0, generator=rng("init"))
    return ours, Pyg(ours, eps, train_eps)


def graphs() -> list[tuple[Tensor, Tensor]]:
    wine = load("wine")
    return [(wine.x, wine.edge_index), (X, EDGES)]


@pytest.mark.parametrize("hidden", [(), (16,), (8, 8)])  # wider and narrower than the 13 features
@pytest.mark.parametrize(("x", "edges"), graphs(), ids=["wine", "loops"])
@pytest.mark.parametrize(("eps", "train_eps"), [(0.0, False), (0.3, False), (0.3, True)])
def test_logits_and_gradients_equal_pyg_s(
    hidden: tuple[int, ...], x: Tensor, edges: Tensor, eps: float, train_eps: bool
) -> None:
    ours, theirs = twins(hidden, eps, train_eps)
    torch.testing.assert_close(ours(x, edges), theirs(x, edges), rtol=1e-5, atol=1e-5)
    ours = ours.double()
    theirs, x = Pyg(ours, eps, train_eps).double(), x.double()
    with torch.no_grad():  # 0.3 has other digits in float32
        for a, b in zip(ours.convs, theirs.convs, strict=True):
            b.eps.fill_(float(a.eps))
    for model in (ours, theirs):
        model(x, edges).logsumexp(1).sum().backward()
    their_grads = {n: p.grad for n, p in theirs.named_parameters()}
    for name, p in ours.named_parameters():
        expected = their_grads[theirs_of(name)]
        torch.testing.assert_close(p.grad, expected.T if p.dim() == 2 else expected, rtol=1e-9, atol=1e-9)


def test_an_operator_or_sparse_features_may_stand_in() -> None:
    model, _ = twins()
    x = X.relu()
    expected = model(x, EDGES)
    torch.testing.assert_close(model(x, sum_operator(EDGES, None, 4)), expected)
    torch.testing.assert_close(model(sparse_features(x), EDGES), expected)
    torch.testing.assert_close(model(x.to_sparse(), EDGES), expected)
    torch.testing.assert_close(model(*model.prepare(x, EDGES, None)), expected)


@pytest.mark.parametrize("hidden", [(), (16,), (16, 8)])
@pytest.mark.parametrize("dense", [False, True])
def test_blocks_give_the_loss_and_gradients_of_the_whole_graph(
    hidden: tuple[int, ...], dense: bool, check_rows: Callable[..., None]
) -> None:
    data = load("citation")
    rows, x = torch.tensor([3, 700, 12, 1999]), data.x.double() + 0.1 * dense
    edges = data.edge_index[:, (data.edge_index != 700).all(0)]  # node 700 is isolated
    model = GIN(data.num_features, 7, hidden=hidden, eps=0.1, train_eps=True, generator=rng("init")).double()
    check_rows(model, x, edges, rows)


def test_a_node_without_neighbours_is_mapped_alone() -> None:
    model, _ = twins((), eps=0.5)
    conv = model.convs[0]
    hidden = (1.5 * X[3] @ conv.first_weight + conv.first_bias).relu()
    torch.testing.assert_close(model(X, EDGES)[3], hidden @ conv.second_weight + conv.second_bias)


@pytest.mark.parametrize("layers", ["all-but-last", "last", "all"])
@pytest.mark.parametrize("train_eps", [False, True])
def test_the_perturbation_takes_the_matrices_it_takes_of_pyg_s(layers: str, train_eps: bool) -> None:
    pair = twins((16, 16), train_eps=train_eps)
    ours, theirs = (WTAWP(m, rho=0.5, lam=0.5, layers=layers).perturbed for m in pair)
    assert [theirs_of(n) for n in ours] == list(theirs)
    assert list(ours.values()) == pytest.approx(list(theirs.values()))


def test_dropout_works_between_layers_and_only_in_training(check_dropout: Callable[..., None]) -> None:
    check_dropout(GIN(13, 3, dropout=0.9, generator=rng("init")), X, EDGES)


def test_edge_weights_of_0_and_1_take_edges_away_and_gradients_are_finite_differences(
    check_edge_weights: Callable[..., None],
) -> None:
    check_edge_weights(GIN(5, 3, hidden=(4,), generator=rng("init")).double().eval())


def test_bad_arguments_say_what_is_wrong() -> None:
    model, _ = twins()
    with pytest.raises(DataError, match=r"entries must lie inside a matrix of shape \[3, 3\]"):
        model(X[:3], EDGES + 1)
    with pytest.raises(ValueError, match=r"use receptive_field\(operator, rows, 2\)"):
        model(X, receptive_field(gcn_operator(EDGES, None, 4), EDGES[0, :2], 1))
    with pytest.raises(ValueError, match=r"widths must be >= 1, got d_in=13, hidden=\(64,\), d_out=0"):
        GIN(13, 0, generator=rng("init"))
    with pytest.raises(ValueError, match=r"dropout must lie in \[0, 1\), got -0.5"):
        GIN(13, 3, dropout=-0.5, generator=rng("init"))
