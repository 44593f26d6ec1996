"""Loss and accuracy of a model on some nodes of a graph, or on some graphs of a collection."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.graphs import batched
from wtawp.models.inputs import arguments_of, check_kind


@torch.no_grad()
def evaluate(model: nn.Module, data: Data | Sequence[Data], rows: Tensor) -> tuple[float, float]:
    """Compute the loss and the accuracy of a model without dropout. The model is left in evaluation mode.

    Args:
        model: A classifier of nodes, called as `model(x, edge_index)`, or of graphs, called as
            `model(x, edge_index, batch)`.
        data: One graph, or several graphs for a classifier of graphs, on the device of the model.
        rows: The nodes, or graphs, to evaluate: their indices, or a boolean mask.

    Returns:
        The mean cross-entropy, and the share of correct predictions between 0 and 1.

    Raises:
        DataError: If the model classifies nodes and `data` holds several graphs, or the other way round.

    Example:
        >>> from wtawp.base import rng
        >>> from wtawp.graphs import load
        >>> from wtawp.models import GCN
        >>> data = load("wine")
        >>> loss, accuracy = evaluate(GCN(13, 3, generator=rng("init")), data, torch.arange(50))
    """
    graph = batched(data)
    check_kind(model, graph)
    logits, y = model.eval()(*arguments_of(graph))[rows], graph.y[rows]
    return float(F.cross_entropy(logits, y)), float((logits.argmax(1) == y).float().mean())
