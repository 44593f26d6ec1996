"""Layers that take their randomness from a generator and their graph as an operator."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from typing import TypeGuard, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wtawp.base import DataError
from wtawp.graphs.blocks import Blocks
from wtawp.graphs.operator import Operator
from wtawp.graphs.products import Multiplies, multiply
from wtawp.models.dropout import dropout
from wtawp.models.fused import attend, convolve, propagate


def _uniform(*shape: int, bound: float, generator: torch.Generator) -> nn.Parameter:
    """Draw a parameter uniformly from [-bound, bound]."""
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound, generator=generator))


class Linear(nn.Module):
    """A linear layer X W + b, where X may be an operator, that is, sparse features.

    The weight is [d_in, d_out], so that a product with a sparse X reads contiguous rows of it.

    Args:
        d_in: Number of inputs.
        d_out: Number of outputs.
        bound: Initial weights are uniform in [-bound, bound]; None for the bound of `nn.Linear`, 1 / sqrt(d_in).
        bias: Whether there is a b.
        generator: Draws the initial weights.
    """

    def __init__(
        self, d_in: int, d_out: int, *, bound: float | None = None, bias: bool = True, generator: torch.Generator
    ):
        super().__init__()
        bound = 1 / math.sqrt(d_in) if bound is None else bound  # nn.Linear's
        self.weight = _uniform(d_in, d_out, bound=bound, generator=generator)
        self.bias = _uniform(d_out, bound=bound, generator=generator) if bias else None

    def forward(self, x: Tensor | Operator, values: Tensor | None = None) -> Tensor:  # [n, d_in] -> [n, d_out]
        """Multiply; `values` replace the entries of a sparse X, for example after dropout."""
        check_width(x, self.weight)
        product = multiply(x, self.weight, values)
        return product if self.bias is None else product + self.bias[..., None, :]


class GraphConvolution(nn.Module):
    """A graph convolution A_hat (X W) + b (Kipf and Welling).

    Initial weights are uniform in [-1 / sqrt(d_out), 1 / sqrt(d_out)], as in the paper's released code. The weight of a
    skip connection is a parameter of the layer itself, so that the perturbation counts it with its layer.

    Args:
        d_in: Number of inputs.
        d_out: Number of outputs.
        residual: Whether there is a skip connection, which adds X W_s.
        generator: Draws the initial weights.
    """

    def __init__(self, d_in: int, d_out: int, *, residual: bool = False, generator: torch.Generator) -> None:
        super().__init__()
        bound = 1 / math.sqrt(d_out)
        self.weight = _uniform(d_in, d_out, bound=bound, generator=generator)
        self.bias = _uniform(d_out, bound=bound, generator=generator)
        self.skip_weight = _skip_weight(d_in, d_out, residual=residual, generator=generator)

    def forward(
        self,
        x: Tensor | Operator,
        operator: Operator | Multiplies,
        *,
        relu_and_drop: float | None = None,
        positions: Tensor | None = None,
        entries: Callable[[Tensor], Tensor] | None = None,
        is_padded: bool = False,
        own: Tensor | Operator | None = None,
    ) -> Tensor:  # [n, d_in], [m, n] -> [m, d_out]
        """Compute the convolution.

        Args:
            x: Features, [n, d_in], dense or sparse.
            operator: A_hat, [m, n].
            relu_and_drop: Rate of a dropout after a ReLU, both fused into the product; None for neither.
            positions: Positions of the output rows in the whole graph, as in `dropout`.
            entries: Function of X W [n, d_out] that returns entries [e] to use instead of those of the operator.
            is_padded: Whether x may end in columns of zeros that `aligned` appended.
            own: The features of the m output nodes, [m, d_in], for a skip connection; None for the first m rows of x.

        Returns:
            The output, [m, d_out].
        """
        if not is_padded:
            check_width(x, self.weight)
        shift = self.bias[..., None, :]
        if self.skip_weight is not None:
            own = x if own is None else own
            m = operator.shape[0] if isinstance(operator, Operator) else own.shape[-2]
            shift = shift + _multiply_first(own, m, self.skip_weight)
        if not isinstance(operator, Operator):
            out = operator @ multiply(x, self.weight) + shift
            return out if relu_and_drop is None else dropout(out.relu(), relu_and_drop, self.training)
        if entries is not None:
            product = multiply(x, self.weight)
            return multiply(operator, product, entries(product)) + shift
        if relu_and_drop is None and _is_dense(x) and _gathers_first(operator, self.weight):
            return multiply(multiply(operator, x), self.weight) + shift
        if relu_and_drop is not None and isinstance(x, Operator) and self.skip_weight is None:
            shape = x, self.weight, operator, self.bias
            return convolve(*shape, p=relu_and_drop, training=self.training, positions=positions)
        product = multiply(x, self.weight)
        if relu_and_drop is None:
            return multiply(operator, product) + shift
        if self.skip_weight is not None:  # the compiled kernel adds one bias to all rows
            out = (multiply(operator, product) + shift).relu()
            return dropout(out, relu_and_drop, self.training, positions=positions)
        return propagate(operator, product, self.bias, p=relu_and_drop, training=self.training, positions=positions)


class SageConvolution(nn.Module):
    """mean(neighbours) W_l + X W_r + b (Hamilton et al. 2017), initialised as PyG's SAGEConv.

    All matrices are parameters of the layer itself, not of linear layers inside it, so that the perturbation counts
    them as one layer.

    Args:
        d_in: Number of inputs.
        d_out: Number of outputs.
        residual: Whether there is a skip connection, which adds X W_s.
        generator: Draws the initial weights.
    """

    def __init__(self, d_in: int, d_out: int, *, residual: bool = False, generator: torch.Generator) -> None:
        super().__init__()
        bound = 1 / math.sqrt(d_in)
        self.neighbour_weight = _uniform(d_in, d_out, bound=bound, generator=generator)
        self.own_weight = _uniform(d_in, d_out, bound=bound, generator=generator)
        self.bias = _uniform(d_out, bound=bound, generator=generator)
        self.skip_weight = _skip_weight(d_in, d_out, residual=residual, generator=generator)

    def forward(
        self, x: Tensor | Operator, operator: Operator, own: Tensor | Operator | None = None
    ) -> Tensor:  # [n, d_in], [m, n], [m, d_in] -> [m, d_out]
        """Compute the convolution; `own` are the features of the m output nodes, None for the first m rows of x."""
        check_width(x, self.neighbour_weight)
        if _is_dense(x) and _gathers_first(operator, self.neighbour_weight):
            neighbours = multiply(multiply(operator, x), self.neighbour_weight)
        else:
            neighbours = multiply(operator, multiply(x, self.neighbour_weight))
        own_weight = self.own_weight if self.skip_weight is None else self.own_weight + self.skip_weight
        itself = _multiply_first(x if own is None else own, operator.shape[0], own_weight)
        return neighbours + itself + self.bias[..., None, :]


class GinConvolution(nn.Module):
    """relu(((1 + eps) X + sum(neighbours)) W_1 + b_1) W_2 + b_2 (Xu et al. 2019), initialised as `nn.Linear`.

    Both matrices are parameters of the layer itself, as in `SageConvolution`.

    Args:
        d_in: Number of inputs.
        width: Number of hidden units.
        d_out: Number of outputs.
        eps: Weight of a node's own features, less 1.
        train_eps: Whether `eps` is a parameter.
        generator: Draws the initial weights.
    """

    def __init__(
        self, d_in: int, width: int, d_out: int, *, eps: float, train_eps: bool, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.eps: float | nn.Parameter = nn.Parameter(torch.tensor([float(eps)])) if train_eps else eps
        bound = 1 / math.sqrt(d_in)
        self.first_weight = _uniform(d_in, width, bound=bound, generator=generator)
        self.first_bias = _uniform(width, bound=bound, generator=generator)
        bound = 1 / math.sqrt(width)
        self.second_weight = _uniform(width, d_out, bound=bound, generator=generator)
        self.second_bias = _uniform(d_out, bound=bound, generator=generator)

    def forward(self, x: Tensor | Operator, operator: Operator) -> Tensor:  # [n, d_in], [m, n] -> [m, d_out]
        """Compute the convolution; the m output nodes are the first of the n."""
        check_width(x, self.first_weight)
        if _is_dense(x) and _gathers_first(operator, self.first_weight):
            hidden = multiply(self._gather(x, operator), self.first_weight)
        else:
            hidden = self._gather(multiply(x, self.first_weight), operator)
        hidden = (hidden + self.first_bias[..., None, :]).relu()
        return multiply(hidden, self.second_weight) + self.second_bias[..., None, :]

    def _gather(self, x: Tensor, operator: Operator) -> Tensor:  # [n, h] -> [m, h]
        """Sum over the neighbours and the weighted node itself."""
        eps = self.eps[..., None] if isinstance(self.eps, Tensor) else self.eps
        return multiply(operator, x) + (1 + eps) * x[..., : operator.shape[0], :]


class GaussianConvolution(nn.Module):
    """A graph convolution of normal distributions, one at each node (Zhu et al. 2019); Glorot initialisation.

    The mean is elu(M W_m), the variance relu(V W_v). Uncertain nodes get a small weight, exp(-gamma variance).

    Args:
        d_in: Number of inputs.
        d_out: Number of outputs.
        gamma: How strongly the variance reduces the weight.
        generator: Draws the initial weights.
    """

    def __init__(self, d_in: int, d_out: int, *, gamma: float, generator: torch.Generator) -> None:
        super().__init__()
        self.gamma = gamma
        bound = math.sqrt(6 / (d_in + d_out))
        self.mean_weight = _uniform(d_in, d_out, bound=bound, generator=generator)
        self.variance_weight = _uniform(d_in, d_out, bound=bound, generator=generator)

    def local(
        self, mean: Tensor | Operator, variance: Tensor | Operator, values: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:  # [n, d_in], [n, d_in] -> [n, d_out], [n, d_out]
        """Transform the distribution of each node; `values` replace the entries of sparse features."""
        check_width(mean, self.mean_weight)
        new_mean = F.elu(multiply(mean, self.mean_weight, values))
        return new_mean, multiply(variance, self.variance_weight, values).relu()

    def spread(
        self, mean: Tensor, variance: Tensor, means: Operator | Multiplies, variances: Operator | Multiplies
    ) -> tuple[Tensor, Tensor]:  # [n, h], [n, h], [m, n], [m, n] -> [m, h], [m, h]
        """Compute the distribution of the weighted sum over the neighbours of each node."""
        attention = (-self.gamma * variance).exp()
        return multiply(means, mean * attention), multiply(variances, variance * attention * attention)

    def squares(self) -> Tensor:  # -> [], or [b] for a stack
        """Sum the squared entries of both matrices."""
        return self.mean_weight.square().sum((-2, -1)) + self.variance_weight.square().sum((-2, -1))


class SimilarityConvolution(nn.Module):
    """s (A H) + (1 - s) (K H) + gamma t H for H = X W + b (Jin et al. 2021), with learned gates s and t.

    A is the graph, K joins nodes with similar features; s = sigmoid(X u + c), t = X v + c'. (The bias b is added after
    A and K.) Initialised as in DeepRobust: gate vectors uniform in [-1, 1], c' = 0.

    Args:
        d_in: Number of inputs.
        d_out: Number of outputs.
        gamma: Weight of the self-loops.
        graph_bias: Initial value of c, the bias of s.
        generator: Draws the initial weights.
    """

    def __init__(
        self, d_in: int, d_out: int, *, gamma: float, graph_bias: float = 0.0, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.gamma = gamma
        bound = 1 / math.sqrt(d_out)
        self.weight = _uniform(d_in, d_out, bound=bound, generator=generator)
        self.bias = _uniform(d_out, bound=bound, generator=generator)
        self.gates = _uniform(d_in, 2, bound=1.0, generator=generator)  # u and v
        self.gate_bias = nn.Parameter(torch.tensor([graph_bias, 0.0]))

    def forward(
        self, x: Tensor | Operator, graph: Operator | Multiplies, alike: Operator, rows: Tensor | None = None
    ) -> Tensor:  # [n, d_in], [m, n], [m, n] -> [m, d_out]
        """Compute the convolution; `rows` are the positions of the m output nodes among the n, None for all."""
        check_width(x, self.weight)
        product = multiply(x, torch.cat([self.weight, self.gates], -1))  # one pass over the features
        local, gates = product[..., :-2], product[..., -2:] + self.gate_bias[..., None, :]
        own = local if rows is None else local[..., rows, :]
        gates = gates if rows is None else gates[..., rows, :]
        share, loop = gates[..., :1].sigmoid(), self.gamma * gates[..., 1:]
        local = local.contiguous()
        spread = share * multiply(graph, local) + (1 - share) * multiply(alike, local)
        return spread + loop * own + (1 + loop) * self.bias[..., None, :]


def _skip_weight(d_in: int, d_out: int, *, residual: bool, generator: torch.Generator) -> nn.Parameter | None:
    """Draw the weight of a skip connection as `nn.Linear` does; None, and no draw, if there is no such connection."""
    return _uniform(d_in, d_out, bound=1 / math.sqrt(d_in), generator=generator) if residual else None


def _multiply_first(
    x: Tensor | Operator, m: int, weight: Tensor, values: Tensor | None = None
) -> Tensor:  # [n, d_in], [d_in, d_out] -> [m, d_out]
    """Multiply the first m rows of x with a weight; `values` replace the entries of a sparse x."""
    if _is_dense(x):
        return multiply(x[..., :m, :], weight)
    return multiply(x, weight, values)[..., :m, :]


def _is_dense(x: Tensor | Operator) -> TypeGuard[Tensor]:
    """Tell whether x is neither an operator nor a sparse tensor; these can only be multiplied with a weight."""
    return isinstance(x, Tensor) and x.layout == torch.strided


def _gathers_first(operator: Operator, weight: Tensor) -> bool:
    """Tell whether (A X) W takes fewer multiplications than A (X W), for a dense X."""
    (m, n), (d_in, d_out), entries = operator.shape, weight.shape[-2:], len(operator.indices)
    return entries * d_in + m * d_in * d_out < n * d_in * d_out + entries * d_out


def checked_flag(name: str, value: bool) -> bool:
    """Check an option that is on or off. The text "no" would count as True.

    Args:
        name: The name of the option, for the message.
        value: Whether it is on.

    Returns:
        The same value.

    Raises:
        ValueError: If it is neither True nor False.
    """
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return value


def checked_widths(d_in: int, hidden: tuple[int, ...] | int, d_out: int, dropout: float) -> list[tuple[int, int]]:
    """List the input and output width of each layer.

    Args:
        d_in: Number of inputs of the model.
        hidden: Widths of the hidden layers.
        d_out: Number of outputs of the model.
        dropout: Rate of dropout, which is checked as well.

    Returns:
        The pairs (inputs, outputs), first layer to last.

    Raises:
        ValueError: If `hidden` is a single number, a width is below 1, or the dropout is not in [0, 1).
    """
    if isinstance(hidden, int):
        raise ValueError(
            f"hidden must be a tuple with the width of each hidden layer, such as ({max(hidden, 1)},), got {hidden}"
        )
    if min(d_in, *hidden, d_out) < 1:
        raise ValueError(f"widths must be >= 1, got d_in={d_in}, hidden={hidden}, d_out={d_out}")
    checked_dropout(dropout)
    return list(pairwise((d_in, *hidden, d_out)))


def checked_dropout(dropout: float) -> float:
    """Check a rate of dropout.

    Args:
        dropout: The rate.

    Returns:
        The rate.

    Raises:
        ValueError: If it is not in [0, 1).
    """
    is_number = isinstance(cast(object, dropout), Real)  # NumPy's, too
    if not is_number or not 0 <= dropout < 1:
        raise ValueError(f"dropout must lie in [0, 1), got {dropout!r}")
    return dropout


def check_width(x: Tensor | Operator, weight: Tensor) -> None:
    """Refuse features that have not as many columns as a layer has inputs: products would drop or invent some.

    Args:
        x: Features, [n, d].
        weight: The weight of the layer, [d_in, d_out], or a stack of them.

    Raises:
        DataError: If d is not d_in.
    """
    if x.shape[-1] != weight.shape[-2]:
        raise DataError(
            f"the features have {x.shape[-1]} columns, but the layer takes {weight.shape[-2]}; build the model with"
            f" d_in={x.shape[-1]}, which is data.num_features"
        )


def drop_and_multiply(
    lin: Linear, x: Tensor | Operator, p: float, training: bool, positions: Tensor | None = None
) -> Tensor:
    """Apply dropout to the input, then a linear layer. Sparse features need a mask for their non-zeros only."""
    return lin(*drop_input(x, p, training, positions))  # type: ignore[no-any-return]


def drop_input(
    x: Tensor | Operator, p: float, training: bool, positions: Tensor | None = None
) -> tuple[Tensor | Operator, Tensor | None]:
    """Apply dropout to the input: return the features and, if they are sparse, the values that replace theirs."""
    if not training or p == 0:
        return x, None
    if not isinstance(x, Operator):
        return dropout(x, p, training, positions=positions), None
    rows = x.rows if positions is None else positions[x.rows]
    kept = dropout(x.values[:, None], p, training, positions=rows * x.shape[1] + x.indices.long())
    return x, kept[..., 0]


@dataclass(frozen=True, eq=False)
class Hop:
    """The operator of one layer over a graph, or over a block of it, with the positions that dropout masks need.

    Attributes:
        operator: The operator, [n, m]; its n rows are the first of the m columns.
        columns: Positions of the columns in the whole graph, [m]; None if it is the whole graph.
        entries: Positions of the entries in the whole graph, [e].
        weights: Weights of the edges, [e]; None if all are 1.
    """

    operator: Operator
    columns: Tensor | None
    entries: Tensor
    weights: Tensor | None = None

    @staticmethod
    def whole(operator: Operator) -> "Hop":
        """Make the hop over all nodes."""
        return Hop(operator, None, operator.rows * operator.shape[1] + operator.indices.long())

    @staticmethod
    def over_blocks(blocks: Blocks, size: int) -> "tuple[Hop, ...]":
        """Make the hops over blocks that were cut out of a graph of `size` nodes."""
        steps = zip(blocks.operators, pairwise(blocks.nodes), strict=True)
        return tuple(Hop(o, columns, rows[o.rows] * size + columns[o.indices.long()]) for o, (columns, rows) in steps)


class GraphAttention(nn.Module):
    """One layer of a GAT (Velickovic et al. 2018); Glorot initialisation.

    Args:
        d_in: Number of inputs.
        width: Number of outputs of each head.
        heads: Number of heads.
        concat: Whether the outputs of the heads are concatenated; otherwise they are averaged.
        residual: Whether there is a skip connection, which adds X W_s, with the same dropout on X.
        generator: Draws the initial weights.
    """

    def __init__(
        self,
        d_in: int,
        width: int,
        *,
        heads: int,
        concat: bool,
        residual: bool = False,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.heads, self.concat = heads, concat
        self.lin = Linear(
            d_in, heads * width, bound=math.sqrt(6 / (d_in + heads * width)), bias=False, generator=generator
        )
        bound = math.sqrt(6 / (heads + width))
        self.att_src = _uniform(heads, width, bound=bound, generator=generator)
        self.att_dst = _uniform(heads, width, bound=bound, generator=generator)
        d_out = heads * width if concat else width
        self.bias = nn.Parameter(torch.zeros(d_out))
        self.skip_weight = _skip_weight(d_in, d_out, residual=residual, generator=generator)

    def forward(self, x: Tensor | Operator, hop: Hop, p: float) -> Tensor:  # [m, d] -> [n, heads * width]
        """Compute the layer, with dropout at rate p on the input and on the attention."""
        x, values = drop_input(x, p, self.training, hop.columns)
        projected = self.lin(x, values)
        scores = projected @ torch.cat([_by_head(self.att_src), _by_head(self.att_dst)], -1)  # [m, 2 * heads]
        source, target = scores[..., : self.heads], scores[..., : hop.operator.shape[0], self.heads :]
        projected = projected.view(*projected.shape[:-1], self.heads, -1)  # [m, heads, width]
        inputs = hop.operator, projected, source, target
        out = attend(*inputs, p=p, training=self.training, entries=hop.entries, weights=hop.weights)
        out = (out.flatten(-2) if self.concat else out.mean(-2)) + self.bias[..., None, :]
        if self.skip_weight is None:
            return out
        return out + _multiply_first(x, hop.operator.shape[0], self.skip_weight, values)


def _by_head(attention: Tensor) -> Tensor:  # [heads, w] -> [heads * w, heads]
    """Build the matrix whose product with concatenated heads is the inner product of each head with its vector."""
    return torch.diag_embed(attention.mT).transpose(-3, -2).flatten(-3, -2)
