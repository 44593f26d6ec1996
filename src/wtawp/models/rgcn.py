"""Robust GCN (Zhu et al. 2019): hidden layers are normal distributions, whose variance absorbs an attack."""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn

from wtawp.graphs.blocks import receptive_field
from wtawp.graphs.normalisation import gcn_operator
from wtawp.graphs.operator import Operator
from wtawp.graphs.products import Multiplies
from wtawp.models.caches import OperatorCache
from wtawp.models.capabilities import (
    Features,
    GraphOperator,
    HasExtraLoss,
    NormalisedAdjacency,
    StackAware,
    SupportsFactoredGradient,
)
from wtawp.models.dropout import dropout, normal
from wtawp.models.inputs import features
from wtawp.models.layers import GaussianConvolution, checked_flag, checked_widths, drop_input

TINY = 1e-8  # under the root and the logarithm of a variance, as in DeepRobust


@dataclass(frozen=True, eq=False)
class GaussianHop:
    """The operators of one layer, for the means and for the variances, over a graph or to some of its nodes.

    Attributes:
        means: D^-1/2 (A + I) D^-1/2, [m, n].
        variances: D^-1 (A + I) D^-1, [m, n].
        rows: Positions of the output rows in the whole graph, [m]; None if the output is the whole graph.
    """

    means: Operator | Multiplies
    variances: Operator | Multiplies
    rows: Tensor | None


