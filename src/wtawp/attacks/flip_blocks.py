"""Random blocks of flips, on which attacks on large graphs move relaxed flips (PRBCD, Geisler et al. 2021).

A flip is a whole number, its code. Only the flips of a block are relaxed to amounts between 0 and 1: after each step
the larger half of the block stays and the rest is drawn anew, so that memory grows with the block and not with the
number of all possible flips.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from wtawp.attacks.relaxed import RelaxedFlips

RESAMPLED = 0.8  # share of the steps in which a block is drawn anew
EPS = 1e-7  # the least amount of a pair of nodes, so that every pair of the block is in the graph and has a gradient


class FlipBlock:
    """Flips and the amount of each, between `least` and 1 - `least`.

    Args:
        draw: Draws the codes of some flips at random, given how many: [<= that] int64, sorted and each once, on the
            device of the data.
        block_size: The number of draws that make a block.
        generator: Draws whole flips, on the CPU.
        dtype: The type of the amounts.
        least: The least amount: above 0 where flips of 0 would have no gradient.

    Attributes:
        codes: The flips, sorted.
        amounts: Their relaxed flips.
    """

    def __init__(
        self, draw: Callable[[int], Tensor], block_size: int, generator: torch.Generator, *, dtype: torch.dtype,
        least: float,
    ) -> None:  # fmt: skip
        self.draw, self.block_size, self.generator, self.least = draw, block_size, generator, least
        self.codes = draw(block_size)
        self.amounts = torch.full((len(self.codes),), least, dtype=dtype, device=self.codes.device)

    def move(self, amounts: Tensor) -> None:
        """Replace the amounts; those out of range are cut."""
        self.amounts = amounts.clamp(self.least, 1 - self.least)

    def resample(self) -> None:
        """Keep the larger half of the block, without flips of the least amount, and draw the rest anew."""
        order = self.amounts.argsort(descending=True)[: len(self.amounts) // 2]
        kept = order[self.amounts[order] > self.least]
        drawn = self.draw(max(1, self.block_size - len(kept)))
        relaxed = RelaxedFlips.of(self.codes[kept], self.amounts[kept])
        self.codes = torch.unique(torch.cat([relaxed.codes, drawn]))
        self.amounts = relaxed.at(self.codes).clamp_min(self.least)

    def largest(self) -> Tensor:  # -> [k], positions in the block
        """The flips of more than the least amount, the largest first; one at least."""
        order = self.amounts.argsort(descending=True, stable=True)
        return order[: max(1, int((self.amounts > self.least).sum()))]

    def sampled(self) -> Tensor:  # -> [k], positions in the block
        """Flips drawn with the amounts as probabilities, the largest first."""
        drawn = torch.rand(len(self.amounts), generator=self.generator).to(self.amounts) < self.amounts
        drawn &= self.amounts > self.least
        order = self.amounts.argsort(descending=True, stable=True)
        return order[drawn[order]]

    def whole(self, chosen: Tensor) -> RelaxedFlips:  # [k], positions in the block
        """Some flips of the block, made whole."""
        codes = self.codes[chosen].sort().values
        return RelaxedFlips(codes, torch.ones_like(codes, dtype=self.amounts.dtype))


def draw_pairs(free: Tensor, size: int, draws: int, block_size: int, generator: torch.Generator) -> Tensor:
    """Draw pairs of nodes at random.

    Args:
        free: The nodes of which pairs are drawn, [k], sorted.
        size: The number of nodes of the graph.
        draws: How many pairs are drawn; fewer are returned where some are the same.
        block_size: If there are no more pairs than this, all of them are returned.
        generator: Draws them.

    Returns:
        The pairs (i, j), i < j, as i n + j, sorted, on the CPU.

    Example:
        >>> draw_pairs(torch.arange(3), 3, 1, 100, torch.Generator())
        tensor([1, 2, 5])
    """
    count = len(free)
    if count * (count - 1) // 2 <= block_size:
        i, j = torch.triu_indices(count, count, 1)
    else:
        ends = torch.randint(0, count, (2, draws), generator=generator)
        i, j = ends[:, ends[0] != ends[1]].sort(0).values
    codes: Tensor = torch.unique(free[i] * size + free[j])
    return codes
