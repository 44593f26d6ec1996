import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state

from wtawp.base import DataError, rng
from wtawp.core import WTAWP
from wtawp.graphs import extreme_pairs, gcn_operator, knn_operator, load, sparse_features, stratified
from wtawp.models import SimPGCN
from wtawp.models.capabilities import HasExtraLoss
from wtawp.models.dropout import masks
from wtawp.training import fit

X = (torch.rand(30, 9, generator=rng("x")) < 0.3).double()
PAIRS = torch.tensor([[i, j] for i in range(30) for j in range(i + 1, 30) if (i * i + 2 * j) % 5 == 1]).T
EDGES = torch.cat([PAIRS, PAIRS.flip(0)], 1)


def small(seed: int = 0, **options: float) -> SimPGCN:
    options = {"hidden": 5, "neighbours": 4, **options}
    model = SimPGCN(9, 3, generator=rng("init", seed), **options).double()
    with torch.no_grad():
        model.conv1.gate_bias.add_(0.3)  # at first 0, where a mistake would not be seen
        model.conv2.gate_bias.sub_(0.2)
    return model


def dense(model: SimPGCN, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Logits and extra loss by the formulas, the bias added to each of the three products."""
    a, k = gcn_operator(EDGES, weight, 30, torch.float64).to_dense(), knn_operator(X, 4).to_dense()
    x, layers = X, []
    for conv in (model.conv1, model.conv2):
        share = torch.sigmoid(x @ conv.gates[:, :1] + conv.gate_bias[0])
        loop = x @ conv.gates[:, 1:] + conv.gate_bias[1]
        by_graph, by_features, alone = (m @ x @ conv.weight + conv.bias for m in (a, k, torch.eye(30).double()))
        x = share * by_graph + (1 - share) * by_features + 0.1 * loop * alone
        layers.append(x)
    (i, j), similarity = extreme_pairs(X)
    told = (layers[0][i] - layers[0][j]).abs() @ model.judge + model.judge_bias
    return x, 5 * torch.nn.functional.mse_loss(told, similarity[:, None])


def test_logits_extra_loss_and_gradients_by_dense_algebra() -> None:
    model = small().eval()
    weight = (torch.rand(EDGES.shape[1], generator=rng("w")).double() + 0.5).requires_grad_()
    wanted = [*model.parameters(), weight]
    found = [
        [logits, extra, *torch.autograd.grad(logits.logsumexp(1).sum() + extra, wanted)]
        for logits, extra in (model(X, EDGES, weight, with_extra_loss=True), dense(model, weight))
    ]
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)
    torch.testing.assert_close(model.extra_loss(X, EDGES), dense(model, None)[1], rtol=0, atol=1e-9)


def test_sparse_features_and_copies_give_the_same() -> None:
    model = small().eval()
    for arguments in ((sparse_features(X), EDGES), (X.to_sparse(), EDGES), model.prepare(X, EDGES, None)):
        torch.testing.assert_close(model(*arguments), model(X, EDGES), rtol=0, atol=1e-9)
    torch.testing.assert_close(copy.deepcopy(model)(X, EDGES), model(X, EDGES))


@pytest.mark.parametrize("num_pairs", [20, 1000])
def test_some_rows_have_the_loss_and_gradients_of_the_whole_graph(
    num_pairs: int, check_rows: Callable[..., None]
) -> None:
    model, rows = small(num_pairs=num_pairs), torch.tensor([7, 2, 9])
    check_rows(model, X, EDGES, rows, with_extra_loss=True)


@pytest.mark.parametrize("num_pairs", [20, 1000])
def test_a_stack_computes_what_its_members_compute(num_pairs: int) -> None:
    members, keys = [small(i, num_pairs=num_pairs) for i in range(3)], torch.tensor([7, 8, 9])
    with masks(keys):
        logits, extra = functional_call(members[0], stack_module_state(members), (X, EDGES), {"with_extra_loss": True})
    assert extra.shape == (3,)
    for i, member in enumerate(members):
        with masks(keys[i]):
            alone = member(X, EDGES, with_extra_loss=True)
        torch.testing.assert_close(alone, (logits[i], extra[i]), rtol=0, atol=1e-9)


def test_pairs_are_drawn_anew_at_each_pass_and_on_average_are_all_of_them() -> None:
    model, drawn = small(num_pairs=20, dropout=0.0), []
    for key in range(400):
        with masks(torch.tensor(1000 * key)):
            drawn.append(float(model.extra_loss(X, EDGES).detach()))
    assert len(set(drawn)) > 390
    everything = float(model.eval().extra_loss(X, EDGES).detach())
    assert sum(drawn) / 400 == pytest.approx(everything, rel=0.05)


def test_it_learns_and_its_first_matrix_is_perturbed() -> None:
    data = load("citation")
    model = SimPGCN(data.num_features, 7, generator=rng("init"))
    assert isinstance(model, HasExtraLoss)
    assert list(WTAWP(model, rho=0.5, lam=0.5).perturbed) == ["conv1.weight"]
    result = fit(model, data, stratified(data.y, seed=0), seed=0, epochs=40)
    assert result.loss["train"] < 0.7 * result.history["train_loss"][0]


def test_identity_features_leave_the_graph_alone_to_work_with() -> None:
    model = SimPGCN(30, 3, generator=rng("init"))
    logits, extra = model(torch.eye(30), EDGES, with_extra_loss=True)
    assert logits.isfinite().all()
    assert extra.isfinite()


def test_bad_arguments_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="neighbours must be >= 1, got 0"):
        small(neighbours=0)
    with pytest.raises(ValueError, match=r"dropout must lie in \[0, 1\), got 1"):
        small(dropout=1.0)
    with pytest.raises(ValueError, match=r"widths must be >= 1, got d_in=9, hidden=\(0,\), d_out=3"):
        small(hidden=0)
    with pytest.raises(DataError, match=r"entries must lie inside a matrix of shape \[30, 30\]"):
        small()(X, EDGES + 5)


def test_the_bias_of_the_gates_starts_where_it_is_told() -> None:
    plain, biased = (SimPGCN(9, 3, generator=rng("init"), graph_bias=bias) for bias in (0.0, 2.0))
    for conv in (biased.conv1, biased.conv2):
        assert conv.gate_bias.tolist() == [2.0, 0.0]
    for name, value in plain.state_dict().items():
        assert name.endswith("gate_bias") or torch.equal(value, biased.state_dict()[name])
    with pytest.raises(ValueError, match="graph_bias must be a finite number, got nan"):
        small(graph_bias=float("nan"))
