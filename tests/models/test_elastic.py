from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from wtawp.attacks import prbcd
from wtawp.base import rng
from wtawp.core import AwpConfig, select
from wtawp.graphs import citation, gcn_operator, stratified
from wtawp.models import PPNP, ElasticGNN
from wtawp.models.elastic import Penalty, elastic_smoothing, incidence_operator
from wtawp.training import evaluate, fit, fit_many

X = torch.randn(12, 9, generator=rng("x"), dtype=torch.float64)
PAIRS = torch.tensor([[i, j] for i in range(12) for j in range(i + 1, 12) if (i + 2 * j) % 3 == 0]).T
EDGES = torch.cat([PAIRS, PAIRS.flip(0)], 1)
LOCAL = 3 * torch.randn(12, 4, generator=rng("local"), dtype=torch.float64)


def small(**options: object) -> ElasticGNN:
    return ElasticGNN(9, 3, hidden=5, generator=rng("init"), **options).double().eval()  # type: ignore[arg-type]


def dense_parts(weight: Tensor) -> tuple[Tensor, Tensor]:  # [m] -> [n, n], [m, n]
    """The normalised adjacency matrix, and the incidence matrix of the edges divided by the roots of degrees."""
    adjacency, incidence = torch.eye(12, dtype=torch.float64), torch.zeros(PAIRS.shape[1], 12, dtype=torch.float64)
    for e, (i, j) in enumerate(PAIRS.T.tolist()):
        adjacency[i, j] = adjacency[j, i] = weight[e]
        incidence[e, i], incidence[e, j] = 1, -1
    root = adjacency.sum(1).sqrt()
    return adjacency / root[:, None] / root, incidence / root


def naive(local: Tensor, weight: Tensor, steps: int, lambda1: float, lambda2: float, penalty: Penalty) -> Tensor:
    """The proximal iterations of the paper with dense matrices, and a dual variable for each undirected edge."""
    a, delta = dense_parts(weight)
    gamma = 1 / (1 + lambda2)
    beta = 1 / (2 * gamma)
    f, z = local.clone(), torch.zeros(len(delta), local.shape[1], dtype=local.dtype)
    for _ in range(steps):
        y = gamma * local + (1 - gamma) * a @ f
        z = z + beta * delta @ (y - gamma * delta.T @ z)
        for e in range(len(z)):
            most = lambda1 * float(weight[e])
            if penalty == "l1":
                z[e] = z[e].sign() * z[e].abs().clamp_max(most)
            elif float(z[e].norm()) > most:
                z[e] = z[e] / z[e].norm() * most
        f = y - gamma * delta.T @ z
    return f


def objective(f: Tensor, lambda1: float, lambda2: float, penalty: Penalty) -> float:
    _, delta = dense_parts(torch.ones(PAIRS.shape[1]))
    differences = delta @ f
    size = differences.abs().sum() if penalty == "l1" else differences.norm(dim=1).sum()
    return float((f - LOCAL).square().sum() / 2 + lambda1 * size + lambda2 / 2 * differences.square().sum())


