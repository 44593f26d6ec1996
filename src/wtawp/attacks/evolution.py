"""The steps of a genetic algorithm on sets of edge flips: selection, crossover, and mutation of a whole population.

A population is a matrix of codes, one row for each set of flips (see `flipped_graphs`). Everything here is on the CPU.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from wtawp.attacks.flipped_graphs import NO_FLIP
from wtawp.graphs.operator import Operator
from wtawp.graphs.products import spmm

JITTER = 0.1  # standard deviation of the noise on credits: a tenth of what a misclassified node counts
REDRAWS = 3  # of the other end of a new flip while both ends are predicted to be of one class


def tournament(fitness: Tensor, children: int, size: int, g: torch.Generator) -> Tensor:  # [p] -> [children]
    """For each child a parent, the one with the lowest fitness among `size` candidates drawn with replacement."""
    candidates = torch.randint(0, len(fitness), (children, size), generator=g)
    return candidates.gather(1, fitness[candidates].argmin(1, keepdim=True))[:, 0]


def credits_of(population: Tensor, gains: Tensor, closed: Operator) -> Tensor:  # [p, k], [p, n] -> [p, k]
    """What each flip has achieved, from what the flips of its set have achieved at each node.

    A flip mostly changes its ends and their neighbours. So the gain at a node is divided equally among the flips that
    have an end at the node or at one of its neighbours.

    Args:
        population: The sets of flips.
        gains: How much the value of each node has fallen under each set of flips.
        closed: A + I of the clean graph.
    """
    size, is_flip = gains.shape[1], (population != NO_FLIP).to(gains)
    i, j = population.clamp_min(0) // size, population.clamp_min(0) % size
    ends = torch.zeros_like(gains).scatter_add(1, i, is_flip).scatter_add(1, j, is_flip)
    nearby = spmm(closed, ends.T.contiguous())  # [n, p], how many ends there are in each closed neighbourhood
    share = spmm(closed, gains.T / nearby.clamp_min(1)).T
    return share.gather(1, i) + share.gather(1, j)


def combined(parents: Tensor, earned: Tensor, fresh: Tensor, size: int) -> Tensor:  # [q, a], [q, a], [q, b] -> [q, k]
    """Children of `size` flips: all fresh ones, and of those of the parents the ones with the highest credits.

    A flip that occurs several times counts once, with the highest of its credits. A child with too few different flips
    is filled up with NO_FLIP.
    """
    codes = torch.cat([parents, fresh], 1)
    ranks = torch.cat([earned, torch.full(fresh.shape, torch.inf)], 1)
    ranks = ranks.masked_fill(codes == NO_FLIP, -torch.inf)
    order = ranks.argsort(dim=1, descending=True, stable=True)
    codes, ranks = codes.gather(1, order), ranks.gather(1, order)
    by_code = codes.argsort(dim=1, stable=True)  # among equal codes the highest rank comes first
    codes, ranks = codes.gather(1, by_code), ranks.gather(1, by_code)
    ranks[:, 1:] = ranks[:, 1:].masked_fill(codes[:, 1:] == codes[:, :-1], -torch.inf)
    chosen = ranks.topk(min(size, ranks.shape[1]), dim=1)
    return codes.gather(1, chosen.indices).masked_fill(chosen.values == -torch.inf, NO_FLIP)


@dataclass(frozen=True, eq=False)
class FlipSampler:
    """Draws new flips for mutation.

    Attributes:
        classes: The class of each node as the victim predicts it on the clean graph, [n].
        generator: Draws.
    """

    classes: Tensor
    generator: torch.Generator

    def draw(self, weights: Tensor, count: int) -> Tensor:  # [p, n] -> [p, count]
        """Flips with one end drawn by the weights of the nodes, and the other preferably of another class.

        Args:
            weights: For each set of flips, how likely each node is to be an end; not all of them 0.
            count: The number of flips for each row.
        """
        size = len(self.classes)
        aimed = torch.multinomial(weights, count, replacement=True, generator=self.generator)
        other = self._different(aimed, size)
        for _ in range(REDRAWS):
            other = torch.where(self.classes[aimed] == self.classes[other], self._different(aimed, size), other)
        return torch.minimum(aimed, other) * size + torch.maximum(aimed, other)

    def _different(self, nodes: Tensor, size: int) -> Tensor:
        """A node other than the given one, uniformly."""
        drawn = torch.randint(0, size - 1, nodes.shape, generator=self.generator)
        return drawn + (drawn >= nodes).long()
