"""Robust GCN (Zhu et al. 2019): hidden layers are normal distributions, so that an attack drowns in their variance."""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn

from wtawp.graphs.blocks import receptive_field
from wtawp.graphs.normalisation import gcn_operator
from wtawp.graphs.operator import Operator
from wtawp.graphs.products import Multiplies
from wtawp.models.adapter import Features, Normalised, OperatorCache, View, features
from wtawp.models.dropout import dropout, normal
from wtawp.models.layers import GaussianConvolution, checked_widths, drop_input

TINY = 1e-8  # under the root and the logarithm of a variance, as in DeepRobust


@dataclass(frozen=True, eq=False)
class GaussianHop:
    """One step over a graph, or to some of its nodes: what means and what variances are multiplied with."""

    means: Operator | Multiplies  # [m, n], D^-1/2 (A + I) D^-1/2
    variances: Operator | Multiplies  # [m, n], D^-1 (A + I) D^-1
    rows: Tensor | None  # [m], the output's places in the whole graph; None if it is the whole graph


class RGCN(nn.Module):
    """Gaussian convolutions; in training the logits are drawn from the last one's distributions, else their means.

    Train it with the extra loss and without weight decay: `kl` weighs the divergence of all nodes' first distributions
    from the standard normal one, `decay` the squared first matrices. Called as PyG models are. In the place of
    `edge_index` it also takes a hop for each layer, the first one over all nodes.
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
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        widths = checked_widths(d_in, hidden, d_out, dropout)
        for name, value in (("gamma", gamma), ("kl", kl), ("decay", decay)):
            if not value >= 0:
                raise ValueError(f"{name} must be >= 0, got {value}")
        self.dropout, self.kl, self.decay = dropout, kl, decay
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
        """See `HasExtraLoss` for `with_extra_loss`."""
        if isinstance(edge_index, tuple):
            hops = edge_index
        else:
            hop = GaussianHop(
                self._means(edge_index, edge_weight, x), self._variances(edge_index, edge_weight, x), None
            )
            hops = (hop,) * len(self.convs)
        given, values = drop_input(x, self.dropout, self.training)
        mean, variance = first = self._layer(0).local(given, given, values)
        mean, variance = self._layer(0).spread(mean, variance, hops[0].means, hops[0].variances)
        for i, (before, hop) in enumerate(pairwise(hops), start=1):
            conv = self._layer(i)
            mean = dropout(mean, self.dropout, self.training, positions=before.rows)
            variance = dropout(variance, self.dropout, self.training, positions=before.rows)
            mean, variance = conv.spread(*conv.local(mean, variance), hop.means, hop.variances)
        logits: Tensor = mean
        if self.training:
            logits = mean + normal(mean, positions=hops[-1].rows) * (variance + TINY).sqrt()
        return (logits, self._regulariser(*first)) if with_extra_loss else logits

    def _regulariser(self, mean: Tensor, variance: Tensor) -> Tensor:  # [n, h], [n, h] -> []
        divergence = 0.5 * (mean.square() + variance - (variance + TINY).log()).mean(-1).sum(-1)
        return self.kl * divergence + self.decay * self._layer(0).squares()

    def _layer(self, i: int) -> GaussianConvolution:
        layer = self.convs[i]
        assert isinstance(layer, GaussianConvolution)
        return layer

    def extra_loss(self, *arguments: object) -> Tensor:
        """See `HasExtraLoss`."""
        term: Tensor = self(*arguments, with_extra_loss=True)[1]
        return term

    def prepare(self, x: Tensor, edge_index: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """See `StackAware`. The extra loss is over all nodes, and so is the first layer; the others lead to `rows`."""
        operators = self._means(edge_index, None, x), self._variances(edge_index, None, x)
        given = features(x, dropped=True)
        if rows is None:
            return given, (GaussianHop(*operators, None),) * len(self.convs)
        everybody = torch.arange(operators[0].shape[0], device=rows.device)
        blocks = [receptive_field(operator, rows, len(self.convs) - 1) for operator in operators]
        nodes = blocks[0].nodes  # the same in both: they differ in values alone
        starts = [operator.select(nodes[0], everybody) for operator in operators]
        means, variances = ((s, *b.operators) for s, b in zip(starts, blocks, strict=True))
        return given, tuple(GaussianHop(*hop) for hop in zip(means, variances, nodes, strict=True))

    def views(self) -> tuple[View, ...]:
        """See `SupportsFactoredGradient`: for means and for variances."""
        return Normalised(), Normalised(power=-1.0)

    def through(self, x: Features, views: tuple[Multiplies, ...]) -> tuple[object, ...]:
        """See `SupportsFactoredGradient`."""
        means, variances = views
        return x, (GaussianHop(means, variances, None),) * len(self.convs)
