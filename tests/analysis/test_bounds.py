import math

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from torch_geometric.data import Data

from wtawp.analysis import (
    LossOn,
    bound_over_rho,
    gaussian_kl,
    graph_level_bound,
    lemma_1,
    sharpness,
    theorem_1,
    total_radius,
)
from wtawp.base import AnalysisError, DataError, rng
from wtawp.graphs import load
from wtawp.models import GCN, Pooled, PooledGCN, PooledGIN

SMALL = {
    "perturbed_loss": 0.1,
    "weight_norm": 3.0,
    "rho": 2.0,
    "num_parameters": 20,
    "num_train": 900,
    "num_classes": 4,
}


@pytest.mark.parametrize("m", [5.0, 6.5, 40.0])
def test_every_term_of_theorem_1_is_that_of_the_formula(m: float) -> None:
    bound = theorem_1(**SMALL, tail_radius=m, delta=0.1, epsilon=0.5, constant=2.0)
    d, n0 = 20, 900
    assert bound.tail == pytest.approx((m**2 / d * math.exp(1 - m**2 / d)) ** (d / 2), rel=1e-9)
    assert bound.complexity == pytest.approx(0.5 * (1 + d * math.log(1 + m**2 * 9 / (d * 4))) / math.sqrt(n0), rel=1e-9)
    assert bound.remainder == pytest.approx((math.log(30) + 0.25 + 2.0 * 4 * 0.5) / math.sqrt(n0), rel=1e-9)
    assert bound.total == pytest.approx(0.1 + bound.tail + bound.complexity + bound.remainder)
    assert bound.terms()["tail_radius"] == m
    assert bound.tail >= chi2.sf(m**2, d), "Chernoff's bound is above what it bounds"


@pytest.mark.parametrize(
    ("d", "norm", "rho", "n0"), [(20, 3.0, 2.0, 900), (20, 3.0, 2.0, 10**6), (92231, 20.0, 5.0, 248), (3, 1.0, 9.0, 50)]
)
def test_the_tail_radius_is_the_best_of_a_fine_search(d: int, norm: float, rho: float, n0: int) -> None:
    given = {**SMALL, "num_parameters": d, "weight_norm": norm, "rho": rho, "num_train": n0}
    best = theorem_1(**given)
    candidates = np.sqrt(d) * np.concatenate([[1.0], 1 + np.logspace(-8, 2, 20001)])
    totals = [theorem_1(**given, tail_radius=float(m)).total for m in candidates]
    assert best.total <= min(totals) * (1 + 1e-9)
    assert best.total == pytest.approx(min(totals), rel=1e-5)


def test_it_says_when_it_is_vacuous() -> None:
    assert theorem_1(**SMALL).is_vacuous
    assert "vacuous: a loss of at most 1" in str(theorem_1(**SMALL))
    large = theorem_1(**{**SMALL, "num_train": 10**6})
    assert not large.is_vacuous
    assert "not vacuous" in str(large)


def test_the_bound_of_a_subgroup_is_theorem_1_without_ball_and_tail() -> None:
    kl = gaussian_kl(weight_norm=3.0, num_parameters=20, posterior_std=2.0 / 6)
    group = lemma_1(train_loss=0.1, kl=kl, num_train=900, num_classes=4)
    ball = theorem_1(**SMALL, tail_radius=6.0)  # sigma_q = rho / m
    assert group.complexity == pytest.approx(ball.complexity, rel=1e-12)
    assert group.remainder == ball.remainder
    assert group.tail == 0


def test_the_divergence_of_gaussians_is_torchs_and_lemma_2_bounds_it_for_the_best_prior() -> None:
    theta = torch.randn(6, generator=rng("kl"), dtype=torch.float64)
    q = torch.distributions.Normal(theta, 0.3)
    p = torch.distributions.Normal(torch.zeros(6).double(), 0.7)
    truth = float(torch.distributions.kl_divergence(q, p).sum())
    given = {"weight_norm": float(theta.norm()), "num_parameters": 6, "posterior_std": 0.3}
    assert gaussian_kl(**given, prior_std=0.7) == pytest.approx(truth, rel=1e-9)
    best = min(gaussian_kl(**given, prior_std=s) for s in np.linspace(0.1, 5, 2000))
    assert best <= gaussian_kl(**given)


