"""DICE (Waniek et al. 2018): delete internally, connect externally. It needs labels and no model."""

import torch
from torch import Tensor
from torch_geometric.data import Data

from wtawp.attacks.checks import checked_labels
from wtawp.attacks.random_attack import first_of_each
from wtawp.base import AttackError, checked_seed, rng
from wtawp.graphs.flips import EdgeFlips, budget_of, undirected_pairs


def dice(data: Data, *, budget: float | int, labels: Tensor, seed: int) -> EdgeFlips:
    """Remove edges inside classes and add edges between classes, each flip one or the other with probability 1/2.

    Where one kind runs out the other takes its place; where both do, there are fewer flips than the budget allows.

    Args:
        data: The graph.
        budget: The number of flips: undirected edges (int) or a share of the graph's edges (float).
        labels: The labels of all nodes, [n], true or guessed; no edge of a node with label -1 is flipped.
        seed: The seed of the draw.

    Returns:
        The flips.

    Raises:
        AttackError: If there is no edge inside a class, and no two nodes of different classes that could be joined.

    Example:
        >>> from wtawp.graphs import citation
        >>> data = citation(seed=0, num_nodes=60, num_words=20)
        >>> len(dice(data, budget=5, labels=data.y, seed=0))
        5
    """
    seed = checked_seed(seed)
    count, size, g = budget_of(data, budget), int(data.num_nodes), rng("attack", "dice", seed)
    labels = checked_labels(labels, size)
    edges, labels = undirected_pairs(data), labels.cpu()
    i, j = labels[edges]
    inside = edges[:, (i == j) & (i >= 0)]
    across = edges[:, (i != j) & (i >= 0) & (j >= 0)]
    classes = _Classes(labels)
    most_added = classes.num_pairs - across.shape[1]
    if inside.shape[1] + most_added == 0:
        raise AttackError("DICE finds nothing to flip: no edge inside a class, and no two labelled nodes to join")
    removed = int((torch.rand(count, generator=g) < 0.5).sum())
    removed = min(max(removed, count - most_added), inside.shape[1])
    added = min(count - removed, most_added)
    deletions = inside[:, torch.randperm(inside.shape[1], generator=g)[:removed]]
    pairs = torch.cat([deletions, classes.unjoined(across, added, g)], dim=1)
    return EdgeFlips.of(pairs, size, (("attack", "dice"), ("budget", str(budget)), ("seed", str(seed))))


class _Classes:
    """The labelled nodes in order of class, and pairs between classes drawn from them."""

    def __init__(self, labels: Tensor) -> None:
        known = (labels >= 0).nonzero()[:, 0]
        self.nodes = known[torch.argsort(labels[known], stable=True)]  # [l]
        _, sizes = torch.unique_consecutive(labels[self.nodes], return_counts=True)
        self.size = torch.repeat_interleave(sizes, sizes)  # [l], of the class of each node
        self.start = torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)  # [l], likewise: where the class begins
        self.num_pairs = int((len(known) - self.size).sum()) // 2
        self.stride = len(labels)

    def unjoined(self, joined: Tensor, count: int, g: torch.Generator) -> Tensor:  # [2, m], -> [2, count]
        """Draw different pairs between classes that are not in `joined`; all sets of them are equally likely."""
        taken, codes = joined[0] * self.stride + joined[1], torch.zeros(0, dtype=torch.int64)
        if self.num_pairs < 4 * (count + len(taken)):
            codes = self._all()
            codes = codes[torch.randperm(len(codes), generator=g)]
            codes = codes[~torch.isin(codes, taken)]
        while len(codes) < count:  # at least three draws of four are new
            drawn = self._draw(2 * count, g)
            codes = first_of_each(torch.cat([codes, drawn[~torch.isin(drawn, taken)]]))
        codes = codes[:count]
        return torch.stack([codes // self.stride, codes % self.stride])

    def _draw(self, count: int, g: torch.Generator) -> Tensor:
        """Pairs between classes, uniform, with repetitions: a node of a small class has more partners."""
        others = len(self.nodes) - self.size
        up_to = others.cumsum(0)
        ticket = torch.randint(0, int(up_to[-1]), (count,), generator=g)
        one = torch.searchsorted(up_to, ticket, right=True)
        other = ticket - (up_to[one] - others[one])
        other = torch.where(other >= self.start[one], other + self.size[one], other)  # past one's own class
        return self._coded(one, other)

    def _all(self) -> Tensor:
        """Every pair between classes once: each node with the nodes of later classes."""
        first = self.start + self.size
        later = len(self.nodes) - first
        one = torch.repeat_interleave(torch.arange(len(self.nodes)), later)
        offset = torch.arange(len(one)) - torch.repeat_interleave(later.cumsum(0) - later, later)
        return self._coded(one, first[one] + offset)

    def _coded(self, one: Tensor, other: Tensor) -> Tensor:
        """The codes of pairs of nodes that are named by their places in the order of classes."""
        ends = torch.stack([self.nodes[one], self.nodes[other]])
        return ends.amin(0) * self.stride + ends.amax(0)
