"""The samples of one part of a split (nodes, graphs, or pairs of nodes), and how models compute their rows."""

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from wtawp.base import DataError, find_stack_level
from wtawp.graphs import Split, is_collection, select_graphs
from wtawp.models.calls import EDGE_INPUTS, Forward
from wtawp.models.inputs import prepare
from wtawp.training.checks import targets_of

Decoder = Callable[[Tensor, Tensor], Tensor]  # rows of both ends, [k, h] each -> one row for each pair, [k, ...]


def dot_product(first: Tensor, second: Tensor) -> Tensor:  # [k, h], [k, h] -> [k]
    """Score pairs of nodes by the dot product of their embeddings: the usual decoder of link prediction.

    Args:
        first: Embedding of one end of each pair, [k, h].
        second: Embedding of the other end, [k, h].

    Returns:
        One score for each pair, [k].

    Example:
        >>> dot_product(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]))
        tensor([11.])
    """
    return (first * second).sum(-1)


@dataclass(frozen=True)
class Subset:
    """How to compute the output rows of some samples: arguments for the models, and what to take from their output.

    Attributes:
        arguments: Positional arguments of the models.
        rows: The rows to take, [k], or [b, k] if members have different samples; None takes all.
        y: The targets, [k, ...] or [b, k, ...].
        ends: For pairs of nodes, the two rows of each pair among those taken, [2, k]; otherwise None.
        decoder: Turns the rows of both ends into one row for each pair.
        size: Number of rows that the models return for `arguments`.
        without_edges: The same samples on the graph without its edges, if they are needed.
    """

    arguments: tuple[object, ...]
    rows: Tensor | None
    y: Tensor
    ends: Tensor | None = None
    decoder: Decoder | None = None
    size: int | None = None
    without_edges: "Subset | None" = None

    @property
    def is_shared(self) -> bool:
        """Whether all members have the same samples."""
        return self.rows is None or self.rows.dim() == 1

    def take(self, outputs: Tensor) -> Tensor:  # [b, n, ...] -> [b, k, ...]
        """Take the rows of these samples.

        Args:
            outputs: What the models return for `arguments`, [b, n, ...].

        Returns:
            One row for each sample, [b, k, ...].

        Raises:
            DataError: If the models do not return one row for each node, or for each graph.
            ValueError: If the decoder does not return one row for each pair.
        """
        if self.size is not None and (outputs.dim() < 2 or outputs.shape[1] != self.size):
            raise DataError(
                f"the model must return one row for each of {self.size} nodes or graphs, got shape"
                f" {list(outputs.shape[1:])}"
            )
        taken = self._rows_of(outputs)
        if self.ends is None or self.decoder is None:
            return taken
        decoded = [self.decoder(member[self.ends[0]], member[self.ends[1]]) for member in taken]
        if any(d.dim() == 0 or len(d) != len(self.y) for d in decoded):
            raise ValueError(
                f"decoder must return one row for each of the {len(self.y)} pairs, got {list(decoded[0].shape)}"
            )
        return torch.stack(decoded)

    def _rows_of(self, outputs: Tensor) -> Tensor:
        """The rows to take, before any decoder."""
        if self.rows is None:
            return outputs
        if self.rows.dim() == 1:
            return outputs[:, self.rows]
        index = self.rows.view(*self.rows.shape, *[1] * (outputs.dim() - 2))
        return outputs.gather(1, index.expand(-1, -1, *outputs.shape[2:]))


def build_subset(
    model: nn.Module,
    data: Data | HeteroData,
    parts: Sequence[Tensor],
    decoder: Decoder | None = None,
    forward: Forward | None = None,
) -> Subset:
    """Arrange the samples of each member; if all members share them, only their receptive field is computed.

    Args:
        model: A member, which may prepare its own inputs.
        data: The graph, or graphs as one batch.
        parts: The samples of each member. Members share them if they are the same tensor.
        decoder: For pairs of nodes: turns the rows of both ends into one row for each pair.
        forward: The adapter through which models are called, with the graph; None calls the models themselves.

    Returns:
        The subset.

    Raises:
        ValueError: If members have different numbers of samples.
    """
    device = next(model.parameters()).device  # features may be elsewhere
    if decoder is not None:
        assert all(part is parts[0] for part in parts), "members with different pairs are never in one stack"
        part = parts[0].to(device)
        nodes, ends = data.edge_label_index[:, part].unique(return_inverse=True)
        arguments, remaining = _arguments(model, data, nodes, forward)
        size = len(nodes) if remaining is None else data.num_nodes
        return Subset(arguments, remaining, data.edge_label[part], ends, decoder, size)
    y = targets_of(data)
    if all(part is parts[0] for part in parts):
        rows = parts[0].to(device)
        arguments, remaining = _arguments(model, data, rows, forward)
        return Subset(arguments, remaining, y[rows], size=len(rows) if remaining is None else len(y))
    if len({len(part) for part in parts}) > 1:
        raise ValueError("runs trained together need splits of equal sizes")
    arguments, _ = _arguments(model, data, None, forward)
    rows = torch.stack(list(parts)).to(device)
    return Subset(arguments, rows, y[rows], size=len(y))