def test_the_graph_level_bound_is_that_of_the_formula() -> None:
    given = {"perturbed_loss": 0.2, "spectral_norms": [1.5, 0.7], "frobenius_norms": [2.0, 0.9], "rho": 0.4}
    counts = {"num_parameters": 50, "num_graphs": 1000, "max_degree": 5, "width": 16}
    bound = graph_level_bound(**given, **counts, delta=0.1, constant=3.0)
    inside = 5 * 16 * math.log(32) * (1.5 * 0.7) ** 2 * ((2 / 1.5) ** 2 + (0.9 / 0.7) ** 2) / 0.4**2
    root = 3 * math.sqrt((inside + math.log(1000 * 2 / 0.1)) / 1000)
    assert bound.total == pytest.approx(0.2 + root, rel=1e-9)
    assert bound.complexity == pytest.approx(3 * math.sqrt(inside / 1000), rel=1e-9)
    near = graph_level_bound(**given, **counts, tail_radius=8.0)
    assert near.tail == pytest.approx((64 / 50 * math.exp(1 - 64 / 50)) ** 25, rel=1e-9)
    with pytest.raises(ValueError, match="two or more layers"):
        graph_level_bound(**{**given, "spectral_norms": [1.0]}, **counts)
    with pytest.raises(ValueError, match="spectral norms must be > 0"):
        graph_level_bound(**{**given, "spectral_norms": [1.0, 0.0]}, **counts)


def test_of_a_model_rho_is_the_sum_of_the_layers_radii_and_the_gap_is_between_all_and_training_nodes() -> None:
    data = load("karate")
    model = GCN(34, 4, hidden=(5,), generator=rng("init")).eval()
    train = torch.arange(0, 30, 3)
    norms = [float(conv.weight.detach().norm()) for conv in model.convs]
    assert total_radius(model, 0.3) == pytest.approx(0.3 * sum(norms), rel=1e-6)
    small, large = bound_over_rho(model, data, train, [0.05, 0.5], epsilon=0.1)
    assert small.bound.loss <= large.bound.loss
    assert small.bound.complexity > large.bound.complexity
    with torch.no_grad():
        logits = model(data.x, data.edge_index)
    assert large.train_loss == pytest.approx(1 - float(logits.softmax(1)[train, data.y[train]].mean()), abs=1e-6)
    theta = torch.cat([p.detach().flatten() for p in model.parameters()]).double()
    total = 0.5 * sum(norms)
    loss = LossOn(model, data, train, bounded=True)
    rise = sharpness(model, loss, rho=total, radius="global", layers=("*",))
    assert rise > 0.01
    expected = theorem_1(
        perturbed_loss=large.train_loss + rise, weight_norm=float(theta.norm()), rho=total, num_parameters=len(theta),
        num_train=10, num_classes=4, epsilon=0.1,
    )  # fmt: skip
    assert large.bound.terms() == pytest.approx(expected.terms(), rel=1e-5)
    on_train, on_all = (LossOn(model, data, nodes, bounded=True) for nodes in (train, torch.arange(34)))
    assert large.generalisation_gap == pytest.approx(float((on_all() - on_train()).detach()), abs=1e-6)
    assert large.bounded_gap == pytest.approx(large.bound.total - float(on_train().detach()), abs=1e-6)


