"""Operators of a relaxed graph that record their products, and the gradient of a loss through them to the graph.

A victim multiplies by such an operator V in place of its usual one. The gradient with respect to V is P = U G^T, where
U holds the gradients at the products and G the factors that V was multiplied with. From there the gradient goes back to
the adjacency matrix A in thin factors: for a pair (i, j) it is
dL/dA_ij + dL/dA_ji = <L_i, R_j> + <R_i, L_j> + t_i + t_j.
"""

from collections.abc import Sequence

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.linalg import eigsh
from torch import Tensor

from wtawp.attacks.relaxed import RelaxedFlips, Target
from wtawp.base import DataError, rng
from wtawp.graphs.normalisation import gcn_operator, sum_operator
from wtawp.graphs.operator import Operator
from wtawp.graphs.products import spmm
from wtawp.models.capabilities import GraphOperator, NormalisedAdjacency
from wtawp.models.recording_operator import RecordingOperator

ITERATIONS, TOLERANCE = 500, 1e-10  # of conjugate gradients; the latter is relative


def recording_operator_of(target: Target, flips: RelaxedFlips, operator: GraphOperator) -> RecordingOperator:
    """The recording operator of the relaxed graph in place of one that a module asks for."""
    if isinstance(operator, NormalisedAdjacency):
        return NormalisedOperator(target, flips, operator.power)
    return TruncatedOperator(target, flips, operator.rank)


class SymmetricOperator(RecordingOperator):
    """An operator that is its own transpose, as those of undirected graphs are."""

    def transposed_times(self, factor: Tensor) -> Tensor:
        """See `RecordingOperator`."""
        return self.times(factor)


class NormalisedOperator(SymmetricOperator):
    """D^p (A + I) D^p, for many graphs as one."""

    def __init__(self, target: Target, flips: RelaxedFlips, power: float) -> None:
        super().__init__()
        edges, weight = target.graph(flips)
        self.operator = gcn_operator(edges, weight, target.copies * target.size, target.dtype, power=power)
        self.power = power

    def times(self, factor: Tensor) -> Tensor:
        """See `RecordingOperator`."""
        return spmm(self.operator, factor.flatten(0, 1)).view(factor.shape)

    def adjacency_gradient_factors(self, grads: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Factors of dL/dA_ij = s_i s_j P_ij + t_i, where s = d^p, and t = dL/dd is p / d_i times the sums."""
        u, g, sums = self.gathered(grads)
        diagonal = self.operator.values[self.operator.rows == self.operator.indices].view_as(sums)
        inverse = diagonal ** (-0.5 / self.power)  # 1 / d, as the diagonal of A + I is 1 and of this operator d^2p
        return diagonal.sqrt() * u, diagonal.sqrt() * g, self.power * inverse * sums


class TruncatedOperator(SymmetricOperator):
    """D^-1/2 (A_k + I) D^-1/2 for A_k, A cut down to its k largest eigenvalues |l|; see `low_rank_operator`. One graph.

    Where the k-th and the next eigenvalue are equally large A_k jumps, and near such a point its derivative is huge.
    """

    def __init__(self, target: Target, flips: RelaxedFlips, rank: int) -> None:
        super().__init__()
        if target.copies > 1:
            raise ValueError(f"a truncated operator is of one graph, got {target.copies}")
        edges, weight = target.graph(flips)
        self.adjacency = sum_operator(edges, weight, target.size, torch.float64)
        self.values, self.vectors = largest_eigenpairs(self.adjacency, rank)  # [k], [n, k]
        degree = self.vectors @ (self.values * self.vectors.sum(0)) + 1
        self.scale = torch.where(degree > 0, degree.clamp_min(1e-300).rsqrt(), 0)[:, None]  # [n, 1]

    def times(self, factor: Tensor) -> Tensor:
        """See `RecordingOperator`."""
        left, scale = (self.scale * self.vectors).to(factor), self.scale.to(factor)
        return (left * self.values.to(factor)) @ (left.T @ factor) + scale.square() * factor

    def adjacency_gradient_factors(self, grads: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Factors of the gradient, as the derivative of a function of the spectrum.

        Let (l_i, q_i) be eigenpairs, and G the symmetric gradient with respect to A_k (its row sums D included). The
        gradient with respect to A is Q Q^T G Q Q^T + sum_i (q_i z_i^T + z_i q_i^T), where z_i, orthogonal to Q,
        solves (l_i I - A) z_i = l_i (I - Q Q^T) G q_i.
        """
        u, g, sums = (t[0].double() for t in self.gathered(grads))
        u, g, t, q = self.scale * u, self.scale * g, -0.5 * self.scale.square() * sums, self.vectors
        one = torch.ones_like(t)
        pairs = ((u, g), (g, u), (t, one), (one, t))
        turned = sum(0.5 * a @ (b.T @ q) for a, b in pairs) + torch.zeros_like(q)  # G Q
        inside = q.T @ turned
        z = solve_orthogonal(self.adjacency, self.values, q, self.values * (turned - q @ inside))
        w = z + 0.5 * q @ inside
        return tuple(t[None].to(grads[0]) for t in (2 * q, w, torch.zeros_like(one)))  # type: ignore[return-value]


def largest_eigenpairs(matrix: Operator, rank: int) -> tuple[Tensor, Tensor]:  # [n, n] -> [k], [n, k]
    """The eigenvalues of a symmetric matrix with the largest absolute values, and their eigenvectors."""
    if not bool((matrix.values != 0).any()):
        raise DataError("a graph without edges has no eigenvectors to keep; use a smaller budget")
    if rank >= matrix.shape[0]:  # ARPACK finds fewer than all
        values, vectors = torch.linalg.eigh(matrix.to_dense())
        return values, vectors
    arrays = tuple(t.cpu().numpy() for t in (matrix.values, matrix.indices, matrix.indptr))
    start = torch.rand(matrix.shape[0], dtype=torch.float64, generator=rng("start of eigsh")).numpy()
    eigenpairs = eigsh(csr_array(arrays, shape=matrix.shape), k=rank, which="LM", v0=start)
    values, vectors = (torch.from_numpy(np.ascontiguousarray(f)).to(matrix.values.device) for f in eigenpairs)
    return values, vectors


def solve_orthogonal(matrix: Operator, values: Tensor, vectors: Tensor, wanted: Tensor) -> Tensor:  # [n, k] -> [n, k]
    """Solve (l_i I - A) z = wanted_i for each column i, in the space orthogonal to all q, where it is definite.

    By conjugate gradients, all columns at once. Where the spectrum has hardly a gap after the l_i it stops after
    `ITERATIONS` steps with what it has: the derivative is then too steep for its last digits to matter.
    """
    sign, solution = values.sign(), torch.zeros_like(wanted)
    rest = wanted * sign
    direction, square = rest.clone(), rest.square().sum(0)
    enough = TOLERANCE**2 * square
    for _ in range(ITERATIONS):
        if bool((square <= enough).all()):
            break
        product = sign * (values * direction - spmm(matrix, direction))
        product = product - vectors @ (vectors.T @ product)
        curve = (direction * product).sum(0)
        going = (square > enough) & (curve > 0)  # columns that are done stay as they are
        length = torch.where(going, square / torch.where(going, curve, 1), 0)
        solution, rest = solution + length * direction, rest - length * product
        before, square = square, torch.where(going, rest.square().sum(0), 0)
        direction = rest + torch.where(going, square / torch.where(going, before, 1), 0) * direction
    return solution
