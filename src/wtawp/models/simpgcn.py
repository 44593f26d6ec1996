"""SimP-GCN (Jin et al. 2021): a node aggregates its neighbours and the nodes with the most similar features."""

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from wtawp.graphs.normalisation import gcn_operator
from wtawp.graphs.operator import Operator
from wtawp.graphs.products import Multiplies
from wtawp.graphs.similarity import extreme_pairs, knn_operator
from wtawp.models.caches import LastCallCache, OperatorCache
from wtawp.models.capabilities import (
    Features,
    GraphOperator,
    HasExtraLoss,
    NormalisedAdjacency,
    StackAware,
    SupportsFactoredGradient,
)
from wtawp.models.dropout import dropout, next_key
from wtawp.models.dropout_kernels import hashed
from wtawp.models.inputs import features
from wtawp.models.layers import Linear, SimilarityConvolution, checked_widths


@dataclass(frozen=True, eq=False)
class TwoGraphs:
    """The graph and the nearest-neighbour graph of the features, with the pairs of nodes of the extra loss.

    Attributes:
        graph: The normalised graph, for the first layer, [n, n].
        alike: The nearest-neighbour graph, for the first layer, [n, n].
        last_graph: The rows of `graph` that the last layer computes, [m, n].
        last_alike: The rows of `alike` that the last layer computes, [m, n].
        rows: The nodes that the last layer computes, [m]; None for all.
        pairs: Pairs of nodes for the extra loss, [2, p].
        similarity: Similarity of the features of each pair, [p].
    """

    graph: Operator | Multiplies
    alike: Operator
    last_graph: Operator | Multiplies
    last_alike: Operator
    rows: Tensor | None
    pairs: Tensor
    similarity: Tensor


