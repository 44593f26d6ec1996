"""Loss and metric of a model on some nodes of a graph, some graphs of a collection, or some pairs of nodes."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data, HeteroData

from wtawp.base import DataError
from wtawp.graphs import batched
from wtawp.graphs.row_choices import checked_rows
from wtawp.models.calls import (
    Adapted,
    Forward,
    arguments_of,
    check_initialized,
    checked_call,
    warn_of_dropped_inputs,
    warn_of_unused_edge_inputs,
)
from wtawp.models.evaluation import evaluating, without_cached_graphs
from wtawp.models.inputs import check_kind
from wtawp.training.checks import check_data, check_functions, check_graph, targets_of
from wtawp.training.objective import LossFunction, MetricFunction, Objective
from wtawp.training.subsets import Decoder, check_pairs


@torch.no_grad()
def evaluate(
    model: nn.Module,
    data: Data | HeteroData | Sequence[Data],
    rows: Tensor | Sequence[int],
    *,
    loss: LossFunction | None = None,
    metric: MetricFunction | None = None,
    decoder: Decoder | None = None,
    forward: Forward | None = None,
) -> tuple[float, float]:
    """Compute the loss and the metric of a model without dropout.

    The model is called in evaluation mode; afterwards each of its modules has the mode that it had before.

    Args:
        model: A module called as in `fit`. Layers that cache their graph (PyG's `cached=True`) use this one, and their
            caches are empty afterwards.
        data: One graph, or several graphs for a classifier of graphs, on the device of the model.
        rows: The nodes, graphs, or pairs of nodes to evaluate: their indices, or a boolean mask.
        loss: Called as `loss(output, target)`, returns a scalar tensor; None is the mean cross-entropy.
        metric: Called likewise, returns one number; None is the accuracy, between 0 and 1.
        decoder: Turns the rows of both ends of a pair into one row, for a link prediction, as in `fit`.
        forward: Called as `forward(model, data)` in place of the model, as in `fit`.

    Returns:
        The loss, and the value of the metric.

    Raises:
        ValueError: If `loss`, `metric`, `decoder` or `forward` is no function.
        DataError: If the model classifies nodes and `data` holds several graphs, or the other way round; if it cannot
            be called with the graph, or does not return one tensor; if there are no rows, or rows that do not exist; or
            if the targets do not fit the loss and the metric.

    Example:
        >>> from wtawp.base import rng
        >>> from wtawp.graphs import load
        >>> from wtawp.models import GCN
        >>> data = load("wine")
        >>> loss, accuracy = evaluate(GCN(13, 3, generator=rng("init")), data, torch.arange(50))
    """
    check_functions(loss=loss, metric=metric, decoder=decoder, forward=forward)
    check_data(model, data, forward, "evaluate")
    check_initialized(model)
    graph = data if isinstance(data, HeteroData) else batched(data, any_target=loss is not None)
    if isinstance(graph, Data):
        if forward is None:
            check_kind(model, graph)
        check_graph(graph, model, is_adapted=forward is not None)
    objective = Objective(loss=loss, metric=metric)
    if decoder is not None:
        if isinstance(graph, HeteroData):
            raise DataError("links of a heterogeneous graph are not evaluated; see docs/own_loop.md")
        check_pairs(graph)
    y = targets_of(graph) if decoder is None else graph.edge_label
    objective.check_targets(y)
    y = y.long() if objective.has_classes else y
    chosen = checked_rows(rows, len(y), "rows", samples="samples").to(y.device)
    if forward is None and isinstance(graph, Data):
        warn_of_unused_edge_inputs(model, graph)
    if forward is not None and not isinstance(data, Data | HeteroData):
        warn_of_dropped_inputs(data)
    output = _output(model, graph, forward, size=len(y) if decoder is None else graph.num_nodes)
    if decoder is None:
        output = output[chosen]
    else:
        first, second = graph.edge_label_index[:, chosen]
        output = decoder(output[first], output[second])
    target = y[chosen]
    if objective.has_classes:
        objective = replace(objective, num_classes=int(target.max()) + 1)
        if int(target.min()) < 0:
            raise DataError(f"{int((target < 0).sum())} of the rows have no label (-1); leave them out")
    value = objective.losses(output[None], target)
    value = F.cross_entropy(output, target) if loss is None else value
    return float(value), float(objective.scores(output[None], target))


def _output(model: nn.Module, graph: Data | HeteroData, forward: Forward | None, *, size: int) -> Tensor:
    """Call the module, or the adapter, in evaluation mode."""
    with evaluating(model), without_cached_graphs([model]):
        if forward is not None:
            return checked_call(Adapted(model, forward), (graph,), size)
        assert isinstance(graph, Data), "a heterogeneous graph is refused without an adapter"
        return checked_call(model, arguments_of(model, graph), size)
