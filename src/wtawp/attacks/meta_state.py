"""The state of one Metattack: the graph as its flips so far have left it, and the gradient that decides the next flip.

The surrogate sees the graph through S = D^-1/2 (A + I) D^-1/2 alone. Gradients with respect to S are kept as factors
U and V of U V^T, and pairs of nodes are visited in blocks of rows, so that nothing of size n x n is kept.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.attacks.degree_test import LikelyDegrees
from wtawp.base import AttackError, rng
from wtawp.graphs.flips import undirected_pairs
from wtawp.graphs.normalisation import gcn_operator
from wtawp.graphs.operator import Operator
from wtawp.graphs.products import multiply
from wtawp.graphs.row_choices import checked_rows
from wtawp.models.capabilities import Features
from wtawp.models.inputs import features

MetaInit = Literal["uniform", "glorot"]
DIVISORS: dict[MetaInit, Callable[[int, int], float]] = {  # of the first weights, by numbers of inputs and outputs
    "uniform": lambda _, outputs: math.sqrt(outputs),
    "glorot": lambda inputs, outputs: math.sqrt((inputs + outputs) / 6),
}
CPU_BLOCK, GPU_BLOCK = 1 << 20, 1 << 28  # entries of the gradient that are computed at once


class MetaState:
    """One attack: the nodes it aims at, and the graph as its flips so far have left it."""

    def __init__(
        self,
        data: Data,
        x: Features,
        train: Tensor,
        unlabelled: Tensor | None,
        labels: Tensor,
        classes: int,
        seed: int,
        lam: float,
    ) -> None:
        self.size, self.seed, self.x = int(data.num_nodes), seed, x
        self.device = data.edge_index.device
        self.dtype = x.values.dtype if isinstance(x, Operator) else x.dtype
        self.train = _distinct_nodes(train, self.size, "train").to(self.device)
        rest = torch.ones(self.size, dtype=torch.bool, device=self.device)
        rest[self.train] = False
        if unlabelled is not None:
            chosen = _distinct_nodes(unlabelled, self.size, "unlabelled").to(self.device)
            if not bool(rest[chosen].all()):
                raise ValueError("unlabelled holds training nodes, whose labels are known; leave them out")
            rest = torch.zeros_like(rest)
            rest[chosen] = True
        if lam < 1 and not bool(rest.any()):
            raise ValueError("every node is in train: lam < 1 needs unlabelled nodes, use lam=1 (Meta-Train)")
        self.weight = (1 - lam) * rest.to(self.dtype)[:, None] / rest.sum().clamp_min(1)  # [n, 1], in the attack loss
        self.weight[self.train] = lam / len(self.train)
        matters = (self.weight > 0)[:, 0]
        matters[self.train] = True
        labels = labels.to(self.device).long()
        if int(labels[matters].min()) < 0 or int(labels[matters].max()) >= classes:
            got = f"{int(labels[matters].min())} to {int(labels[matters].max())}"
            raise ValueError(
                f"labels of training and unlabelled nodes must lie in 0 to {classes - 1}, got {got};"
                " where the true ones are not known, pass guesses (see self_training_labels)"
            )
        self.targets = F.one_hot(torch.where(matters, labels, 0), classes).to(self.dtype)  # [n, c]
        i, j = undirected_pairs(data).to(self.device)
        self.edges = i * self.size + j  # [m], codes, sorted
        self.flipped = self.edges[:0]  # in the order of the flips
        self.original_degree = self.degree

    @property
    def degree(self) -> Tensor:  # -> [n] int64
        """The number of neighbours of each node."""
        return torch.bincount(torch.cat([self.edges // self.size, self.edges % self.size]), minlength=self.size)

    def first_weights(self, flip: int, hidden: int, initial: MetaInit) -> tuple[Tensor, Tensor]:  # -> [d, h], [h, c]
        """The surrogate's weights before training, drawn anew for each flip, uniform up to the bound of `initial`."""
        g, drawn = rng("attack", "metattack", self.seed, flip), []
        for shape in ((self.x.shape[1], hidden), (hidden, self.targets.shape[1])):
            uniform = 2 * torch.rand(shape, generator=g, dtype=self.dtype) - 1
            drawn.append((uniform / DIVISORS[initial](*shape)).to(self.device))
        return drawn[0], drawn[1]

    def build(self) -> Tensor:  # -> [k, d]
        """Compute S of the graph as it is now, and return M, the training nodes' rows of S S X."""
        i, j = self.edges // self.size, self.edges % self.size
        both = torch.stack([torch.cat([i, j]), torch.cat([j, i])])
        self.operator = gcn_operator(both, None, self.size, self.dtype)
        self.chosen = torch.zeros(self.size, len(self.train), dtype=self.dtype, device=self.device)
        self.chosen[self.train, torch.arange(len(self.train), device=self.device)] = 1
        self.reach = multiply(self.operator, self.chosen)  # [n, k], the training nodes' columns of S
        return self.transposed(multiply(self.operator, self.reach)).mT

    def transposed(self, nodes: Tensor) -> Tensor:  # [n, w] -> [d, w]
        """The product of X^T and a matrix."""
        return multiply(self.x.T if isinstance(self.x, Operator) else self.x.mT, nodes)

    def loss_factors(self, weights: Tensor) -> tuple[Tensor, Tensor]:  # [d, t, c] -> [n, 2 t c], [n, 2 t c]
        """U and V such that U V^T is the gradient with respect to S of the sum of the attack losses of t surrogates.

        The second half of U is S times the gradient with respect to the logits.
        """
        signal = multiply(self.x, weights.flatten(1))  # X W, [n, t c]
        once = multiply(self.operator, signal)
        logits = multiply(self.operator, once).view(self.size, *weights.shape[1:])
        to_logits = (self.weight[:, None] * (logits.softmax(2) - self.targets[:, None])).flatten(1)
        return torch.cat([to_logits, multiply(self.operator, to_logits)], 1), torch.cat([once, signal], 1)

    def training_factors(self, to_rows: Tensor) -> tuple[Tensor, Tensor]:  # [k, d] -> [n, 2 k], [n, 2 k]
        """U and V such that U V^T is the gradient with respect to S of a loss whose gradient at M is `to_rows`."""
        signal = multiply(self.x, to_rows.mT)
        return torch.cat([self.reach, self.chosen], 1), torch.cat([signal, multiply(self.operator, signal)], 1)

    def gradient(self, *factors: tuple[Tensor, Tensor]) -> "PairGradient":
        """The gradient with respect to any pair, from factors U, V whose products U V^T sum to P, the gradient at S.

        S = s (A + I) s with s = d^-1/2, so dL/dA_ij + dL/dA_ji is s_i s_j (P_ij + P_ji) + t_i + t_j, where t = dL/dd is
        -1 / (2 d_i) times the sums of P * S over row i and over column i.
        """
        degree = self.degree.to(self.dtype)[:, None] + 1
        t = torch.zeros_like(degree)
        for u, v in factors:
            s_v, s_u = multiply(self.operator, v), multiply(self.operator, u)  # S is symmetric
            t -= (u * s_v + v * s_u).sum(1, keepdim=True) / (2 * degree)
        scale = degree.rsqrt()
        return PairGradient(t, [(scale * u, scale * v) for u, v in factors])

    def flip_best(self, gradient: "PairGradient", cutoff: float | None) -> bool:
        """Flip the allowed pair that raises the loss most, to first order; return False if no pair is allowed."""
        i, j, degree = self.edges // self.size, self.edges % self.size, self.degree
        removable = (degree[i] > 1) & (degree[j] > 1)
        likely = None if cutoff is None else LikelyDegrees(self.original_degree, degree, cutoff)
        if likely is not None:
            removable &= likely.removed(i, j)
        rows = max(1, (CPU_BLOCK if self.device.type == "cpu" else GPU_BLOCK) // self.size)
        values, codes = [], []
        for first in range(0, self.size, rows):
            block = gradient.block(first, first + rows)
            here = (i >= first) & (i < first + rows)
            r, c = i[here] - first, j[here] - first
            of_edges = torch.where(removable[here], -block[r, c], -math.inf)  # an edge can only be removed
            if likely is not None:
                block.masked_fill_(~likely.added(first, first + rows), -math.inf)
            block[r, c] = of_edges
            r, c = self.flipped // self.size - first, self.flipped % self.size - first
            here = (r >= 0) & (r < rows)
            block[r[here], c[here]] = -math.inf
            square = block[:, : len(block)]
            square.masked_fill_(torch.ones_like(square, dtype=torch.bool).tril(), -math.inf)
            value, place = block.view(-1).max(0)
            width = block.shape[1]
            values.append(value)
            codes.append((first + place // width) * self.size + first + place % width)
        highest, best = torch.stack(values).max(0)
        rise = float(highest)
        if math.isnan(rise) or rise == math.inf:
            raise AttackError("the gradient is not finite: the surrogate's training diverges; scale the features down")
        if rise == 0 and len(self.flipped) == 0:
            raise AttackError("the gradient is zero: features or labels leave the surrogate nothing to learn")
        if rise > -math.inf:
            self.flip(torch.stack(codes)[best])
        return rise > -math.inf

    def flip(self, code: Tensor) -> None:
        """Add the edge if it is absent, else remove it."""
        is_edge = self.edges == code
        self.flipped = torch.cat([self.flipped, code[None]])
        without = self.edges[~is_edge]
        self.edges = without if len(without) < len(is_edge) else torch.cat([self.edges, code[None]]).sort().values


class PairGradient:
    """The gradient with respect to the adjacency of a pair, both directions together: t_i + t_j + u_i v_j + u_j v_i.

    On the CPU a factor `u` with many zeros is stored as a sparse matrix.
    """

    def __init__(self, t: Tensor, factors: Sequence[tuple[Tensor, Tensor]]) -> None:  # [n, 1], [n, f] and [n, f] each
        kinds = [(features(u), v) for u, v in factors]
        self.sparse = [(u, v) for u, v in kinds if isinstance(u, Operator)]
        dense = [(t, torch.ones_like(t)), *((u, v) for u, v in kinds if not isinstance(u, Operator))]
        self.left = torch.cat([u for u, _ in dense] + [v for _, v in dense], 1)
        self.right = torch.cat([v for _, v in dense] + [u for u, _ in dense], 1)

    def block(self, first: int, last: int) -> Tensor:  # -> [last - first, n - first]
        """The gradient of pairs of a node from `first` to `last` with a node from `first` on."""
        block = self.left[first:last] @ self.right[first:].T
        for u, v in self.sparse:
            rows, columns = (torch.arange(count, device=v.device) for count in u.shape)
            block += multiply(u.select(rows[first:last], columns), v[first:].T)
            block += multiply(u, v[first:last].T)[first:].T
        return block


def _distinct_nodes(nodes: Tensor, size: int, name: str) -> Tensor:  # -> [k] int64, sorted
    """Nodes as sorted indices, each once."""
    distinct: Tensor = torch.unique(checked_rows(nodes, size, name))
    return distinct
