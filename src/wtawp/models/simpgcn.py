"""SimP-GCN (Jin et al. 2021): beside its neighbours, a node listens to the nodes with features like its own."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from wtawp.graphs.normalisation import gcn_operator
from wtawp.graphs.operator import Operator
from wtawp.graphs.products import Multiplies
from wtawp.graphs.similarity import extreme_pairs, knn_operator
from wtawp.models.adapter import Features, LastCallCache, Normalised, OperatorCache, View, features
from wtawp.models.dropout import dropout, next_key
from wtawp.models.dropout_kernels import hashed
from wtawp.models.layers import Linear, SimilarityConvolution, checked_widths


@dataclass(frozen=True, eq=False)
class TwoGraphs:
    """The graph and the k-NN graph of the features, whole and cut down to `rows`; the pairs of the extra loss."""

    graph: Operator | Multiplies  # [n, n]
    alike: Operator  # [n, n]
    last_graph: Operator | Multiplies  # [m, n]
    last_alike: Operator  # [m, n]
    rows: Tensor | None  # [m]; None: all
    pairs: Tensor  # [2, p]
    similarity: Tensor  # [p]


class SimPGCN(nn.Module):
    """Two convolutions that weigh the graph against the `neighbours`-NN graph of the features, node by node.

    Dropout but no ReLU between them, as in DeepRobust. Train it with the extra loss: `ssl` weighs how badly the hidden
    layer of two nodes tells the similarity of their features, over `num_pairs` pairs drawn anew at each pass. Features
    count as binary. Called as PyG models are; both graphs are built once.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        hidden: int = 16,
        neighbours: int = 20,
        gamma: float = 0.1,
        ssl: float = 5.0,
        num_pairs: int = 10_000,
        dropout: float = 0.5,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        checked_widths(d_in, (hidden,), d_out, dropout)
        for name, value, least in (("neighbours", neighbours, 1), ("num_pairs", num_pairs, 1), ("ssl", ssl, 0)):
            if not value >= least:
                raise ValueError(f"{name} must be >= {least}, got {value}")
        self.dropout, self.ssl, self.num_pairs, self.neighbours = dropout, ssl, num_pairs, neighbours
        self.conv1 = SimilarityConvolution(d_in, hidden, gamma=gamma, generator=generator)
        self.conv2 = SimilarityConvolution(hidden, d_out, gamma=gamma, generator=generator)
        # The judge of pairs is no layer of the network: its parameters are the root's, out of the perturbation's reach.
        judge = Linear(hidden, 1, generator=generator)
        self.judge, self.judge_bias = judge.weight, judge.bias
        self._graphs = OperatorCache(gcn_operator)
        self._alike = LastCallCache(partial(knn_operator, k=neighbours))
        self._pairs = LastCallCache(extreme_pairs)

    def forward(
        self,
        x: Features,
        edge_index: Tensor | TwoGraphs,
        edge_weight: Tensor | None = None,
        *,
        with_extra_loss: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:  # [n, d], [2, e], [e] -> [n, c]
        """See `HasExtraLoss` for `with_extra_loss`."""
        both = self._both(x, edge_index, edge_weight, None) if isinstance(edge_index, Tensor) else edge_index
        hidden = dropout(self.conv1(x, both.graph, both.alike), self.dropout, self.training)
        logits: Tensor = self.conv2(hidden, both.last_graph, both.last_alike, both.rows)
        return (logits, self._regression(hidden, both)) if with_extra_loss else logits

    def _both(self, x: Features, edge_index: Tensor, edge_weight: Tensor | None, rows: Tensor | None) -> TwoGraphs:
        graph, alike = self._graphs(edge_index, edge_weight, x), self._alike(x)
        last = graph, alike
        if rows is not None:
            everybody = torch.arange(graph.shape[0], device=rows.device)
            last = graph.select(rows, everybody), alike.select(rows, everybody)
        return TwoGraphs(graph, alike, *last, rows, *self._pairs(x))

    def _regression(self, hidden: Tensor, both: TwoGraphs) -> Tensor:  # [n, h] -> []
        size = both.pairs.shape[1]
        chosen = torch.arange(size, device=hidden.device)
        if self.training and size > self.num_pairs:  # those with the smallest hashes are a draw without replacement
            hashes = hashed(chosen, next_key(hidden.device)[..., None])
            chosen = hashes.topk(self.num_pairs, largest=False).indices  # [k], or [b, k] for a stack
        chosen = chosen.expand(*hidden.shape[:-2], -1)
        first, second = (hidden.take_along_dim(end[chosen][..., None], -2) for end in both.pairs)
        assert self.judge_bias is not None
        told = (first - second).abs() @ self.judge + self.judge_bias[..., None, :]  # [k, 1]
        return self.ssl * (told[..., 0] - both.similarity[chosen]).square().mean(-1)

    def extra_loss(self, *arguments: object) -> Tensor:
        """See `HasExtraLoss`."""
        term: Tensor = self(*arguments, with_extra_loss=True)[1]
        return term

    def prepare(self, x: Tensor, edge_index: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """See `StackAware`. The extra loss is over all nodes, and so is the first layer; the last is cut to `rows`."""
        return features(x), self._both(x, edge_index, None, rows)

    def views(self) -> tuple[View, ...]:
        """See `SupportsFactoredGradient`: the k-NN graph and the gates are made of features alone."""
        return (Normalised(),)

    def through(self, x: Features, views: tuple[Multiplies, ...]) -> tuple[object, ...]:
        """See `SupportsFactoredGradient`."""
        alike = self._alike(x)
        no_pairs = torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0)  # which only the extra loss asks for
        return x, TwoGraphs(views[0], alike, views[0], alike, None, *no_pairs)
