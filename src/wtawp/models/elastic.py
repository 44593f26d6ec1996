"""Elastic GNN (Liu et al. 2021): logits smoothed over the graph by an l1 and an l2 penalty on differences."""

from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from wtawp.graphs.normalisation import gcn_operator, row_sums
from wtawp.graphs.operator import Operator
from wtawp.graphs.products import spmm
from wtawp.graphs.row_norms import row_norms
from wtawp.models.caches import LastCallCache, OperatorCache
from wtawp.models.capabilities import Features, StackAware
from wtawp.models.dropout import dropout
from wtawp.models.inputs import features
from wtawp.models.layers import Linear, checked_widths, drop_and_multiply

Penalty = Literal["l21", "l1"]
LEAST_NORM = 1e-12  # by which a difference is divided


class ElasticGNN(nn.Module, StackAware):
    """Two linear layers with dropout before each, whose logits are then smoothed by elastic message passing.

    The smoothed logits F approach the minimum of

        |F - H|^2 / 2 + lambda1 sum_ij w_ij |f_i - f_j| + lambda2 / 2 sum_ij w_ij |f_i - f_j|^2,

    where H are the logits of the linear layers, the sums run over the edges, and f_i is row i of F divided by the
    square root of the degree of node i plus one. The l1 penalty leaves a few large differences, such as those across
    edges that an attack added, where the l2 penalty alone, as in `PPNP`, would smooth them away. Each step is one
    of the authors' proximal iterations. An edge of weight w has the penalty lambda1 w, so that one of weight 0 has no
    effect; where the weights of the two directions differ, their mean counts there. The model is called as PyG's
    models are.

    Args:
        d_in: Number of features of a node.
        d_out: Number of classes.
        hidden: Width of the hidden layer; the default is the authors'.
        steps: Number of proximal iterations, at least 1; the default is the authors'.
        lambda1: Weight of the l1 penalty, at least 0; the authors choose among 0, 3, 6 and 9.
        lambda2: Weight of the l2 penalty, at least 0, likewise.
        penalty: "l21" shrinks the classes of a difference together, by its Euclidean norm; "l1" shrinks each by itself.
        dropout: Share of units that are dropped in training before each linear layer, in [0, 1); the default is the
            authors' for Cora.
        generator: Draws the initial weights.

    Raises:
        ValueError: If a width or the number of steps is below 1, a weight is negative, the penalty is unknown, or the
            dropout is not in [0, 1).

    Example:
        >>> import torch
        >>> from wtawp.graphs import load
        >>> data = load("wine")
        >>> model = ElasticGNN(13, 3, generator=torch.Generator().manual_seed(0))
        >>> model(data.x, data.edge_index).shape
        torch.Size([178, 3])
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        hidden: int = 64,
        steps: int = 10,
        lambda1: float = 3.0,
        lambda2: float = 3.0,
        penalty: Penalty = "l21",
        dropout: float = 0.8,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        checked_widths(d_in, (hidden,), d_out, dropout)
        if not isinstance(steps, int) or steps < 1:
            raise ValueError(f"steps must be a whole number >= 1, got {steps!r}")
        for name, value in (("lambda1", lambda1), ("lambda2", lambda2)):
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be a finite number >= 0, got {value!r}")
        if penalty not in get_args(Penalty):
            raise ValueError(f"penalty must be one of {', '.join(get_args(Penalty))}, got {penalty!r}")
        self.steps, self.lambda1, self.lambda2, self.penalty, self.dropout = steps, lambda1, lambda2, penalty, dropout
        self.lin1, self.lin2 = Linear(d_in, hidden, generator=generator), Linear(hidden, d_out, generator=generator)
        self._operators = OperatorCache(partial(gcn_operator, power=0.0))  # A + I, not normalised
        self._incidence = LastCallCache(incidence_operator)

    def forward(
        self,
        x: Features,
        edge_index: Tensor | Operator,
        edge_weight: Tensor | None = None,
        rows: Tensor | None = None,
    ) -> Tensor:  # [n, d], [2, e] or [n, n], [e] -> [n, c]
        """Compute the logits of the nodes.

        Args:
            x: Features of the nodes, [n, d], dense or sparse.
            edge_index: Edges [2, e]; or A + I as an operator [n, n].
            edge_weight: Weights of the edges, [e], not negative; None if all are 1. Unused unless edges are given.
            rows: The nodes whose logits are wanted, [k]; None for all nodes.

        Returns:
            Logits [n, c], or [k, c].
        """
        hidden = drop_and_multiply(self.lin1, x, self.dropout, self.training).relu()
        local: Tensor = self.lin2(dropout(hidden, self.dropout, self.training))
        operator = self._operators(edge_index, edge_weight, x)
        weights = {"lambda1": self.lambda1, "lambda2": self.lambda2}
        incidence = self._incidence(operator)
        out = elastic_smoothing(local, operator, incidence, steps=self.steps, penalty=self.penalty, **weights)
        return out if rows is None else out[..., rows, :]

    def prepare(self, x: Tensor, edge_index: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """See `StackAware.prepare`. Ten hops reach nearly every node, so all nodes are computed."""
        return features(x, dropped=True), self._operators(edge_index, None, x), None, rows


def incidence_operator(operator: Operator) -> tuple[Operator, Tensor]:  # [n, n] -> [m, n], [m]
    """Build the incidence matrix of a graph, with a row for each undirected edge, and the weights of its edges.

    Args:
        operator: A + I, [n, n].

    Returns:
        The matrix with a 1 and a -1 in the row of each edge, [m, n]; and the weights, [m], the means of the two
        directions. Gradients reach the operator's values.
    """
    rows, cols = operator.rows, operator.indices.long()
    is_edge = rows != cols
    first, second = torch.minimum(rows, cols)[is_edge], torch.maximum(rows, cols)[is_edge]
    edges = Operator.from_entries(first, second, operator.values[is_edge] / 2, operator.shape)
    number = torch.arange(len(edges.indices), device=rows.device)
    signs = edges.values.detach().new_ones(len(number))
    ends, numbers = torch.cat([edges.rows, edges.indices.long()]), torch.cat([number, number])
    matrix = Operator.from_entries(numbers, ends, torch.cat([signs, -signs]), (len(number), operator.shape[0]))
    return matrix, edges.values


def elastic_smoothing(
    local: Tensor,
    operator: Operator,
    incidence: tuple[Operator, Tensor],
    *,
    steps: int,
    lambda1: float,
    lambda2: float,
    penalty: Penalty,
) -> Tensor:  # [..., n, c], [n, n], ([m, n], [m]) -> [..., n, c]
    """Smooth a signal on the nodes of a graph, by proximal iterations from the signal itself.

    Args:
        local: The signal H, [..., n, c].
        operator: A + I, [n, n].
        incidence: The incidence matrix and the weights of the edges, as `incidence_operator` builds them.
        steps: Number of iterations.
        lambda1: Weight of the l1 penalty.
        lambda2: Weight of the l2 penalty.
        penalty: Whether the columns of a difference are shrunk together or each by itself.

    Returns:
        The smoothed signal, [..., n, c].
    """
    differences, weights = incidence
    scale = row_sums(operator).rsqrt()[:, None]  # degrees are 1 or more
    bound = (lambda1 * weights)[:, None]
    primal_step = 1 / (1 + lambda2)
    dual_step = 1 / (2 * primal_step)
    sums = differences.T

    out, dual = local, None
    for _ in range(steps):
        smooth = primal_step * local + (1 - primal_step) * scale * spmm(operator, scale * out)
        if not lambda1:
            out = smooth
            continue
        ahead = smooth if dual is None else smooth - primal_step * scale * spmm(sums, dual)
        change = dual_step * spmm(differences, scale * ahead)
        dual = clipped(change if dual is None else dual + change, bound, penalty)
        out = smooth - primal_step * scale * spmm(sums, dual)
    return out


def clipped(dual: Tensor, bound: Tensor, penalty: Penalty) -> Tensor:  # [..., m, c], [m, 1] -> [..., m, c]
    """Project each row onto the ball of radius `bound`: a Euclidean one for "l21", a cube for "l1"."""
    if penalty == "l1":
        return dual.clamp(-bound, bound)
    norm = row_norms(dual)[..., None]
    return dual * torch.where(norm > bound, bound / norm.clamp_min(LEAST_NORM), 1)