def smoothed(weight: Tensor | None = None, **options: object) -> Tensor:
    both = None if weight is None else torch.cat([weight, weight])
    operator = gcn_operator(EDGES, both, 12, torch.float64, power=0.0)
    return elastic_smoothing(LOCAL, operator, incidence_operator(operator), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("penalty", ["l21", "l1"])
@pytest.mark.parametrize(("lambda1", "lambda2"), [(3.0, 3.0), (0.2, 0.0), (0.5, 6.0)])
def test_it_computes_the_proximal_iterations_of_the_paper(lambda1: float, lambda2: float, penalty: Penalty) -> None:
    options = {"lambda1": lambda1, "lambda2": lambda2, "penalty": penalty}
    for steps in (1, 2, 10):
        expected = naive(LOCAL, torch.ones(PAIRS.shape[1]).double(), steps, lambda1, lambda2, penalty)
        torch.testing.assert_close(smoothed(steps=steps, **options), expected, rtol=0, atol=1e-10)
    weight = torch.rand(PAIRS.shape[1], generator=rng("w"), dtype=torch.float64)
    expected = naive(LOCAL, weight, 5, lambda1, lambda2, penalty)
    torch.testing.assert_close(smoothed(weight, steps=5, **options), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("penalty", ["l21", "l1"])
def test_many_steps_reach_the_minimum_of_the_penalised_distance(penalty: Penalty) -> None:
    weights = {"lambda1": 3.0, "lambda2": 0.5, "penalty": penalty}
    limit = smoothed(steps=600, **weights)
    least = objective(limit, **weights)  # type: ignore[arg-type]
    assert least < objective(smoothed(steps=10, **weights), **weights)  # type: ignore[arg-type]
    g = rng("directions")
    for size in (1e-1, 1e-2, 1e-3):
        for _ in range(20):
            other = limit + size * torch.randn(12, 4, generator=g, dtype=torch.float64)
            assert objective(other, **weights) > least - 1e-9  # type: ignore[arg-type]
    flat = (dense_parts(torch.ones(PAIRS.shape[1]))[1] @ limit).abs()
    assert (flat < 1e-6).any()  # the l1 penalty makes some differences vanish, which the l2 penalty never does


def test_without_the_l1_penalty_it_is_appnp() -> None:
    model = small(lambda1=0.0, lambda2=4.0)
    ppnp = PPNP(9, 3, hidden=5, alpha=0.2, generator=rng("init")).double().eval()
    torch.testing.assert_close(model(X, EDGES), ppnp(X, EDGES), rtol=0, atol=1e-9)


def test_edge_weights_of_0_take_edges_away_and_gradients_are_finite_differences() -> None:
    model, kept = small(lambda1=0.3), torch.rand(PAIRS.shape[1], generator=rng("kept")) < 0.6
    both = torch.cat([kept, kept])
    torch.testing.assert_close(model(X, EDGES, both.double()), model(X, EDGES[:, both]))
    assert model(X, EDGES[:, :0]).isfinite().all()
    weight = torch.rand(PAIRS.shape[1], generator=rng("w"), dtype=torch.float64) + 0.1
    assert torch.autograd.gradcheck(
        lambda w: model(X, EDGES, torch.cat([w, w])), weight.requires_grad_(), fast_mode=True
    )


def test_gradients_are_finite_where_differences_vanish() -> None:
    model, weight = small().float(), torch.zeros(EDGES.shape[1], requires_grad=True)
    logits = model(torch.ones(12, 9), EDGES, weight)
    assert torch.autograd.grad(logits.logsumexp(1).sum(), weight)[0].isfinite().all()


def test_prepared_rows_give_the_loss_and_gradients_of_the_whole_graph(check_rows: Callable[..., None]) -> None:
    data = citation(seed=0, num_nodes=300, num_words=40)
    model = ElasticGNN(40, 7, hidden=8, generator=rng("init")).double()
    check_rows(model, data.x.double(), data.edge_index, torch.tensor([3, 70, 12, 199]))


def test_a_stack_computes_what_its_members_compute(check_stack: Callable[..., None]) -> None:
    members = [ElasticGNN(9, 3, hidden=5, generator=rng("init", i)).double() for i in range(3)]
    check_stack(members, X, EDGES)


def test_it_learns_its_first_layer_is_perturbed_and_it_can_be_attacked() -> None:
    data = citation(seed=0, num_nodes=200, num_words=60, topicality=0.6)
    split = stratified(data.y, seed=0, train=0.2, val=0.2)
    model = ElasticGNN(60, 7, hidden=8, lambda1=1, lambda2=1, dropout=0.3, generator=rng("init"))
    assert select(model) == ("lin1.weight",)
    result = fit(model, data, split, seed=0, awp=AwpConfig(rho=0.3, lam=0.5), epochs=25, lr=0.05)
    assert sum(result.history["gap"]) > 0
    assert result.loss["train"] < 0.8 * result.history["train_loss"][0]
    flips = prbcd(data, model, budget=0.1, nodes=split.test, labels=data.y, seed=0, steps=4, block_size=2000, loss="ce")
    assert evaluate(model, flips.apply(data), split.test)[0] > evaluate(model, data, split.test)[0]


def test_many_together_end_as_each_alone() -> None:
    data = citation(seed=0, num_nodes=100, num_words=30, topicality=0.6)
    data.x, split = data.x.double(), stratified(data.y, seed=0, train=0.2, val=0.2)
    models, alone = ([ElasticGNN(30, 7, hidden=8, generator=rng(i)).double() for i in range(2)] for _ in range(2))
    fit_many(models, data, split, seeds=[10, 11], epochs=6)
    for i, model in enumerate(alone):
        fit(model, data, split, seed=10 + i, epochs=6)
        for a, b in zip(model.parameters(), models[i].parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


def test_bad_arguments_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="steps must be a whole number >= 1, got 0"):
        small(steps=0)
    with pytest.raises(ValueError, match="lambda1 must be a finite number >= 0, got -1"):
        small(lambda1=-1)
    with pytest.raises(ValueError, match="penalty must be one of l21, l1, got 'l2'"):
        small(penalty="l2")
    with pytest.raises(ValueError, match=r"dropout must lie in \[0, 1\), got 1"):
        small(dropout=1.0)