class SimPGCN(nn.Module, StackAware, SupportsFactoredGradient, HasExtraLoss):
    """SimP-GCN: two convolutions over a mixture of the graph and the nearest-neighbour graph of the features.

    The weights of the mixture are learned, node by node. There is dropout but no ReLU between the layers, as in
    DeepRobust. Train the model with its extra loss, as `fit` does: a linear map predicts the similarity of two nodes'
    features from their hidden layers, and the term is its squared error. Features are taken as binary. The model is
    called as PyG's models are; both graphs are built once.

    Args:
        d_in: Number of features of a node.
        d_out: Number of classes.
        hidden: Width of the hidden layer; the default is DeepRobust's.
        neighbours: Number of neighbours of a node in the nearest-neighbour graph, >= 1; the default is the authors'.
        gamma: Weight of the learned self-loops; the default is the authors'.
        ssl: Weight of the extra loss, >= 0.
        num_pairs: Number of pairs of nodes in the extra loss, drawn anew at each pass, >= 1; the default is the
            authors'.
        dropout: Share of units that are dropped in training after the hidden layer, in [0, 1).
        graph_bias: Initial bias of the gates; above 0 the model starts with more of the graph and less of the
            nearest-neighbour graph. The default is DeepRobust's; the authors take 2 on Planetoid's data sets.
        generator: Draws the initial weights.

    Raises:
        ValueError: If a width is below 1, `neighbours` or `num_pairs` is below 1, `ssl` is negative, the dropout is not
            in [0, 1), or `graph_bias` is not finite.

    Example:
        >>> import torch
        >>> from wtawp.graphs import load
        >>> data = load("wine")
        >>> model = SimPGCN(13, 3, generator=torch.Generator().manual_seed(0))
        >>> model(data.x, data.edge_index).shape
        torch.Size([178, 3])
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
        graph_bias: float = 0.0,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        checked_widths(d_in, (hidden,), d_out, dropout)
        for name, value, least in (("neighbours", neighbours, 1), ("num_pairs", num_pairs, 1), ("ssl", ssl, 0)):
            if not value >= least:
                raise ValueError(f"{name} must be >= {least}, got {value}")
        self.dropout, self.ssl, self.num_pairs, self.neighbours = dropout, ssl, num_pairs, neighbours
        if not math.isfinite(graph_bias):
            raise ValueError(f"graph_bias must be a finite number, got {graph_bias}")
        self.conv1 = SimilarityConvolution(d_in, hidden, gamma=gamma, graph_bias=graph_bias, generator=generator)
        self.conv2 = SimilarityConvolution(hidden, d_out, gamma=gamma, graph_bias=graph_bias, generator=generator)
        # The predictor of similarities is no layer of the network, so its parameters belong to the root module, where
        # the perturbation does not reach them.
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
        """Compute the logits of the nodes.

        Args:
            x: Features of the nodes, [n, d], dense or sparse.
            edge_index: Edges [2, e], or both graphs, as `prepare` makes them.
            edge_weight: Weights of the edges, [e]; None if all are 1. Unused unless edges are given.
            with_extra_loss: Whether to return the extra term of the loss as well (see `HasExtraLoss`).

        Returns:
            Logits [n, c], or those of the graphs' `rows`; with the extra loss, the pair of logits and term.
        """
        both = self._both(x, edge_index, edge_weight, None) if isinstance(edge_index, Tensor) else edge_index
        hidden = dropout(self.conv1(x, both.graph, both.alike), self.dropout, self.training)
        logits: Tensor = self.conv2(hidden, both.last_graph, both.last_alike, both.rows)
        return (logits, self._regression(hidden, both)) if with_extra_loss else logits

    def _both(self, x: Features, edge_index: Tensor, edge_weight: Tensor | None, rows: Tensor | None) -> TwoGraphs:
        """Build both graphs, or take them from the caches, and select the rows of the last layer."""
        graph, alike = self._graphs(edge_index, edge_weight, x), self._alike(x)
        last = graph, alike
        if rows is not None:
            all_nodes = torch.arange(graph.shape[0], device=rows.device)
            last = graph.select(rows, all_nodes), alike.select(rows, all_nodes)
        return TwoGraphs(graph, alike, *last, rows, *self._pairs(x))

    def _regression(self, hidden: Tensor, both: TwoGraphs) -> Tensor:  # [n, h] -> []
        """Compute the extra term: the weighted mean squared error of the predicted similarities."""
        size = both.pairs.shape[1]
        chosen = torch.arange(size, device=hidden.device)
        if self.training and size > self.num_pairs:  # those with the smallest hashes are a draw without replacement
            hashes = hashed(chosen, next_key(hidden.device)[..., None])
            chosen = hashes.topk(self.num_pairs, largest=False).indices  # [k], or [b, k] for a stack
        chosen = chosen.expand(*hidden.shape[:-2], -1)
        first, second = (hidden.take_along_dim(end[chosen][..., None], -2) for end in both.pairs)
        assert self.judge_bias is not None
        predicted = (first - second).abs() @ self.judge + self.judge_bias[..., None, :]  # [k, 1]
        return self.ssl * (predicted[..., 0] - both.similarity[chosen]).square().mean(-1)

    def extra_loss(self, *arguments: object) -> Tensor:
        """See `HasExtraLoss.extra_loss`."""
        term: Tensor = self(*arguments, with_extra_loss=True)[1]
        return term

    def prepare(self, x: Tensor, edge_index: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """See `StackAware.prepare`.

        The extra loss is over all nodes, so the first layer is too; the last one only computes `rows`.
        """
        return features(x), self._both(x, edge_index, None, rows)

    def graph_operators(self) -> tuple[GraphOperator, ...]:
        """Name the operators through which the model reaches the graph, as `SupportsFactoredGradient` asks.

        Returns:
            The normalised adjacency matrix; the nearest-neighbour graph depends on the features only.
        """
        return (NormalisedAdjacency(),)

    def forward_args(self, x: Features, operators: tuple[Multiplies, ...]) -> tuple[object, ...]:
        """See `SupportsFactoredGradient.forward_args`."""
        alike = self._alike(x)
        no_pairs = torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0)  # only the extra loss uses them
        return x, TwoGraphs(operators[0], alike, operators[0], alike, None, *no_pairs)
