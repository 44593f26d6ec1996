"""The linear program behind the collective certificate: at most how many nodes one perturbation can attack.

The adversary places b_add[k] additions and b_del[k] deletions at each position k (the features of a node, or an edge),
within a budget over all positions. The certificate of node i holds for a set of radii that contains every smaller
radius of each of its radii; the smallest radii (a_p, d_p) outside the set are its *front*. Node i can be attacked only
if its field, the positions it depends on, holds a_p additions and d_p deletions for some point p of the front. The
integer program, with q[i, p] = 1 if node i is attacked at point p:

    maximise    sum of q[i, p]
    subject to  sum over p of a_p q[i, p] <= sum over k in the field of i of b_add[k]         (the same for deletions)
                sum over p of q[i, p] <= 1
                sum over k of b_add[k] <= additions,   sum over k of b_del[k] <= deletions
                0 <= b_add[k] <= the zeros at k,   0 <= b_del[k] <= the ones at k,   0 <= q[i, p] <= 1
                q[i, p] = 0 where a_p or d_p exceeds the budget, or what the field of i can hold

Without the condition that all variables are whole numbers it is a linear program, whose optimum is at least as large.
Points beyond the budget are left out, so a node that is certified for the whole budget is never counted as attacked,
and the collective bound is never below that of the nodes one by one.

No tolerance of the solver enters the bound. By weak duality, any y >= 0 gives an upper bound on the optimum of
max c x, A x <= b, 0 <= x <= u: it is b y + sum of u max(0, c - A^T y). The y are the solver's, the bound is evaluated
here, shifted up by more than its rounding errors, and rounded down to a whole number. One y serves for every budget,
so that a few programs are solved and the curve in between is bounded by their y.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from wtawp.base import CertificateError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Budget = tuple[int, int]  # additions, deletions, over all positions
UNIT = 2.0**-53  # the relative error of one operation
TOLERANCE = 1e-6  # of the solver, to which dual prices are wrong


@dataclass(frozen=True, eq=False)
class Prices:
    """A dual solution: a price of each constraint, which bounds the number of attacked nodes for every budget."""

    budget: Floats  # [2], of an addition and of a deletion
    constant: float  # the part of the bound that no budget changes
    gains: Floats  # [variables], max(0, c - A^T y)
    sizes: Floats  # [variables], c + |A|^T y, in proportion to which gains are rounded


class AttackProgram:
    """The linear program for some nodes, built once and solved for any number of budgets.

    Nodes with the same field and the same certificate are one group, and positions that belong to the fields of the
    same nodes are one position.

    Args:
        reach: Which positions each node depends on, a boolean CSR matrix [t, k].
        zeros: The most additions at each position, [k].
        ones: The most deletions at each position, [k].
        stairs: The most deletions that are certified together with 0, 1, ... additions, [t, A]; -1: not even 0.

    Attributes:
        num_nodes: The number of nodes that may be attacked.
        shape: The numbers of constraints and of variables of the program.
    """

    def __init__(self, reach: sparse.csr_array, zeros: Integers, ones: Integers, stairs: Integers) -> None:
        stairs = np.minimum.accumulate(stairs, axis=1)  # a certificate for a radius holds for every smaller one
        if len(stairs) and int(stairs[:, 0].min()) < 0:
            raise ValueError("nodes without a certificate for the unchanged input must be left out before")
        self.num_nodes = len(stairs)
        reach, self.capacity = _merged_positions(reach, np.stack([zeros, ones]).astype(np.int64))
        groups, weight = _groups(reach, stairs)
        reach = reach[groups].astype(np.float64)
        owner, self.front = _fronts(stairs[groups])
        room = (reach @ self.capacity.T.astype(np.float64))[owner]  # [points, 2]
        self.fits = (self.front <= room).all(1)
        self.weight = np.concatenate([np.zeros(self.capacity.size), weight[owner].astype(np.float64)])
        self.matrix = _constraints(reach, owner, self.front)
        self.absolute = abs(self.matrix).T.tocsr()
        self.num_groups = len(groups)
        self.shape = self.matrix.shape

    def upper_bounds(self, budget: Budget) -> Floats:  # -> [variables]
        """The upper bound of each variable."""
        flips = np.minimum(self.capacity, np.array(budget)[:, None]).ravel()
        return np.concatenate([flips, self.fits & (self.front <= budget).all(1)]).astype(np.float64)

    def solve(self, budget: Budget) -> Prices:
        """Solve the program for one budget, and return the dual solution."""
        if self.num_nodes == 0:
            return Prices(np.zeros(2), 0.0, np.zeros_like(self.weight), np.zeros_like(self.weight))
        limits = np.zeros(self.shape[0])
        limits[2 * self.num_groups : -2] = 1
        limits[-2:] = budget
        bounds = np.stack([np.zeros_like(self.weight), self.upper_bounds(budget)], axis=1)
        solved = linprog(-self.weight, A_ub=self.matrix, b_ub=limits, bounds=bounds, method="highs")
        if solved.status != 0:
            raise CertificateError(f"the solver did not solve the program for the budget {budget}: {solved.message}")
        return self.prices(np.maximum(-solved.ineqlin.marginals, 0.0))

    def prices(self, y: Floats) -> Prices:  # [constraints]
        """Evaluate any non-negative prices of the constraints, whether or not they are optimal."""
        y = y.copy()
        flips = self.capacity.shape[1]
        for kind, part in enumerate((slice(0, flips), slice(flips, 2 * flips))):
            # Gains that are the solver's rounding errors would be multiplied by the capacity of every position.
            gains = (self.weight - self.matrix.T @ y)[part]
            y[-2 + kind] += max(gains[gains < TOLERANCE].max(initial=0.0), 0.0)
        gains = np.maximum(self.weight - self.matrix.T @ y, 0.0)
        return Prices(y[-2:], float(y[2 * self.num_groups : -2].sum()), gains, self.weight + self.absolute @ y)

    def most_attacked(self, budgets: Sequence[Budget], prices: Sequence[Prices]) -> Integers:  # -> [budgets]
        """The largest number of nodes that any perturbation within each budget can attack: the least of all bounds."""
        gains, sizes = (np.stack([getattr(p, name) for p in prices], axis=1) for name in ("gains", "sizes"))
        per_flip, constant = np.stack([p.budget for p in prices], axis=1), np.array([p.constant for p in prices])
        operations = sum(self.shape) + 16
        most = np.empty(len(budgets), dtype=np.int64)
        for i, budget in enumerate(budgets):
            upper = self.upper_bounds(budget)
            fixed = constant + np.array(budget, dtype=np.float64) @ per_flip
            bound = fixed + upper @ gains + 4 * UNIT * operations * (fixed + upper @ sizes)
            most[i] = min(int(np.floor(bound.min())), self.num_nodes)
        return most


def _fronts(stairs: Integers) -> tuple[Integers, Integers]:  # [t, A] -> [points], [points, 2]
    """The smallest radii at which nodes are not certified: the node of each, and its additions and deletions."""
    padded = np.pad(stairs, [(0, 0), (0, 1)], constant_values=-1)
    is_lower = np.diff(padded, axis=1, prepend=np.iinfo(np.int64).max) < 0
    owner, additions = is_lower.nonzero()
    return owner, np.stack([additions, padded[owner, additions] + 1], axis=1)


def _merged_positions(reach: sparse.csr_array, capacity: Integers) -> tuple[sparse.csr_array, Integers]:
    """One position for all that belong to the fields of the same nodes, without those that belong to none."""
    columns = reach.tocsc()
    columns.sort_indices()
    number: dict[bytes, int] = {}
    target = np.full(columns.shape[1], -1)
    for k, (start, stop) in enumerate(zip(columns.indptr[:-1], columns.indptr[1:], strict=True)):
        if stop > start:
            target[k] = number.setdefault(columns.indices[start:stop].tobytes(), len(number))
    merged = np.zeros((2, len(number)), dtype=np.int64)
    for kind in (0, 1):
        np.add.at(merged[kind], target[target >= 0], capacity[kind, target >= 0])
    first = np.unique(target, return_index=True)[1][1 if (target < 0).any() else 0 :]
    return columns[:, first].tocsr(), merged


def _groups(reach: sparse.csr_array, stairs: Integers) -> tuple[Integers, Integers]:
    """One node of each group with the same field and the same certificate, and the sizes of the groups."""
    reach.sort_indices()
    first: dict[tuple[bytes, bytes], int] = {}
    sizes: dict[int, int] = {}
    for i, (start, stop) in enumerate(zip(reach.indptr[:-1], reach.indptr[1:], strict=True)):
        leader = first.setdefault((reach.indices[start:stop].tobytes(), stairs[i].tobytes()), i)
        sizes[leader] = sizes.get(leader, 0) + 1
    return np.array(list(sizes), dtype=np.int64), np.array(list(sizes.values()), dtype=np.int64)


def _constraints(reach: sparse.csr_array, owner: Integers, front: Integers) -> sparse.csr_array:
    """The matrix A: for each group additions, deletions and at most one point; then both budgets."""
    (groups, positions), points = reach.shape, len(owner)
    place, ones = (owner, np.arange(points)), np.ones(points)
    additions, deletions, once = (
        sparse.csr_array((values, place), shape=(groups, points)) for values in (front[:, 0], front[:, 1], ones)
    )
    total = sparse.csr_array(np.ones((1, positions)))
    blocks = [
        [-reach, None, additions],
        [None, -reach, deletions],
        [None, None, once],
        [total, None, None],
        [None, total, None],
    ]
    return sparse.block_array(blocks, format="csr", dtype=np.float64)
