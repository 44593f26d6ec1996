from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog

from wtawp.certificates.collective_program import AttackProgram, Integers

BUDGETS = [(a, d) for a in range(3) for d in range(4)]


class Case:
    """A few nodes and positions with arbitrary fields and certificates."""

    def __init__(self, seed: int) -> None:
        g = np.random.default_rng(seed)
        nodes, positions = 5, 4
        self.reach = g.random((nodes, positions)) < 0.5
        self.zeros, self.ones = g.integers(0, 3, positions), g.integers(0, 4, positions)
        stairs = np.sort(g.integers(-1, 4, (nodes, 3)))[:, ::-1].copy()
        stairs[:, 0] = np.maximum(stairs[:, 0], 0)
        stairs[1] = stairs[0]
        self.reach[1] = self.reach[0]  # so that there is something to merge
        self.reach[:, 3] = self.reach[:, 2]
        self.stairs = stairs

    def program(self) -> AttackProgram:
        return AttackProgram(sparse.csr_array(self.reach), self.zeros, self.ones, self.stairs)

    def attacked(self, added: Integers, deleted: Integers) -> int:
        """How many nodes are not certified for the flips in their own field."""
        here = np.stack([self.reach @ added, self.reach @ deleted], axis=1)
        return sum(
            not (a < self.stairs.shape[1] and stair[a] >= d) for stair, (a, d) in zip(self.stairs, here, strict=True)
        )

    def worst(self, additions: int, deletions: int) -> int:
        """The most nodes that can be attacked, by enumeration of all ways to spend the budget."""
        return max(
            self.attacked(np.array(added), np.array(deleted))
            for added in spent(self.zeros, additions)
            for deleted in spent(self.ones, deletions)
        )

    def per_node(self, additions: int, deletions: int) -> int:
        return sum(additions < len(stair) and stair[additions] >= deletions for stair in self.stairs)

    def relaxed(self, additions: int, deletions: int) -> float:
        """The linear program as the module's docstring states it, node by node and position by position."""
        (nodes, positions), points = self.reach.shape, list(self.points())
        reachable = [
            a <= min(additions, self.reach[i] @ self.zeros) and d <= min(deletions, self.reach[i] @ self.ones)
            for i, a, d in points
        ]
        rows, limits = [], []
        for i in range(nodes):
            for kind in (0, 1):
                row = np.zeros(2 * positions + len(points))
                row[kind * positions : (kind + 1) * positions] = -1.0 * self.reach[i]
                row[2 * positions :] = [p[1 + kind] if p[0] == i else 0 for p in points]
                rows.append(row)
                limits.append(0)
            rows.append(np.array([0] * 2 * positions + [int(p[0] == i) for p in points]))
            limits.append(1)
        for kind, budget in enumerate((additions, deletions)):
            rows.append(np.array([int(k // positions == kind) for k in range(2 * positions)] + [0] * len(points)))
            limits.append(budget)
        bounds = [(0, c) for c in (*self.zeros, *self.ones)] + [(0, int(r)) for r in reachable]
        gain = np.array([0] * 2 * positions + [-1] * len(points))
        return -float(linprog(gain, A_ub=np.array(rows), b_ub=limits, bounds=bounds).fun)

    def points(self) -> Iterator[tuple[int, int, int]]:
        """Every smallest uncertified radius, by comparing all radii."""
        for i, stair in enumerate(self.stairs):
            outside = [(a, d) for a, d in product(range(5), range(6)) if a >= len(stair) or stair[a] < d]
            for a, d in outside:
                if not any((b, e) != (a, d) and b <= a and e <= d for b, e in outside):
                    yield i, a, d


def spent(capacity: Integers, budget: int) -> list[tuple[int, ...]]:
    return [flips for flips in product(*(range(c + 1) for c in capacity)) if sum(flips) <= budget]


@pytest.mark.parametrize("seed", range(12))
def test_bounds_lie_between_the_enumerated_worst_case_and_the_nodes_one_by_one(seed: int) -> None:
    case = Case(seed)
    program = case.program()
    for budget in BUDGETS:
        (most,) = program.most_attacked([budget], [program.solve(budget)])
        assert case.worst(*budget) <= most <= len(case.stairs) - case.per_node(*budget)


@pytest.mark.parametrize("seed", range(4))
def test_merged_nodes_and_positions_do_not_change_the_optimum(seed: int) -> None:
    case = Case(seed)
    program = case.program()
    assert program.num_groups < len(case.stairs)
    assert program.capacity.shape[1] < len(case.ones)
    for budget in BUDGETS:
        (most,) = program.most_attacked([budget], [program.solve(budget)])
        assert most == int(np.floor(case.relaxed(*budget) + 1e-6))


def test_any_prices_bound_the_worst_case_of_every_budget() -> None:
    g = np.random.default_rng(0)
    for seed in range(6):
        case = Case(seed)
        program = case.program()
        worst = np.array([case.worst(*budget) for budget in BUDGETS])
        for prices in (program.prices(g.random(program.shape[0])), program.solve((1, 1)), program.solve((2, 3))):
            assert bool((program.most_attacked(BUDGETS, [prices]) >= worst).all())


def test_several_prices_give_the_least_of_their_bounds() -> None:
    program = Case(3).program()
    prices = [program.solve(budget) for budget in ((0, 1), (2, 3))]
    each = [program.most_attacked(BUDGETS, [p]) for p in prices]
    assert np.array_equal(program.most_attacked(BUDGETS, prices), np.minimum(*each))


def test_without_nodes_nothing_is_attacked() -> None:
    program = AttackProgram(
        sparse.csr_array((0, 4), dtype=bool), np.ones(4, int), np.ones(4, int), np.zeros((0, 2), int)
    )
    assert program.most_attacked([(2, 2)], [program.solve((2, 2))]).tolist() == [0]


def test_nodes_that_abstain_must_be_left_out() -> None:
    with pytest.raises(ValueError, match="left out"):
        AttackProgram(sparse.csr_array(np.ones((1, 1), bool)), np.ones(1, int), np.ones(1, int), np.array([[-1]]))
