from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch_geometric.nn.models import basic_gnn

from wtawp.base import DataError, rng
from wtawp.core import WTAWP
from wtawp.graphs import gcn_operator, load, mean_operator, receptive_field, sparse_features
from wtawp.models import GraphSAGE

EDGES = torch.tensor([[0, 1, 1, 2, 2, 1], [1, 0, 2, 1, 2, 2]])  # a self-loop, an edge given twice; node 3 is isolated
X = torch.randn(4, 13, generator=rng("x"))
THEIR_NAMES = {"neighbour_weight": "lin_l.weight", "own_weight": "lin_r.weight", "bias": "lin_l.bias"}


def theirs_of(name: str) -> str:
    conv, own = name.rsplit(".", 1)
    return f"{conv}.{THEIR_NAMES[own]}"


def twins(hidden: tuple[int, ...] = (16,)) -> tuple[GraphSAGE, basic_gnn.GraphSAGE]:
    """Our GraphSAGE and PyG's with the same weights."""
    ours = GraphSAGE(13, 3, hidden=hidden, dropout=0.0, generator=rng("init"))
    theirs = basic_gnn.GraphSAGE(13, hidden[0] if hidden else 3, len(hidden) + 1, 3)
    theirs.load_state_dict({theirs_of(n): p.detach().T if p.dim() == 2 else p for n, p in ours.named_parameters()})
    return ours, theirs


def graphs() -> list[tuple[Tensor, Tensor]]:
    wine = load("wine")
    return [(wine.x, wine.edge_index), (X, EDGES)]


@pytest.mark.parametrize("hidden", [(), (16,), (8, 8)])  # wider and narrower than the 13 features
@pytest.mark.parametrize(("x", "edges"), graphs(), ids=["wine", "loops"])
def test_logits_and_gradients_equal_pyg_s(hidden: tuple[int, ...], x: Tensor, edges: Tensor) -> None:
    ours, theirs = twins(hidden)
    torch.testing.assert_close(ours(x, edges), theirs(x, edges), rtol=0, atol=1e-5)
    ours, theirs, x = ours.double(), theirs.double(), x.double()
    for model in (ours, theirs):
        model(x, edges).logsumexp(1).sum().backward()
    their_grads = {n: p.grad for n, p in theirs.named_parameters()}
    for name, p in ours.named_parameters():
        expected = their_grads[theirs_of(name)]
        torch.testing.assert_close(p.grad, expected.T if p.dim() == 2 else expected, rtol=0, atol=1e-9)


def test_an_operator_or_sparse_features_may_stand_in() -> None:
    model, _ = twins()
    x = X.relu()
    expected = model(x, EDGES)
    torch.testing.assert_close(model(x, mean_operator(EDGES, None, 4)), expected)
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
    model = GraphSAGE(data.num_features, 7, hidden=hidden, generator=rng("init")).double()
    check_rows(model, x, edges, rows)


def test_a_node_without_neighbours_is_mapped_alone() -> None:
    model, _ = twins(())
    conv = model.convs[0]
    torch.testing.assert_close(model(X, EDGES)[3], X[3] @ conv.own_weight + conv.bias)
    assert model(X, EDGES[:, :0]).isfinite().all()


@pytest.mark.parametrize("layers", ["all-but-last", "last", "all"])
def test_the_perturbation_takes_the_matrices_it_takes_of_pyg_s(layers: str) -> None:
    ours, theirs = (WTAWP(m, rho=0.5, lam=0.5, layers=layers).perturbed for m in twins((16, 16)))
    assert [theirs_of(n) for n in ours] == list(theirs)
    assert list(ours.values()) == pytest.approx(list(theirs.values()))


def test_dropout_works_between_layers_and_only_in_training(check_dropout: Callable[..., None]) -> None:
    check_dropout(GraphSAGE(13, 3, dropout=0.9, generator=rng("init")), X, EDGES)


def test_edge_weights_of_0_and_1_take_edges_away_and_gradients_are_finite_differences(
    check_edge_weights: Callable[..., None],
) -> None:
    check_edge_weights(GraphSAGE(5, 3, hidden=(4,), generator=rng("init")).double().eval())


def test_bad_arguments_say_what_is_wrong() -> None:
    model, _ = twins()
    with pytest.raises(DataError, match=r"entries must lie inside a matrix of shape \[3, 3\]"):
        model(X[:3], EDGES + 1)
    operator = gcn_operator(EDGES, None, 4)
    with pytest.raises(ValueError, match=r"use receptive_field\(operator, rows, 2\)"):
        model(X, receptive_field(operator, EDGES[0, :2], 1))
    with pytest.raises(ValueError, match=r"widths must be >= 1, got d_in=13, hidden=\(0,\), d_out=3"):
        GraphSAGE(13, 3, hidden=(0,), generator=rng("init"))
    with pytest.raises(ValueError, match=r"dropout must lie in \[0, 1\), got 1"):
        GraphSAGE(13, 3, dropout=1.0, generator=rng("init"))
