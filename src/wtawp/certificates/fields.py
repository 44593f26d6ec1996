"""Receptive fields: the features or edges on which the prediction of each node can depend, however they are changed.

A model of L message-passing layers computes the logits of a node from the nodes within L hops. With the edges
unchanged, its features beyond them do not matter. If edges are only removed, by the adversary and by the noise, every
graph that occurs is a part of the clean one and the nodes within L hops in it are among those of the clean graph;
degrees, which normalisations use, are counted over edges with one end there. So the field of a node is

- for features: the nodes within L hops of it in the clean graph;
- for edges: the edges of the clean graph with at least one end within L hops of it.

Where edges may be added there is no such field: one edge joins any two parts of a graph.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.base import CertificateError, checked_seed, rng
from wtawp.certificates.voters import Victim
from wtawp.graphs.flips import undirected_pairs
from wtawp.models.capabilities import RunsOnBatches
from wtawp.models.evaluation import evaluating

PARTS = ("features", "edges")
PROBES = 8  # nodes for which the field is compared with what the model computes
CLOSE = 1e-5  # of the largest logit: differences that are rounding errors


@dataclass(frozen=True, eq=False)
class ReceptiveFields:
    """The positions of the input on which each node depends: the features of a node are one, and so is an edge.

    Attributes:
        on: "features" or "edges".
        reach: Whether each node depends on each position, a boolean CSR matrix [n, k].
        zeros: The most additions at each position, [k].
        ones: The most deletions at each position, [k].

    Raises:
        ValueError: If the shapes do not belong together.
    """

    on: str
    reach: sparse.csr_array
    zeros: NDArray[np.int64]
    ones: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.on not in PARTS:
            raise ValueError(f"fields are on {' or on '.join(PARTS)}, got {self.on!r}")
        if not self.zeros.shape == self.ones.shape == self.reach.shape[1:]:
            raise ValueError(
                f"reach has {self.reach.shape[1]} positions, and zeros and ones must have one number for each,"
                f" got {self.zeros.shape} and {self.ones.shape}"
            )


def receptive_fields(
    data: Data, victim: Victim, *, hops: int | None = None, on: str = "features", seed: int = 0
) -> ReceptiveFields:
    """Find the features or edges on which a classifier's logits of each node can depend.

    The classifier is then evaluated with everything outside the field of a few nodes changed at random. If the logits
    of one of these nodes change, the classifier reaches further than stated, and is refused.

    Args:
        data: The graph that the votes were cast on.
        victim: The classifier, called as `victim(x, edge_index)`.
        hops: How far the logits of a node reach into the graph: the number of message-passing layers. None: as the
            model states it, which our GCN, GAT, GIN, GraphSAGE and MLP do.
        on: "features", or "edges" if edges are only removed.
        seed: The seed of the random changes.

    Returns:
        The fields of all nodes.

    Raises:
        ValueError: If `hops` is missing or is not a whole number >= 0, or `on` is not a part of the input.
        CertificateError: If the classifier depends on something outside the fields, or returns NaN.

    Example:
        >>> from wtawp.graphs import citation
        >>> from wtawp.models import GCN
        >>> data, model = citation(seed=0, num_nodes=60, num_words=20), GCN(20, 7, generator=rng("model"))
        >>> receptive_fields(data, model).reach.shape
        (60, 60)
    """
    seed = checked_seed(seed)
    if on not in PARTS:
        raise ValueError(f"fields are on {' or on '.join(PARTS)}, got {on!r}")
    model: object = victim
    if hops is None and isinstance(model, RunsOnBatches):
        hops = model.num_hops
    if isinstance(hops, bool) or not isinstance(hops, int) or hops < 0:
        name = type(victim).__name__
        raise ValueError(f"say how far {name} reaches into the graph: hops= a whole number >= 0, got {hops!r}")
    size = int(data.num_nodes or 0)
    near = _within_hops(data.edge_index, size, hops)
    if on == "features":
        x: Tensor = data.x if data.x.layout == torch.strided else data.x.to_dense()
        ones = (x != 0).sum(1).cpu().numpy().astype(np.int64)
        fields = ReceptiveFields(on, near, x.shape[1] - ones, ones)
    else:
        ends = undirected_pairs(data).cpu().numpy()
        number = np.arange(ends.shape[1]).repeat(2)
        touches = sparse.csr_array((np.ones(len(number), bool), (ends.T.ravel(), number)), shape=(size, ends.shape[1]))
        count = np.ones(ends.shape[1], dtype=np.int64)
        fields = ReceptiveFields(on, (near @ touches).astype(bool), 0 * count, count)
    _check(data, victim, fields, seed)
    return fields


def _within_hops(edge_index: Tensor, size: int, hops: int) -> sparse.csr_array:  # -> [n, n] bool
    """Which nodes are within some hops of each node, whatever the directions of the edges."""
    source, target = edge_index.cpu().numpy()
    loops = np.arange(size)
    rows, columns = np.concatenate([source, target, loops]), np.concatenate([target, source, loops])
    step = sparse.csr_array((np.ones(len(rows), bool), (rows, columns)), shape=(size, size))
    near = sparse.eye_array(size, dtype=bool, format="csr")
    for _ in range(hops):
        near = (near @ step).astype(bool)
    return near


def _check(data: Data, victim: Victim, fields: ReceptiveFields, seed: int) -> None:
    """Compare the logits of a few nodes before and after everything outside their fields has changed."""
    generator, size = rng("fields", seed), int(data.num_nodes or 0)
    context = evaluating(victim) if isinstance(victim, nn.Module) else torch.no_grad()
    with torch.no_grad(), context:
        before = victim(data.x, data.edge_index)
        for node in torch.randperm(size, generator=generator)[:PROBES].tolist():
            inside = np.zeros(fields.reach.shape[1], dtype=bool)
            inside[fields.reach.indices[fields.reach.indptr[node] : fields.reach.indptr[node + 1]]] = True
            after = victim(*_changed_outside(data, fields.on, torch.from_numpy(inside), generator))
            difference = float((after[node] - before[node]).abs().max())
            if not difference <= CLOSE * float(before.abs().max()):  # also if a logit is NaN
                raise CertificateError(
                    f"{type(victim).__name__} depends on {fields.on} outside the receptive field of node {node}: the"
                    " model reaches further than the stated number of hops, or uses all nodes at once; state more hops"
                    " (hops=...), or use the certificate of each node (Certificate.certified), which needs no fields"
                )


def _changed_outside(data: Data, on: str, inside: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The graph with other random features outside a field, or without half of the edges there."""
    if on == "features":
        x: Tensor = data.x if data.x.layout == torch.strided else data.x.to_dense()
        random = (torch.rand(x.shape, generator=generator) < 0.5).to(x)
        return torch.where(inside.to(x.device)[:, None], x, random), data.edge_index
    size, pairs = int(data.num_nodes or 0), undirected_pairs(data).cpu()
    gone = pairs[:, ~inside & (torch.rand(len(inside), generator=generator) < 0.5)]
    key = data.edge_index.amin(0) * size + data.edge_index.amax(0)
    return data.x, data.edge_index[:, ~torch.isin(key, (gone[0] * size + gone[1]).to(key.device))]
