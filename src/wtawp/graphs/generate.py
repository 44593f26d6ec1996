"""Graphs made on the spot: the paper's toy points, k-NN graphs of any points, and a citation network."""

import math

import numpy as np
import torch
from sklearn.neighbors import kneighbors_graph
from torch import Tensor
from torch_geometric.data import Data

from wtawp.base import DataError, rng


def knn_edges(points: Tensor, k: int) -> Tensor:  # [n, d] -> [2, e]
    """Undirected edges from each point to its k nearest others, symmetrised by union."""
    if not 1 <= k < len(points):
        raise DataError(f"k must lie between 1 and the number of points less one, {len(points) - 1}, got {k}")
    adjacency = kneighbors_graph(points.numpy(), k, mode="connectivity", include_self=False)
    both = (adjacency + adjacency.T).tocoo()
    return torch.from_numpy(np.stack([both.row, both.col]).astype(np.int64))


def toy(name: str, *, seed: int, num_points: int = 200, k: int = 3) -> Data:
    """Points in the plane with two classes and their k-NN graph (sec:vanishing_gradient); features are positions.

    "linear": uniform in the unit square, class by x < 0.5. "moons", "rings", "gaussians": two classes of equal size.
    """
    g = rng("toy", name, seed)
    half = num_points // 2
    y = (torch.arange(num_points) >= half).long()
    angle = torch.rand(num_points, generator=g) * math.pi
    noise = torch.randn(num_points, 2, generator=g)
    if name == "linear":
        x = torch.rand(num_points, 2, generator=g)
        y = (x[:, 0] >= 0.5).long()
    elif name == "moons":
        upper, lower = _circle(angle), torch.tensor([1.0, 0.5]) - _circle(angle)
        x = torch.where(y[:, None] == 0, upper, lower) + 0.1 * noise
    elif name == "rings":
        x = _circle(2 * angle) * (0.5 + 0.5 * y[:, None]) + 0.07 * noise
    elif name == "gaussians":
        x = noise + 3.0 * y[:, None] * torch.tensor([1.0, 0.0])
    else:
        raise DataError(f"toy graphs are 'linear', 'moons', 'rings' and 'gaussians', got {name!r}")
    return Data(x=x, y=y, edge_index=knn_edges(x, k), pos=x)


def _circle(angle: Tensor) -> Tensor:
    return torch.stack([angle.cos(), angle.sin()], dim=1)


CLASS_SHARES = (0.28, 0.18, 0.15, 0.13, 0.11, 0.09, 0.06)


def citation(
    *,
    seed: int,
    num_nodes: int = 2000,
    mean_degree: float = 4.0,
    homophily: float = 0.75,
    num_words: int = 800,
    words_per_node: float = 18.0,
    topicality: float = 0.15,
) -> Data:
    """A citation network for offline use, in the likeness of Cora: 7 unequal classes, sparse binary bags of words.

    Edges: a degree-corrected block model. Every node draws one partner and the remaining edges start at nodes in
    proportion to Pareto weights; a partner is of the same class with probability `homophily`, and inside its class
    chosen in proportion to its weight. Words: each node draws about `words_per_node` words, a share `topicality` of
    them from its class's topic (a shuffled copy of the vocabulary's law), the rest from a Zipf law common to all.
    """
    g = rng("citation", seed)
    y = torch.repeat_interleave(torch.arange(len(CLASS_SHARES)), _counts(num_nodes))
    y = y[torch.randperm(num_nodes, generator=g)]
    edge_index = _block_model(y, round(num_nodes * mean_degree / 2), homophily, g)

    zipf = 1 / torch.arange(1, num_words + 1).float()
    zipf = zipf / zipf.sum()
    topics = torch.stack([zipf[torch.randperm(num_words, generator=g)] for _ in CLASS_SHARES])
    law = (1 - topicality) * zipf + topicality * topics  # [c, num_words]
    lengths = torch.poisson(torch.full((num_nodes,), words_per_node), generator=g).long().clamp_min(1)
    x = torch.zeros(num_nodes, num_words)
    drawn = torch.multinomial(law[y], int(lengths.max()), replacement=True, generator=g)
    node, position = torch.nonzero(torch.arange(drawn.shape[1]) < lengths[:, None], as_tuple=True)
    x[node, drawn[node, position]] = 1.0
    return Data(x=x, y=y, edge_index=edge_index)


def _counts(num_nodes: int) -> Tensor:
    counts = (torch.tensor(CLASS_SHARES, dtype=torch.float64) * num_nodes).round().long()
    counts[0] += num_nodes - counts.sum()
    if counts.min() < 3:
        raise DataError(f"{num_nodes} nodes are too few for {len(CLASS_SHARES)} classes; ask for 50 or more")
    return counts


def _block_model(
    y: Tensor, num_edges: int, homophily: float, g: torch.Generator
) -> Tensor:  # [n] -> [2, 2 * num_edges]
    n = len(y)
    weight = torch.rand(n, generator=g, dtype=torch.float64).pow(-1 / 2.5)  # Pareto with a tail of Cora's steepness
    edges: dict[int, None] = {}  # u * n + v with u < v, in order of arrival
    source = torch.arange(n)
    while len(edges) < num_edges:
        same = torch.rand(len(source), generator=g) < homophily
        target = torch.empty_like(source)
        for c in range(int(y.max()) + 1):
            for stays in (True, False):
                rows = (y[source] == c) & (same == stays)
                if rows.any():
                    allowed = weight * ((y == c) == stays)
                    target[rows] = torch.multinomial(allowed, int(rows.sum()), replacement=True, generator=g)
        low, high = torch.minimum(source, target), torch.maximum(source, target)
        edges.update(dict.fromkeys((low * n + high)[low < high].tolist()))
        source = torch.multinomial(weight, n, replacement=True, generator=g)
    codes = torch.tensor(list(edges)[:num_edges])
    half = torch.stack([codes // n, codes % n])
    return torch.cat([half, half.flip(0)], dim=1)
