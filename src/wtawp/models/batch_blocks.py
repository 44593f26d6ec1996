"""From a batch of sampled nodes to one operator for each layer, which computes the rows that the next layer needs."""

from itertools import accumulate
from typing import Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from wtawp.base import DataError
from wtawp.graphs.blocks import Blocks
from wtawp.graphs.operator import Operator

Aggregation = Literal["sum", "mean", "with loops"]


def batch_blocks(batch: Data, num_layers: int, aggregation: Aggregation) -> Blocks:
    """Cut the operators of the layers out of a batch.

    Args:
        batch: A batch of `NodeBatches`, or of PyG's `NeighborLoader`: its nodes are in the order of the hops, and
            `num_sampled_nodes` says how many there are of each.
        num_layers: Number of layers, which must be the number of hops.
        aggregation: What a row of an operator adds up: "sum" the weighted neighbours, "mean" the same divided by the
            sum of the weights, "with loops" also the node itself, as `gcn_operator` with power 0.

    Returns:
        The blocks. The nodes have their numbers in the whole graph.

    Raises:
        DataError: If the batch does not say how many nodes there are of each hop, or has another number of hops.
    """
    if batch.get("num_sampled_nodes") is None:
        raise DataError("the batch has no num_sampled_nodes, as the batches of NodeBatches and NeighborLoader have")
    ends = list(accumulate(int(count) for count in batch.num_sampled_nodes))
    if len(ends) != num_layers + 1:
        raise DataError(f"{num_layers} layers need batches of {num_layers} hops, got {len(ends) - 1}; change fanouts")
    source, target = batch.edge_index
    weight = batch.get("edge_weight")
    weight = torch.ones_like(target, dtype=batch.x.dtype) if weight is None else weight.to(batch.x.dtype)
    operators = []
    for rows, cols in zip(ends[-2::-1], ends[:0:-1], strict=True):
        inside = target < rows
        source, target, weight = source[inside], target[inside], weight[inside]
        operators.append(_operator(source, target, weight, (rows, cols), aggregation))
    nodes = tuple(batch.n_id[:end] for end in reversed(ends))
    return Blocks(nodes, tuple(operators))


def _operator(
    source: Tensor, target: Tensor, weight: Tensor, shape: tuple[int, int], aggregation: Aggregation
) -> Operator:
    """The operator of one layer, [rows, cols]."""
    if aggregation == "mean":
        total = weight.new_zeros(shape[0]).index_add(0, target, weight)
        weight = weight / torch.where(total == 0, 1, total)[target]
    elif aggregation == "with loops":
        lonely = torch.ones(shape[0], dtype=torch.bool, device=target.device)
        lonely[target[source == target]] = False
        loops = lonely.nonzero()[:, 0]
        source, target = torch.cat([source, loops]), torch.cat([target, loops])
        weight = torch.cat([weight, weight.new_ones(len(loops))])
    return Operator.from_entries(target, source, weight, shape)