def without_edges(data: Data | HeteroData) -> Data | HeteroData:
    """Copy a graph without its edges, on which a model of graphs computes each node from its own features.

    Args:
        data: The graph, or graphs as one batch.

    Returns:
        The graph with the same nodes, and no edges, weights, attributes and types of edges.

    Raises:
        DataError: If its edges are not in `edge_index` alone.

    Example:
        >>> without_edges(Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]])))
        Data(x=[2, 1], edge_index=[2, 0])
    """
    edgeless = copy.copy(data)
    for store in edgeless.edge_stores:
        if not isinstance(store.get("edge_index"), Tensor):
            raise DataError(
                "a graph can be taken without its edges if they are in edge_index [2, e], got"
                f" {store.get('edge_index')!r}; use another perturbed_gradient and direction, or convert the edges"
            )
        if others := [name for name in ("adj_t", "adj") if store.get(name) is not None]:
            raise DataError(
                f"a graph can be taken without its edges if they are in edge_index alone, and {', '.join(others)} holds"
                " them, too; remove it from the graph, or use another perturbed_gradient and direction"
            )
        for name in EDGE_INPUTS:
            if isinstance(store.get(name), Tensor):
                store[name] = store[name][:0]
        store["edge_index"] = store["edge_index"][:, :0]
    return edgeless


def _arguments(
    model: nn.Module, data: Data | HeteroData, rows: Tensor | None, forward: Forward | None
) -> tuple[tuple[object, ...], Tensor | None]:
    """The arguments of the models, or of the adapter, and the rows still to be taken from their output."""
    if forward is None:
        assert isinstance(data, Data), "a heterogeneous graph is refused without an adapter"
        return prepare(model, data, rows)
    if isinstance(data, Data) and is_collection(data) and rows is not None:
        return (select_graphs(data, rows),), None
    return (data,), rows


def check_pairs(data: Data) -> int:
    """Check the pairs of nodes whose links are predicted, and count them.

    Args:
        data: A graph with pairs in `edge_label_index` [2, p] and their targets in `edge_label` [p, ...].

    Returns:
        The number of pairs.

    Raises:
        DataError: If there are no such pairs, or they do not fit.
    """
    pairs, labels = (getattr(data, name, None) for name in ("edge_label_index", "edge_label"))
    if pairs is None or labels is None:
        raise DataError(
            "with a decoder the samples are pairs of nodes: the graph needs edge_label_index [2, p] and edge_label [p]"
        )
    if pairs.dim() != 2 or len(pairs) != 2 or pairs.is_floating_point() or pairs.shape[1] != len(labels):
        raise DataError(
            f"edge_label_index must be whole numbers [2, p] with as many edge_label, got {pairs.dtype} of shape"
            f" {list(pairs.shape)} and {list(labels.shape)}"
        )
    if pairs.numel() and not 0 <= int(pairs.min()) <= int(pairs.max()) < data.num_nodes:
        extent = f"{int(pairs.min())} to {int(pairs.max())}"
        raise DataError(f"edge_label_index must name nodes 0 to {data.num_nodes - 1}, got {extent}")
    return len(labels)


def check_links(data: Data, splits: Sequence[Split], decoder: Decoder) -> None:
    """Check the pairs of nodes of a link prediction; warn if validation or test links are edges of the graph.

    Args:
        data: A graph with pairs in `edge_label_index` [2, p] and their targets in `edge_label` [p, ...].
        splits: Splits of the pairs.
        decoder: The decoder, which must have nothing to learn.

    Raises:
        DataError: If there are no such pairs, or they or the splits do not fit.
        ValueError: If the decoder has parameters.
    """
    if isinstance(decoder, nn.Module) and any(True for _ in decoder.parameters()):
        raise ValueError(
            f"the decoder {type(decoder).__name__} has parameters, which would not be trained; make it part of the"
            " model, and pass a decoder without parameters"
        )
    num_pairs = check_pairs(data)
    for split in {id(split): split for split in splits}.values():
        parts = [torch.as_tensor(part).long() for part in (split.train, split.val, split.test)]
        everyone = torch.cat(parts)
        if len(everyone) and (int(everyone.min()) < 0 or int(everyone.max()) >= num_pairs):
            extent = f"{int(everyone.min())} to {int(everyone.max())}"
            raise DataError(f"the split must name pairs 0 to {num_pairs - 1} of edge_label_index, got {extent}")
        if isinstance(data.edge_index, Tensor):
            _warn_of_leaks(data, torch.cat(parts[1:]).to(data.edge_label_index.device))


def _warn_of_leaks(data: Data, held_out: Tensor) -> None:
    """Warn if links to be predicted are edges along which the model passes messages."""
    labels = data.edge_label[held_out]
    positive = held_out[(labels if labels.dim() == 1 else labels.any(1)) > 0]
    edges, pairs = (t.sort(0).values for t in (data.edge_index, data.edge_label_index[:, positive]))  # undirected
    is_edge = torch.isin(pairs[0] * data.num_nodes + pairs[1], edges[0] * data.num_nodes + edges[1])
    if bool(is_edge.any()):
        warnings.warn(
            f"{int(is_edge.sum())} of {len(positive)} positive validation and test pairs are edges of edge_index, so"
            " the model sees the links that it is to predict; remove them from edge_index, as PyG's RandomLinkSplit"
            " does, unless the graph holds them for another reason",
            stacklevel=find_stack_level(),
        )
