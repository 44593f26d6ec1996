"""Local budgets: degrees counted one by one, and the projection against a solver of quadratic programs."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, minimize
from torch_geometric.data import Data

from wtawp.attacks.local_budgets import legal_flips, local_budgets, project_onto_budgets
from wtawp.base import rng


def star(leaves: int) -> Data:
    ends = torch.stack([torch.zeros(leaves, dtype=torch.int64), torch.arange(1, leaves + 1)])
    return Data(edge_index=torch.cat([ends, ends.flip(0)], 1), num_nodes=leaves + 1)


def test_a_local_budget_is_a_share_of_the_degree_rounded_down() -> None:
    assert local_budgets(star(10), 1.0).tolist() == [10, *[1] * 10]
    path = Data(edge_index=torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]), num_nodes=4)
    assert local_budgets(path, 0.5).tolist() == [0, 1, 1, 0]


def test_shares_that_leave_no_legal_flip_or_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match=r"local_budget=0\.5 leaves no legal flip: .*\[10, 1\]"):
        local_budgets(star(10), 0.5)
    for share in (0, 0.0, 1.5, True, "half"):
        with pytest.raises(ValueError, match="share of the degree"):
            local_budgets(star(3), share)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(4))
def test_the_projection_is_the_nearest_point_that_keeps_all_budgets(seed: int) -> None:
    g = rng("projection", seed)
    pairs = torch.triu_indices(6, 6, 1)
    values = (1.5 * torch.randn(15, generator=g) + 0.5).double()
    local, budget = torch.tensor([0, 1, 1, 2, 2, 1]), 2.5
    rows = np.array([[1.0] * 15, *[[float(node in pair) for pair in pairs.T.tolist()] for node in range(6)]])
    limits = LinearConstraint(rows, -np.inf, [budget, *local.tolist()])
    solved = minimize(
        lambda p: ((p - values.numpy()) ** 2).sum(), np.zeros(15), jac=lambda p: 2 * (p - values.numpy()),
        bounds=[(0, 1)] * 15, constraints=limits, method="SLSQP", options={"ftol": 1e-12, "maxiter": 500},
    )  # fmt: skip
    got = project_onto_budgets(values, pairs, budget, local, rounds=200)
    np.testing.assert_allclose(got.numpy(), solved.x, atol=2e-3)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), rounds=st.integers(1, 20), budget=st.floats(0.5, 20))
def test_both_budgets_are_kept_after_any_number_of_rounds(seed: int, rounds: int, budget: float) -> None:
    g = rng("feasible", seed)
    pairs, values = torch.triu_indices(9, 9, 1), 3 * torch.randn(36, generator=g)
    local = torch.randint(0, 4, (9,), generator=g)
    got = project_onto_budgets(values, pairs, budget, local, rounds=rounds)
    sums = torch.zeros(9).index_add(0, pairs.flatten(), got.repeat(2))
    assert float(got.min()) >= 0
    assert float(got.max()) <= 1
    assert float(got.sum()) <= budget + 1e-4
    assert bool((sums <= local + 1e-4).all())


def test_legal_flips_are_taken_in_order_while_both_budgets_last() -> None:
    pairs = torch.tensor([[0, 0, 1, 2, 3], [1, 2, 2, 3, 4]])
    local = torch.tensor([1, 2, 1, 1, 1])
    assert legal_flips(pairs, torch.tensor([1, 0, 2, 4, 3]), 5, local).tolist() == [1, 4]
    assert legal_flips(pairs, torch.tensor([0, 2, 4]), 2, local).tolist() == [0, 2]
