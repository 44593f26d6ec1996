"""Generated graphs: the paper's toy points, k-NN graphs of any points, a citation network, graphs of any size."""

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.base import DataError, checked_seed, rng


def knn_edges(points: Tensor, k: int) -> Tensor:  # [n, d] -> [2, e]
    """The k-nearest-neighbour graph of points: two points are joined if one is among the k nearest of the other.

    Args:
        points: Coordinates on the CPU, [n, d].
        k: Number of neighbours of each point, from 1 to n - 1.

    Returns:
        The undirected edges, in both directions, [2, e].

    Raises:
        DataError: If k is out of range.

    Example:
        >>> knn_edges(torch.tensor([[0.0], [1.0], [3.0]]), k=1)
        tensor([[0, 1, 1, 2],
                [1, 0, 2, 1]])
    """
    if not 1 <= k < len(points):
        raise DataError(f"k must lie between 1 and the number of points less one, {len(points) - 1}, got {k}")
    from sklearn.neighbors import kneighbors_graph  # it takes a second, which other graphs do not need

    adjacency = kneighbors_graph(points.numpy(), k, mode="connectivity", include_self=False)
    both = (adjacency + adjacency.T).tocoo()
    return torch.from_numpy(np.stack([both.row, both.col]).astype(np.int64))


def toy(name: str, *, seed: int, num_points: int = 200, k: int = 3) -> Data:
    """Points in the plane with two classes, and their k-NN graph (sec:vanishing_gradient). Features are positions.

    Args:
        name: "linear" (uniform in the unit square, divided at x = 0.5), or "moons", "rings" or "gaussians", which have
            two classes of equal size.
        seed: Number of the draw; equal seeds give equal graphs.
        num_points: Number of points.
        k: Number of neighbours of each point.

    Returns:
        The graph, with the positions also in `pos`.

    Raises:
        DataError: If there is no toy of that name.

    Example:
        >>> toy("moons", seed=0).num_nodes
        200
    """
    seed = checked_seed(seed)
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
    """Points on the unit circle, [n, 2]."""
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
    """Generate a citation network that resembles Cora: 7 classes of unequal size, sparse binary bags of words.

    The edges follow a degree-corrected block model. Every node draws one partner, and the remaining edges start at
    nodes drawn in proportion to Pareto weights. A partner has the same class with probability `homophily` and is drawn
    inside its class in proportion to its weight. The words of a node follow a Zipf law that is common to all nodes,
    mixed with the topic of its class, which is the same law over a shuffled vocabulary.

    Args:
        seed: Number of the draw; equal seeds give equal graphs.
        num_nodes: Number of nodes.
        mean_degree: Mean number of neighbours of a node.
        homophily: Probability that an edge stays inside a class.
        num_words: Size of the vocabulary, the number of features.
        words_per_node: Mean number of words that a node draws; words drawn twice count once.
        topicality: Share of the words that are drawn from the topic of the class.

    Returns:
        The graph. The defaults give a node classification task about as hard as Cora.

    Raises:
        DataError: If there are too few nodes for 7 classes.

    Example:
        >>> citation(seed=0)
        Data(x=[2000, 800], edge_index=[2, 8000], y=[2000])
    """
    seed = checked_seed(seed)
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
    """The size of each class of a citation network."""
    counts = (torch.tensor(CLASS_SHARES, dtype=torch.float64) * num_nodes).round().long()
    counts[0] += num_nodes - counts.sum()
    if counts.min() < 3:
        raise DataError(f"{num_nodes} nodes are too few for {len(CLASS_SHARES)} classes; ask for 50 or more")
    return counts


def _block_model(
    y: Tensor, num_edges: int, homophily: float, g: torch.Generator
) -> Tensor:  # [n] -> [2, 2 * num_edges]
    """Both directions of the edges of a degree-corrected block model."""
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


ROUNDS = 4  # of drawing edges: the later ones replace pairs that were drawn twice