class RGCN(nn.Module, StackAware, SupportsFactoredGradient, HasExtraLoss):
    """Robust GCN: Gaussian convolutions, whose weights WT-AWP cannot perturb.

    In training, the logits are drawn from the distributions of the last layer; in evaluation they are its means, unless
    `sample` is set. Train the model with its extra loss, which `fit` adds, and with `weight_decay=0`. The model is
    called as PyG's models are.

    Args:
        d_in: Number of features of a node.
        d_out: Number of classes.
        hidden: Widths of the hidden layers, one number each; the default is one layer of 16 units, as in DeepRobust.
        gamma: How strongly a large variance reduces a node's weight, exp(-gamma variance); >= 0. The default is the
            authors'.
        kl: Weight of the extra loss's first part: the divergence of the first layer's distributions, over all nodes,
            from the standard normal one; >= 0. The default is the authors'.
        decay: Weight of the extra loss's second part: the squared entries of the first layer's matrices; >= 0. The
            default is the authors'.
        dropout: Share of units that are dropped in training on the input and after each hidden layer, in [0, 1).
        sample: Whether the logits are drawn in evaluation mode as well, as in DeepRobust and the paper's released code.
        generator: Draws the initial weights.

    Raises:
        ValueError: If a width is below 1, `gamma`, `kl` or `decay` is negative, or the dropout is not in [0, 1).

    Example:
        >>> import torch
        >>> from wtawp.graphs import load
        >>> data = load("wine")
        >>> model = RGCN(13, 3, generator=torch.Generator().manual_seed(0))
        >>> model(data.x, data.edge_index).shape
        torch.Size([178, 3])
    """

    weights_are_distributions = True  # the perturbation refuses such a model, as the paper does

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        hidden: tuple[int, ...] = (16,),
        gamma: float = 1.0,
        kl: float = 5e-4,
        decay: float = 5e-4,
        dropout: float = 0.6,
        sample: bool = False,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        widths = checked_widths(d_in, hidden, d_out, dropout)
        for name, value in (("gamma", gamma), ("kl", kl), ("decay", decay)):
            if not value >= 0:
                raise ValueError(f"{name} must be >= 0, got {value}")
        self.dropout, self.kl, self.decay = dropout, kl, decay
        self.draws_in_evaluation = checked_flag("sample", sample)
        self.convs = nn.ModuleList(GaussianConvolution(a, b, gamma=gamma, generator=generator) for a, b in widths)
        self._means = OperatorCache(gcn_operator)
        self._variances = OperatorCache(partial(gcn_operator, power=-1.0))

    def forward(
        self,
        x: Features,
        edge_index: Tensor | tuple[GaussianHop, ...],
        edge_weight: Tensor | None = None,
        *,
        with_extra_loss: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:  # [n, d], [2, e], [e] -> [n, c]
        """Compute the logits of the nodes, random in training mode, and with `sample` always.

        Args:
            x: Features of the nodes, [n, d], dense or sparse.
            edge_index: Edges [2, e]; or a `GaussianHop` for each layer, the first one starting from all nodes, as
                `prepare` makes them.
            edge_weight: Weights of the edges, [e]; None if all are 1. Unused unless edges are given.
            with_extra_loss: Whether to return the extra term of the loss as well (see `HasExtraLoss`).

        Returns:
            Logits [n, c], with hops those of the last hop's rows; with the extra loss, the pair of logits and term.
        """
        if isinstance(edge_index, tuple):
            hops = edge_index
        else:
            hop = GaussianHop(
                self._means(edge_index, edge_weight, x), self._variances(edge_index, edge_weight, x), None
            )
            hops = (hop,) * len(self.convs)
        inputs, values = drop_input(x, self.dropout, self.training)
        mean, variance = first = self._layer(0).local(inputs, inputs, values)
        mean, variance = self._layer(0).spread(mean, variance, hops[0].means, hops[0].variances)
        for i, (before, hop) in enumerate(pairwise(hops), start=1):
            conv = self._layer(i)
            mean = dropout(mean, self.dropout, self.training, positions=before.rows)
            variance = dropout(variance, self.dropout, self.training, positions=before.rows)
            mean, variance = conv.spread(*conv.local(mean, variance), hop.means, hop.variances)
        logits: Tensor = mean
        if self.training or self.draws_in_evaluation:
            logits = mean + normal(mean, positions=hops[-1].rows) * (variance + TINY).sqrt()
        return (logits, self._regulariser(*first)) if with_extra_loss else logits

    def _regulariser(self, mean: Tensor, variance: Tensor) -> Tensor:  # [n, h], [n, h] -> []
        """Compute the extra term from the distributions of the first layer."""
        divergence = 0.5 * (mean.square() + variance - (variance + TINY).log()).mean(-1).sum(-1)
        return self.kl * divergence + self.decay * self._layer(0).squares()

    def _layer(self, i: int) -> GaussianConvolution:
        """Return a layer with its type, which `nn.ModuleList` does not know."""
        layer = self.convs[i]
        assert isinstance(layer, GaussianConvolution)
        return layer

    def extra_loss(self, *arguments: object) -> Tensor:
        """See `HasExtraLoss.extra_loss`."""
        term: Tensor = self(*arguments, with_extra_loss=True)[1]
        return term

    def prepare(self, x: Tensor, edge_index: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """See `StackAware.prepare`.

        The extra loss is over all nodes, so the first layer is too; the others only compute what leads to `rows`.
        """
        operators = self._means(edge_index, None, x), self._variances(edge_index, None, x)
        inputs = features(x, dropped=True)
        if rows is None:
            return inputs, (GaussianHop(*operators, None),) * len(self.convs)
        all_nodes = torch.arange(operators[0].shape[0], device=rows.device)
        blocks = [receptive_field(operator, rows, len(self.convs) - 1) for operator in operators]
        nodes = blocks[0].nodes  # the same in both, which differ in their values only
        starts = [operator.select(nodes[0], all_nodes) for operator in operators]
        means, variances = ((s, *b.operators) for s, b in zip(starts, blocks, strict=True))
        return inputs, tuple(GaussianHop(*hop) for hop in zip(means, variances, nodes, strict=True))

    def graph_operators(self) -> tuple[GraphOperator, ...]:
        """Name the operators through which the model reaches the graph, as `SupportsFactoredGradient` asks.

        Returns:
            The normalised adjacency matrices of the means and of the variances.
        """
        return NormalisedAdjacency(), NormalisedAdjacency(power=-1.0)

    def forward_args(self, x: Features, operators: tuple[Multiplies, ...]) -> tuple[object, ...]:
        """See `SupportsFactoredGradient.forward_args`."""
        means, variances = operators
        return x, (GaussianHop(means, variances, None),) * len(self.convs)
