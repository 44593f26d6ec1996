"""What a module of ours can do beyond `model(x, edge_index, edge_weight)`: abstract base classes, one per capability.

A module has a capability if and only if its class inherits from the base class. Nothing is concluded from the names of
methods, so a user's module with a method called `prepare` or `extra_loss` is treated as what it is: any `nn.Module`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch_geometric.data import Data

from wtawp.graphs.operator import Operator
from wtawp.graphs.products import Multiplies

Features = Tensor | Operator  # [n, d], dense or sparse
PairFilter = Callable[[int, int], Tensor]  # the first row and the one after the last -> [rows, n] bool


class StackAware(ABC):
    """A node classifier that arranges its own inputs and whose `forward` takes a stack of models.

    In a stack, each parameter has one more dimension in front, and so have the logits. Such a module draws dropout
    masks with `wtawp.models.dropout.dropout` only, so that a member of a stack drops what it drops alone.

    Attributes:
        reads_rows: Whether `prepare` reads only those rows of x that the wanted nodes need (with
            `wtawp.models.inputs.features`), so that x may be memory-mapped, and on another device than the edges.
        draws_in_evaluation: Whether the logits are random in evaluation mode too, so that each evaluation in a training
            needs a key of its own.
    """

    reads_rows: ClassVar[bool] = False
    draws_in_evaluation: bool = False

    @abstractmethod
    def prepare(self, x: Tensor, edge_index: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """Build the arguments of `forward` that give the logits of some nodes.

        A batch norm takes its statistics in training from the nodes that are computed. Whoever trains a model on one
        graph calls `wtawp.models.inputs.prepare`, which has all nodes computed for such models.

        Args:
            x: Features of all nodes, [n, d].
            edge_index: Edges of the graph, [2, e].
            rows: The nodes whose logits are wanted, [k]; None for all nodes.

        Returns:
            Positional arguments for `forward`, which then returns the logits of `rows` in their order.
        """


class StackAwareOnGraphs(ABC):
    """A classifier of whole graphs, called as `model(x, edge_index, batch)`; stacks are taken as by `StackAware`."""

    @abstractmethod
    def prepare_graphs(self, x: Tensor, edge_index: Tensor, batch: Tensor, rows: Tensor | None) -> tuple[object, ...]:
        """Build the arguments of `forward` that give the logits of some graphs.

        Args:
            x: Features of the nodes of all graphs, [n, d].
            edge_index: Edges of all graphs, [2, e].
            batch: The graph that each node belongs to, [n].
            rows: The graphs whose logits are wanted, [k]; None for all graphs.

        Returns:
            Positional arguments for `forward`, which then returns the logits of the graphs `rows` in their order.
        """


class RunsOnBatches(ABC):
    """A node classifier that runs on batches of `wtawp.graphs.NodeBatches`, on the sampled neighbours alone."""

    @property
    @abstractmethod
    def num_hops(self) -> int:
        """How far the logits of a node reach into the graph: the number of fan-outs that its batches need."""

    @property
    @abstractmethod
    def needs_gcn_weights(self) -> bool:
        """Whether batches need the edge weights of `wtawp.graphs.GcnWeights`."""

    @abstractmethod
    def batch_arguments(self, batch: Data) -> tuple[object, ...]:
        """Build the arguments of `forward` that give the logits of the seeds of a batch.

        Args:
            batch: The batch, with GCN weights if the model needs them.

        Returns:
            Positional arguments for `forward`, which then returns the logits of the seeds in their order.
        """


class RunsByLayer(RunsOnBatches):
    """A node classifier of `num_hops` layers, of which each needs the output of the one before at neighbours only."""

    @abstractmethod
    def infer_layer(self, number: int, batch: Data) -> Tensor:
        """Compute one layer for the seeds of a batch, in evaluation mode.

        Args:
            number: Number of the layer, counted from 0.
            batch: A batch of one hop with all neighbours, with GCN weights if the model needs them; `x` is the output
                of the layer before.

        Returns:
            The output of the layer, after its activation if it is not the last, [batch_size, h].
        """


class HasExtraLoss(ABC):
    """A module with a term of its own beside the cross-entropy.

    Its `forward` takes `with_extra_loss=True` and then returns the logits and the term, computed in one pass with the
    same dropout masks: a scalar, or [b] for a stack. Training adds the term to the loss at the natural weights only,
    not at the perturbed ones.
    """

    @abstractmethod
    def extra_loss(self, *arguments: object) -> Tensor:
        """Compute the extra term without the logits.

        Args:
            *arguments: Positional arguments of `forward`.

        Returns:
            The term: a scalar, or [b] for a stack.
        """


@dataclass(frozen=True)
class NormalisedAdjacency:
    """The operator D^power (A + I) D^power, as `gcn_operator` builds it.

    Attributes:
        power: Exponent of the degrees; -0.5 is the normalisation of a GCN.
    """

    power: float = -0.5


@dataclass(frozen=True)
class LowRankAdjacency:
    """The adjacency matrix approximated with `rank` singular vectors and normalised, as `low_rank_operator` does.

    Attributes:
        rank: Number of singular vectors.
    """

    rank: int


GraphOperator = NormalisedAdjacency | LowRankAdjacency


class SupportsFactoredGradient(ABC):
    """A module that reaches the graph only through products `operator @ factor`, with operators that it can name.

    The gradient with respect to entry (i, j) of an operator is then a sum over its products: row i of the gradient at
    the product, times row j of the factor. Attacks therefore get the gradient of all pairs of nodes as thin factors.
    Such a module takes a stack of models, as described in `StackAware`.
    """

    @abstractmethod
    def graph_operators(self) -> tuple[GraphOperator, ...]:
        """Name the operators through which the module reaches the graph.

        Returns:
            One description for each operator; empty if the module's settings do not allow a factored gradient.
        """

    @abstractmethod
    def forward_args(self, x: Features, operators: tuple[Multiplies, ...]) -> tuple[object, ...]:
        """Build the arguments of `forward` from operators of the caller, for example ones that record their products.

        Args:
            x: Features of all nodes, [n, d].
            operators: One operator [n, n] for each that `graph_operators` names, in that order.

        Returns:
            Positional arguments for `forward`.
        """


class FiltersEdges(ABC):
    """A module with a factored gradient that ignores some edges: pairs of nodes that it never joins."""

    @abstractmethod
    def pair_filter(self, x: Features) -> PairFilter:
        """Tell which pairs of nodes can be joined.

        Args:
            x: Features of all nodes, [n, d].

        Returns:
            A function of a range of rows, `(first, last) -> [last - first, n]`, that is True where an edge is kept.
        """


class IsConvolutionStack(ABC):
    """A module that in evaluation mode is graph convolutions A_hat (X W) + b with ReLU between them, and nothing else.

    A_hat is the operator of `gcn_operator`. Certificates then compute their votes from the weights, without calling the
    module, and share between samples what the noise does not change.
    """

    @abstractmethod
    def convolution_weights(self) -> list[tuple[Tensor, Tensor]]:
        """List the parameters of the convolutions.

        Returns:
            Weight [d_in, d_out] and bias [d_out] of each convolution, first to last; empty if the module's settings
            make it something else than such a stack.
        """
