import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor

from wtawp.attacks.projection import project_onto_budget, thresholds
from wtawp.base import rng


def by_bisection(values: Tensor, budget: float) -> Tensor:
    low, high = 0.0, max(float(values.max()), 0.0)
    if values.clamp(0, 1).sum() <= budget:
        high = 0.0
    for _ in range(200):
        middle = (low + high) / 2
        if (values - middle).clamp(0, 1).sum() > budget:
            low = middle
        else:
            high = middle
    return (values - high).clamp(0, 1)


@given(
    values=st.lists(st.one_of(st.floats(-3, 3), st.sampled_from([0.0, 0.5, 1.0, 2.0])), min_size=1, max_size=30),
    budget=st.floats(0.01, 20),
)
def test_the_threshold_is_what_bisection_finds(values: list[float], budget: float) -> None:
    given = torch.tensor(values, dtype=torch.float64)
    found = project_onto_budget(given, budget)
    assert found.sum() <= budget + 1e-9
    assert torch.allclose(found, by_bisection(given, budget), atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("budget", [0.7, 2.0, 5.0])
def test_the_projection_solves_the_quadratic_programme(seed: int, budget: float) -> None:
    values = 2 * torch.randn(12, dtype=torch.float64, generator=rng("qp", seed))
    solved = minimize(
        lambda s: ((s - values.numpy()) ** 2).sum(),
        np.full(12, 0.01),
        jac=lambda s: 2 * (s - values.numpy()),
        bounds=[(0, 1)] * 12,
        constraints={"type": "ineq", "fun": lambda s: budget - s.sum(), "jac": lambda s: -np.ones_like(s)},
        method="SLSQP",
        options={"ftol": 1e-12},
    )
    assert np.allclose(project_onto_budget(values, budget).numpy(), solved.x, atol=1e-5)


def test_many_values_take_the_short_way_to_the_same_answer() -> None:
    for seed, scale in enumerate((0.1, 1.0, 100.0)):
        values = scale * torch.randn(5000, dtype=torch.float64, generator=rng("many", seed))
        found = project_onto_budget(values, 10)
        assert torch.allclose(found, by_bisection(values, 10), atol=1e-8)
        assert float(found.sum()) == pytest.approx(10)


def test_what_is_within_the_budget_is_only_clamped() -> None:
    values = torch.tensor([0.25, -1.0, 5.0])
    assert project_onto_budget(values, 1.25).tolist() == [0.25, 0.0, 1.0]
    assert project_onto_budget(torch.zeros(0), 1).tolist() == []


def test_rows_do_not_know_of_each_other() -> None:
    g = rng("rows")
    lists = [scale * torch.randn(size, dtype=torch.float64, generator=g) for scale, size in
             ((1.0, 30), (100.0, 2000), (1e-3, 7), (5.0, 500), (1.0, 1))]  # fmt: skip
    rows = torch.zeros(5, 2000, dtype=torch.float64)
    for row, values in zip(rows, lists, strict=True):
        row[: len(values)] = values
    for budget in (1, 4, 250):
        alone = torch.cat([thresholds(values[None], budget) for values in lists])
        assert torch.allclose(thresholds(rows, budget), alone, rtol=0, atol=1e-12)
        assert float(alone[2]) == 0 < float(alone[1])


def test_equal_values_share_the_budget() -> None:
    assert project_onto_budget(torch.full((4,), 7.0), 1).tolist() == [0.25] * 4


def test_bad_values_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        thresholds(torch.tensor([[float("nan")]]), 1)
    with pytest.raises(ValueError, match="positive"):
        thresholds(torch.tensor([[1.0]]), 0)