def power_law(
    *,
    num_nodes: int,
    mean_degree: float,
    seed: int,
    num_classes: int = 8,
    num_features: int = 32,
    homophily: float = 0.8,
    exponent: float = 2.5,
    device: str | torch.device = "cpu",
) -> Data:
    """Generate a graph of any size, with power-law degrees, equal classes and Gaussian features, to measure scaling.

    It is a degree-corrected planted partition: both ends of an edge are drawn in proportion to Pareto weights. The
    weights are limited so that no node expects more than sqrt(num_nodes * mean_degree) edges, and few pairs are drawn
    twice. Duplicates count once and are replaced in further rounds; small dense graphs still end with fewer edges than
    asked for. Features are a class mean of length 1 plus unit noise.

    Args:
        num_nodes: Number of nodes, at least `num_classes`.
        mean_degree: Mean number of neighbours of a node, between 0 and num_nodes - 1.
        seed: Number of the draw. Equal seeds give equal graphs on one kind of device, and different ones on another.
        num_classes: Number of classes, 2 or more.
        num_features: Number of features, 1 or more.
        homophily: Probability that an edge stays inside the class of its source, in [0, 1].
        exponent: Exponent of the power law of the degrees, greater than 2 so that their mean is finite.
        device: Where the graph is drawn, and lives.

    Returns:
        The graph.

    Raises:
        DataError: If an argument is out of range.

    Example:
        >>> power_law(num_nodes=1000, mean_degree=10, seed=0).num_nodes
        1000
    """
    seed = checked_seed(seed)
    if num_classes < 2 or num_nodes < num_classes:
        raise DataError(f"2 classes or more, and a node or more for each, got {num_classes} for {num_nodes} nodes")
    if num_features < 1:
        raise DataError(f"num_features must be >= 1, got {num_features}")
    if not 0 < mean_degree < num_nodes - 1:
        raise DataError(f"mean_degree must lie between 0 and num_nodes - 1 = {num_nodes - 1}, got {mean_degree}")
    if not 0 <= homophily <= 1:
        raise DataError(f"homophily must lie in [0, 1], got {homophily}")
    if not exponent > 2:
        raise DataError(f"exponent must be > 2, or the mean degree is not finite, got {exponent}")
    g = rng("power law", seed, device=device)
    y = torch.randperm(num_nodes, generator=g, device=device) % num_classes
    uniform = 1 - torch.rand(num_nodes, generator=g, device=device, dtype=torch.float64)  # never 0
    weight = uniform.pow(-1 / (exponent - 1))
    weight.clamp_max_(math.sqrt(num_nodes / mean_degree) * float(weight.mean()))
    wanted = round(num_nodes * mean_degree / 2)
    codes = torch.empty(0, dtype=torch.int64, device=device)
    draw = _Partition(y, weight, num_classes)
    for _ in range(ROUNDS):
        codes = torch.unique(torch.cat([codes, draw.pairs(wanted - len(codes), homophily, g)]))
    half = torch.stack([codes // num_nodes, codes % num_nodes])
    del codes
    x = torch.randn(num_nodes, num_features, generator=g, device=device)
    x += F.normalize(torch.randn(num_classes, num_features, generator=g, device=device))[y]
    return Data(x=x, y=y, edge_index=torch.cat([half, half.flip(0)], dim=1))


class _Partition:
    """Draws nodes in proportion to their weights: intervals of these lengths, class by class, along a line.

    A uniform point on the line, or on the part of a class, is a drawn node.
    """

    def __init__(self, y: Tensor, weight: Tensor, num_classes: int) -> None:
        self.nodes = torch.argsort(y)
        self.ends = weight[self.nodes].cumsum(0)
        sizes = torch.bincount(y, minlength=num_classes)
        self.y = y
        self.high = self.ends[sizes.cumsum(0) - 1]  # [c], where each class ends; `low`: where it starts
        self.low = torch.cat([self.high.new_zeros(1), self.high[:-1]])

    def pairs(self, count: int, homophily: float, g: torch.Generator) -> Tensor:
        """Codes low * n + high of up to `count` pairs, possibly with duplicates, without self-loops."""
        n, total = len(self.nodes), self.ends[-1]
        place, where, chance = torch.rand(3, count, generator=g, device=g.device, dtype=torch.float64)
        source = self._at(place * total)
        low, high = self.low[self.y[source]], self.high[self.y[source]]
        outside = where * (total - high + low)
        outside += (high - low) * (outside >= low)
        target = self._at(torch.where(chance < homophily, low + where * (high - low), outside))
        codes = torch.minimum(source, target) * n + torch.maximum(source, target)
        return codes[source != target]

    def _at(self, place: Tensor) -> Tensor:
        """The nodes whose intervals hold these points of the line."""
        return self.nodes[torch.searchsorted(self.ends, place, right=True).clamp_max(len(self.nodes) - 1)]