def test_of_a_classifier_of_graphs_it_is_the_graph_level_bound_of_its_matrices_and_graphs() -> None:
    graphs = [
        Data(x=torch.randn(size, 3, generator=rng("x", size)), edge_index=path(size), y=torch.tensor([size % 2]))
        for size in (2, 3, 4, 5, 6)
    ]
    model = PooledGCN(3, 2, hidden=(6, 5), generator=rng("init")).eval()
    (at,) = bound_over_rho(model, graphs, torch.tensor([0, 2, 3]), [0.2], delta=0.1, constant=2.0)
    matrices = [p.detach().double().numpy() for p in model.parameters() if p.dim() == 2]
    assert [m.shape for m in matrices] == [(3, 6), (6, 5), (5, 2)]
    expected = graph_level_bound(
        perturbed_loss=at.bound.loss, spectral_norms=[np.linalg.svd(m)[1][0] for m in matrices],
        frobenius_norms=[np.linalg.norm(m) for m in matrices], rho=0.2 * sum(np.linalg.norm(m) for m in matrices),
        num_parameters=6 * 4 + 5 * 7 + 2 * 6, num_graphs=3, max_degree=3, width=6, delta=0.1, constant=2.0,
    )  # fmt: skip
    assert at.bound.terms() == pytest.approx(expected.terms(), rel=1e-6)
    right = torch.stack(
        [model(g.x, g.edge_index, torch.zeros(len(g.x), dtype=torch.int64)).softmax(1)[0, int(g.y)] for g in graphs]
    )
    assert at.all_loss == pytest.approx(1 - float(right.detach().mean()), abs=1e-6)
    assert at.train_loss == pytest.approx(1 - float(right.detach()[[0, 2, 3]].mean()), abs=1e-6)
    assert at.train_loss <= at.bound.loss


def test_the_graph_level_bound_is_not_one_for_other_convolutions() -> None:
    model = PooledGIN(3, 2, generator=rng("init")).eval()
    graph = Data(x=torch.ones(2, 3), edge_index=path(2), y=torch.tensor([0]))
    with pytest.raises(AnalysisError, match="holds for GCNs, and this is a Pooled GIN"):
        bound_over_rho(model, [graph], torch.tensor([0]), [0.1])
    strong = GCN(3, 4, norm="layer", residual=True, generator=rng("init"))
    with pytest.raises(AnalysisError, match="holds for GCNs without norm and residual"):
        bound_over_rho(Pooled(strong, 4, 2, generator=rng("init")).eval(), [graph], torch.tensor([0]), [0.1])


def path(size: int) -> torch.Tensor:
    ends = torch.stack([torch.arange(size - 1), torch.arange(1, size)])
    return torch.cat([ends, ends.flip(0)], 1)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"perturbed_loss": 1.4}, r"perturbed_loss must lie in \[0, 1\]"),
        ({"rho": 0.0}, "rho must be finite and > 0"),
        ({"delta": 0.0}, "delta must lie in"),
        ({"num_train": 0}, "num_train must be a whole number >= 1"),
        ({"weight_norm": -1.0}, "weight_norm must be finite and >= 0"),
        ({"tail_radius": 4.0}, "tail_radius must be at least"),
    ],
)
def test_what_the_theorem_does_not_cover_is_refused(changed: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        theorem_1(**{**SMALL, **changed})


def test_a_mask_of_training_nodes_or_graphs_counts_those_that_are_chosen() -> None:
    data, nodes = load("karate"), torch.arange(10)
    model = GCN(34, 4, hidden=(4,), generator=rng("init")).eval()
    graphs = [
        Data(x=torch.eye(2), edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([k % 2])) for k in range(6)
    ]
    pooled = PooledGCN(2, 2, hidden=(3,), generator=rng("init")).eval()
    for of, collection, size, some in ((model, data, 34, nodes), (pooled, graphs, 6, torch.tensor([0, 1, 4]))):
        mask = torch.zeros(size, dtype=torch.bool)
        mask[some] = True
        by_index, by_mask, by_list = (
            bound_over_rho(of, collection, choice, [0.1], steps=2)[0] for choice in (some, mask, some.tolist())
        )
        assert by_mask == by_index == by_list
        with pytest.raises(DataError, match="train must be distinct"):
            bound_over_rho(of, collection, torch.tensor([0, 0]), [0.1], steps=2)
