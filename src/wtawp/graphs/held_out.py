"""The inductive protocol: the nodes that a model is tested on are absent from the graph that it is trained on."""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from wtawp.base import DataError
from wtawp.graphs.collection import is_collection
from wtawp.graphs.splits import Split, check_split


@dataclass(frozen=True, repr=False)
class SplitWithoutTest(Split):
    """A split of the nodes that are known when a model is trained: its test part is empty.

    Training functions accept it, and report NaN for the test part, which is in another graph. An empty test part of any
    other split is refused, as it is likely to be a mistake.

    Attributes:
        train: Whose labels are trained on, [n_train].
        val: On which the epoch is selected, [n_val].
        test: Empty.

    Example:
        >>> SplitWithoutTest(torch.tensor([0]), torch.tensor([1]), torch.tensor([], dtype=torch.int64))
        SplitWithoutTest(train=[1], val=[1], test=[0])
    """


def inductive(data: Data, split: Split, *, unlabelled: bool = True) -> tuple[Data, Split]:
    """Cut out the graph that a model may see in training, if its test nodes arrive only afterwards.

    Train on the result, then evaluate and attack the model on the full graph at the test nodes: it cannot have learned
    their features or edges by heart, which in the transductive protocol makes defences look better than they are
    (Gosch et al. 2023, arXiv 2306.15427).

    Args:
        data: The full graph. It is not changed.
        split: A split of its nodes.
        unlabelled: Whether nodes that are in no part of the split stay in the graph. Otherwise only those of the
            training and validation parts do.

    Returns:
        The subgraph induced by the nodes that stay, renumbered in their order, with all that `data` has for nodes and
        edges; and the split of its nodes, a `SplitWithoutTest`. `n_id` of the subgraph holds the numbers of its nodes
        in `data`.

    Raises:
        DataError: If `data` is not one homogeneous graph, or the split is not one of its nodes.

    Example:
        >>> from wtawp.graphs import citation, stratified
        >>> data = citation(seed=0, num_nodes=60, num_words=20)
        >>> split = stratified(data.y, seed=0, train=0.3, val=0.3)
        >>> known, known_split = inductive(data, split)
        >>> known.num_nodes == 60 - len(split.test), len(known_split.test)
        (True, 0)
    """
    if not isinstance(data, Data) or is_collection(data):
        raise DataError(f"nodes are held out of one homogeneous graph, a PyG Data, got {type(data).__name__}")
    check_split(split, data.y)
    size, device = int(data.num_nodes), data.edge_index.device
    stays = torch.full((size,), unlabelled, dtype=torch.bool, device=device)
    for part, is_kept in ((split.train, True), (split.val, True), (split.test, False)):
        stays[part.to(device)] = is_kept
    kept = stays.nonzero()[:, 0]
    position = torch.full((size,), -1, device=device).index_copy(0, kept, torch.arange(len(kept), device=device))
    between = stays[data.edge_index].all(0)
    known = copy.copy(data)
    for name in list(data.keys()):
        value = data[name]
        if isinstance(value, Tensor) and data.is_edge_attr(name) and name != "edge_index":
            known[name] = value[between.to(value.device)]
        elif isinstance(value, Tensor) and data.is_node_attr(name):
            known[name] = value.index_select(0, kept.to(value.device))
    known.edge_index = position[data.edge_index[:, between]]
    known.num_nodes, known.n_id = len(kept), kept
    train, val = (position[part.to(device)].to(part.device) for part in (split.train, split.val))
    return known, SplitWithoutTest(train, val, split.test[:0])
