"""Random flips: the baseline that every attack must beat. It uses neither labels nor a model."""

import torch
from torch import Tensor
from torch_geometric.data import Data

from wtawp.base import checked_seed, rng
from wtawp.graphs.flips import EdgeFlips, budget_of


def random_flips(data: Data, *, budget: float | int, seed: int) -> EdgeFlips:
    """Draw as many flips as the budget allows, uniformly over all pairs of nodes.

    Args:
        data: The graph.
        budget: The number of flips: undirected edges (int) or a share of the graph's edges (float).
        seed: The seed of the draw.

    Returns:
        The flips.

    Example:
        >>> from wtawp.graphs import citation
        >>> len(random_flips(citation(seed=0, num_nodes=60, num_words=20), budget=5, seed=0))
        5
    """
    seed = checked_seed(seed)
    count, size = budget_of(data, budget), int(data.num_nodes)
    pairs = _distinct_pairs(size, count, rng("attack", "random", seed))
    return EdgeFlips.of(pairs, size, (("attack", "random"), ("budget", str(budget)), ("seed", str(seed))))


def _distinct_pairs(size: int, count: int, g: torch.Generator) -> Tensor:  # -> [2, count]
    """Different pairs i < j, all sets of them equally likely; time and memory grow with `count`, not with size^2."""
    total = size * (size - 1) // 2
    if total < 4 * count:
        return torch.triu_indices(size, size, 1)[:, torch.randperm(total, generator=g)[:count]]
    codes = torch.zeros(0, dtype=torch.int64)
    while len(codes) < count:
        drawn = torch.randint(0, size, (2, 2 * count), generator=g)
        drawn = drawn[:, drawn[0] != drawn[1]]
        codes = first_of_each(torch.cat([codes, drawn.amin(0) * size + drawn.amax(0)]))
    codes = codes[:count]
    return torch.stack([codes // size, codes % size])


def first_of_each(codes: Tensor) -> Tensor:
    """Drop repetitions and keep the order of first appearance: a prefix is a uniform draw without replacement."""
    values, which = torch.unique(codes, return_inverse=True)
    first = torch.full_like(values, len(codes)).scatter_reduce(0, which, torch.arange(len(codes)), "amin")
    return codes[first.sort().values]
