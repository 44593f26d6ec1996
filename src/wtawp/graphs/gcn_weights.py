"""The weights that a GCN gives to edges, taken from the whole graph and carried into batches of sampled nodes."""

import copy

import torch
from torch import Tensor
from torch_geometric.data import Data

from wtawp.base import DataError
from wtawp.graphs.sampling import NeighbourLists

EDGES_AT_A_TIME = 1 << 24  # bounds the memory that is needed beside the lists


class GcnWeights:
    """Gives the edges of a batch the weights of D^-1/2 (A + I) D^-1/2, with the degrees D of the whole graph.

    A GCN that normalises a batch itself counts the sampled edges only, and its outputs are wrong even if all neighbours
    are sampled, because the nodes of the last hop have no edges in the batch. An object of this class is called with a
    batch, so it is a `transform` for `NodeBatches` and for every loader of PyG whose batches have `n_id`. The layers
    must then not normalise again: `GCNConv(..., normalize=False)`, or an operator from `sum_operator` for our GCN.

    If k of the d edges into a node were sampled, their weights are multiplied by d / k. The weighted sum over the
    sampled neighbours is then an unbiased estimate of the sum over all neighbours, and the two are equal if all are
    sampled. Self-loops are not sampled: each node of the batch has its own, with its exact weight.

    Args:
        lists: The whole graph. A node that has self-loops keeps the last one; every other node gets one of weight 1, as
            in `gcn_operator`.

    Raises:
        DataError: If the weights of the edges into a node, with its self-loop, do not have a positive sum.

    Example:
        >>> lists = NeighbourLists.from_edges(torch.tensor([[1, 0], [0, 1]]), 2)
        >>> batch = Data(edge_index=torch.tensor([[1], [0]]), n_id=torch.tensor([0, 1]))
        >>> GcnWeights(lists)(batch).edge_weight
        tensor([0.5000, 0.5000, 0.5000])
    """

    def __init__(self, lists: NeighbourLists) -> None:
        self._degrees = lists.degrees
        total, self._loops = _sums(lists)
        if lists.num_nodes and not float(total.min()) > 0:
            node = int(total.argmin())
            raise DataError(
                f"a GCN needs positive sums of edge weights, but those into node {node} sum to {total[node]}"
            )
        self._scale = total.rsqrt()  # float64, so that it is exact in the dtype of any model

    def __call__(self, batch: Data) -> Data:
        """Weight the edges of a batch.

        Args:
            batch: A batch with `edge_index` and `n_id`, the numbers of its nodes in the whole graph. `edge_weight`, if
                there is one, holds the weights before normalisation.

        Returns:
            A shallow copy with other edges: without the sampled self-loops, and with one self-loop for every node at
            the end. It has their weights in `edge_weight`, and True in `has_gcn_weights`; `e_id` is -1 for the
            self-loops at the end.

        Raises:
            DataError: If the batch has no `n_id`, or has such weights already.
        """
        if batch.get("has_gcn_weights"):
            raise DataError("the edges of this batch have the weights of a GCN already; apply GcnWeights once")
        if "n_id" not in batch:
            raise DataError(
                "the batch has no n_id, the numbers of its nodes in the whole graph; set data.n_id = torch.arange(n)"
                " before the loader is built"
            )
        nodes, device = batch.n_id, batch.edge_index.device
        dtype = batch.x.dtype if isinstance(batch.get("x"), Tensor) else torch.float32
        scale, loops, degrees = (t[nodes.to(t.device)].to(device) for t in (self._scale, self._loops, self._degrees))
        source, target = batch.edge_index
        num_sampled = torch.bincount(target, minlength=len(nodes))
        factor = scale * degrees / num_sampled.clamp_min(1)
        weight = scale[source] * factor[target]
        if batch.get("edge_weight") is not None:
            weight = weight * batch.edge_weight
        kept, every = (source != target).nonzero()[:, 0], torch.arange(len(nodes), device=device)
        out = copy.copy(batch)
        out.edge_index = torch.cat([batch.edge_index[:, kept], torch.stack([every, every])], 1)
        out.edge_weight = torch.cat([weight[kept], loops * scale * scale]).to(dtype)
        out.has_gcn_weights = True
        if "e_id" in batch:
            out.e_id = torch.cat([batch.e_id[kept], batch.e_id.new_full((len(nodes),), -1)])
        return out


def _sums(lists: NeighbourLists) -> tuple[Tensor, Tensor]:  # -> [n], [n]
    """The weights of A + I summed over the edges into each node, and those of its self-loops alone, in float64."""
    total, loops = (torch.zeros(lists.num_nodes, dtype=torch.float64) for _ in range(2))
    has_loop = torch.zeros(lists.num_nodes, dtype=torch.bool)
    first = 0
    while first < lists.num_nodes:
        begin = int(lists.indptr[first])
        last = int(torch.searchsorted(lists.indptr, begin + EDGES_AT_A_TIME, right=True)) - 1
        last = min(max(last, first + 1), lists.num_nodes)
        end = int(lists.indptr[last])
        targets = torch.repeat_interleave(torch.arange(first, last), lists.degrees[first:last])
        weight = torch.ones(end - begin) if lists.edge_weight is None else lists.edge_weight[begin:end]
        is_loop = (lists.sources[begin:end] == targets).nonzero()[:, 0]
        owners = targets[is_loop]  # sorted, as all targets are
        is_repeated = torch.cat([owners[1:] == owners[:-1], owners.new_zeros(min(1, len(owners)), dtype=torch.bool)])
        if bool(is_repeated.any()):
            weight = weight.index_fill(0, is_loop[is_repeated], 0)  # the last self-loop of a node counts alone
        total.index_add_(0, targets, weight.double())
        loops.index_add_(0, owners, weight[is_loop].double())
        has_loop[owners] = True
        first = last
    return total + (~has_loop), torch.where(has_loop, loops, 1.0)
