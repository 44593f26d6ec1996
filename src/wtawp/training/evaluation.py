"""Loss and metric of a model on some nodes of a graph, some graphs of a collection, or some pairs of nodes."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.graphs import batched
from wtawp.models.inputs import arguments_of, check_kind
from wtawp.training.objective import LossFunction, MetricFunction, Objective
from wtawp.training.subsets import Decoder


@torch.no_grad()
def evaluate(
    model: nn.Module,
    data: Data | Sequence[Data],
    rows: Tensor,
    *,
    loss: LossFunction | None = None,
    metric: MetricFunction | None = None,
    decoder: Decoder | None = None,
) -> tuple[float, float]:
    """Compute the loss and the metric of a model without dropout. The model is left in evaluation mode.

    Args:
        model: A module called as `model(x, edge_index)`, or as `model(x, edge_index, batch)` for whole graphs.
        data: One graph, or several graphs for a classifier of graphs, on the device of the model.
        rows: The nodes, graphs, or pairs of nodes to evaluate: their indices, or a boolean mask.
        loss: Called as `loss(output, target)`, returns a scalar tensor; None is the mean cross-entropy.
        metric: Called likewise, returns one number; None is the accuracy, between 0 and 1.
        decoder: Turns the rows of both ends of a pair into one row, for a link prediction, as in `fit`.

    Returns:
        The loss, and the value of the metric.

    Raises:
        DataError: If the model classifies nodes and `data` holds several graphs, or the other way round, or if the
            targets do not fit the loss and the metric.

    Example:
        >>> from wtawp.base import rng
        >>> from wtawp.graphs import load
        >>> from wtawp.models import GCN
        >>> data = load("wine")
        >>> loss, accuracy = evaluate(GCN(13, 3, generator=rng("init")), data, torch.arange(50))
    """
    graph = batched(data, any_target=loss is not None)
    check_kind(model, graph)
    objective = Objective(loss=loss, metric=metric)
    objective.check_targets(graph.y if decoder is None else graph.edge_label)
    output = model.eval()(*arguments_of(graph))
    if decoder is None:
        output, target = output[rows], graph.y[rows]
    else:
        first, second = graph.edge_label_index[:, rows]
        output, target = decoder(output[first], output[second]), graph.edge_label[rows]
    value = F.cross_entropy(output, target) if loss is None else objective.losses(output[None], target)
    return float(value), float(objective.scores(output[None], target))
