import numpy as np
import pytest
import torch
from torch import Tensor, nn

from wtawp.analysis import Hessian, LossOn, hessian_trace, spectral_density, top_eigenvalues
from wtawp.base import AnalysisError, rng
from wtawp.graphs import load
from wtawp.models import GCN


class Quadratic(nn.Module):
    """w^T H w / 2 for a symmetric H that is given."""

    def __init__(self, hessian: Tensor) -> None:
        super().__init__()
        self.hessian = hessian
        self.w = nn.Parameter(torch.randn(len(hessian), generator=rng("w")).double())
        self.eval()

    def loss(self) -> Tensor:
        return self.w @ self.hessian @ self.w / 2


def symmetric(size: int) -> Tensor:
    m = torch.randn(size, size, generator=rng("symmetric", size), dtype=torch.float64)
    return (m + m.T) / 2


@pytest.mark.parametrize("size", [6, 120])  # formed, and by ARPACK
def test_top_eigenvalues_of_a_quadratic_are_those_of_its_matrix(size: int) -> None:
    h = symmetric(size)
    model = Quadratic(h)
    expected = torch.linalg.eigvalsh(h).flip(0)[:5].tolist()
    assert top_eigenvalues(model, model.loss, k=5) == pytest.approx(expected, rel=1e-8)
    assert top_eigenvalues(model, model.loss, k=5) == top_eigenvalues(model, model.loss, k=5)


def test_products_and_eigenvalues_of_a_graph_network_equal_torchs_own_hessian() -> None:
    data = load("karate")
    data.x = data.x.double()
    model = GCN(34, 4, hidden=(3,), generator=rng("init")).double().eval()
    nodes = torch.arange(0, 30, 3)
    loss = LossOn(model, data, nodes)
    names = [n for n, _ in model.named_parameters()]
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])

    def of(vector: Tensor) -> Tensor:
        parts = vector.split([p.numel() for p in model.parameters()])
        weights = {n: t.view_as(p) for n, t, p in zip(names, parts, model.parameters(), strict=True)}
        logits = torch.func.functional_call(model, weights, (data.x, data.edge_index))[nodes]
        return nn.functional.cross_entropy(logits, data.y[nodes])

    truth = torch.autograd.functional.hessian(of, flat)
    hessian = Hessian.of(model, loss)
    v = torch.randn(hessian.size, generator=rng("v"), dtype=torch.float64)
    torch.testing.assert_close(hessian.product(v), truth @ v)
    assert top_eigenvalues(model, loss, k=3) == pytest.approx(
        torch.linalg.eigvalsh(truth).flip(0)[:3].tolist(), rel=1e-6
    )
    estimate = hessian_trace(model, loss, seed=0, probes=40)
    assert abs(estimate.mean - float(truth.trace())) < 3 * estimate.standard_error


def test_hutchinsons_trace_is_exact_for_diagonal_hessians_and_close_for_others() -> None:
    diagonal = Quadratic(torch.diag(torch.arange(1.0, 8.0).double()))
    exact = hessian_trace(diagonal, diagonal.loss, seed=0, probes=3)
    assert exact.mean == pytest.approx(28.0, abs=1e-12)
    assert exact.standard_error == pytest.approx(0.0, abs=1e-12)
    h = symmetric(40)
    model = Quadratic(h)
    estimate = hessian_trace(model, model.loss, seed=1, probes=60)
    assert abs(estimate.mean - float(h.trace())) < 3 * estimate.standard_error


def test_the_density_has_the_moments_of_the_spectrum_and_integrates_to_one() -> None:
    h = symmetric(30)
    model = Quadratic(h)
    density = spectral_density(model, model.loss, seed=0, probes=200, steps=30)
    values = torch.linalg.eigvalsh(h).numpy()
    np.testing.assert_allclose(density.weights.sum(1), 1.0, rtol=1e-9)
    assert density.moment(2) == pytest.approx(float((values**2).mean()), rel=0.05)
    assert density.nodes[0].max() == pytest.approx(values.max(), rel=1e-8)  # all steps: every eigenvalue is found
    grid = np.linspace(-20, 20, 4001)
    assert np.trapezoid(density.at(grid, width=0.3), grid) == pytest.approx(1.0, abs=1e-6)
    two = Quadratic(torch.diag(torch.tensor([1.0, 1.0, 3.0, 3.0]).double()))
    short = spectral_density(two, two.loss, seed=0, probes=2, steps=4)  # the Krylov space ends after two
    assert sorted(short.nodes[0][short.weights[0] > 0]) == pytest.approx([1.0, 3.0])
    assert short.moment(1) == pytest.approx(2.0)
    tiny = Quadratic(1e-12 * h)
    found = spectral_density(tiny, tiny.loss, seed=0, probes=1, steps=30)
    assert 1e12 * found.nodes.max() == pytest.approx(values.max(), rel=1e-6)


def test_what_has_no_curvature_or_makes_no_sense_is_told() -> None:
    model = Quadratic(symmetric(4))
    linear = Hessian.of(model, lambda: model.w.sum())
    assert torch.equal(linear.product(torch.ones(4).double()), torch.zeros(4).double())
    with pytest.raises(ValueError, match="k must lie between 1 and the number of parameters, 4, got 5"):
        top_eigenvalues(model, model.loss, k=5)
    with pytest.raises(ValueError, match="at least 2 probes"):
        hessian_trace(model, model.loss, seed=0, probes=1)
    with pytest.raises(ValueError, match="width must be > 0"):
        spectral_density(model, model.loss, seed=0, probes=1, steps=1).at(np.zeros(1), width=0)
    large = Quadratic(symmetric(80))
    assert top_eigenvalues(large, lambda: large.w.sum(), k=3) == [0.0, 0.0, 0.0]
    with pytest.raises(AnalysisError, match="second derivatives of the loss of Quadratic are NaN or infinite"):
        hessian_trace(model, lambda: (0 * model.w).abs().pow(1.5).sum(), seed=0)
    with pytest.raises(AnalysisError, match="NaN or infinite"):
        Hessian.of(model, lambda: (0 * model.w.sum()).log() * model.w.sum())
    with pytest.raises(ValueError, match="in training mode"):
        Hessian.of(model.train(), model.loss)
