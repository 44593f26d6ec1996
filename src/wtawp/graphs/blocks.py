"""Receptive fields: the part of a graph from which the outputs of some nodes are computed exactly."""

from dataclasses import dataclass

import torch
from torch import Tensor

from wtawp.graphs import structure
from wtawp.graphs.operator import Operator


@dataclass(frozen=True, eq=False)
class Blocks:
    """The receptive field of some target nodes through `len(operators)` hops, one block a hop.

    Attributes:
        nodes: The nodes before each hop, and last the targets. `nodes[i]` begins with `nodes[i + 1]`, so that a layer
            has the features of the nodes that it computes in front.
        operators: `operators[i]` maps rows of `nodes[i]` to rows of `nodes[i + 1]`.
    """

    nodes: tuple[Tensor, ...]
    operators: tuple[Operator, ...]


def receptive_field(operator: Operator, targets: Tensor, hops: int, *, with_first: bool = True) -> Blocks:
    """Cut out the exact blocks from which the rows `targets` of operator^hops are computed.

    Args:
        operator: The operator that is applied at each hop, [n, n].
        targets: The nodes whose outputs are wanted, distinct, [t].
        hops: Number of times the operator is applied.
        with_first: Whether to cut out the operator of the first hop, which is the largest. Without it, `operators`
            starts with that of the second hop; `nodes` are complete.

    Returns:
        The blocks, in the order in which they are applied.

    Raises:
        DataError: If a target is not a node.

    Example:
        >>> from wtawp.graphs import sum_operator
        >>> path = sum_operator(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), None, 3)
        >>> receptive_field(path, torch.tensor([0]), hops=1).nodes
        (tensor([0, 1]), tensor([0]))
    """
    nodes: list[Tensor] = [targets]
    operators: list[Operator] = []
    for hop in reversed(range(hops)):
        is_new = structure.columns_of_rows(operator.indptr, operator.indices, operator.shape, nodes[0])
        is_new[nodes[0]] = False
        nodes.insert(0, torch.cat([nodes[0], is_new.nonzero()[:, 0]]))
        if hop > 0 or with_first:
            operators.insert(0, operator.select(nodes[1], nodes[0]))
    return Blocks(tuple(nodes), tuple(operators))
