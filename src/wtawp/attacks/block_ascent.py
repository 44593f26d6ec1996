"""Projected gradient ascent on a random block of flips (PRBCD, Geisler et al. 2021), whatever it is that is flipped.

At the end whole flips are drawn with the amounts of the relaxed ones as probabilities, within the budget.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from wtawp.attacks.checks import refuse_nan
from wtawp.attacks.flip_blocks import RESAMPLED, FlipBlock
from wtawp.attacks.losses import loss_spec
from wtawp.attacks.relaxed import RelaxedFlips
from wtawp.base import AttackError, report_progress


class FlipSpace(Protocol):
    """What can be flipped, what it does to the loss, and what the budget allows.

    Attributes:
        what: What is flipped, for errors: "edges" or "features".
        least: The least amount of a relaxed flip in a block: above 0 where flips of 0 would have no gradient.
        flat: The error if the gradient is zero for the whole first block.
    """

    what: str
    least: float
    flat: str

    def draw(self, draws: int) -> Tensor:
        """Draw the codes of some flips at random, [<= draws] int64, sorted and each once, on the device of the data."""

    def loss(self, flips: RelaxedFlips) -> Tensor:  # -> []
        """The loss after relaxed flips, differentiable by their amounts."""

    def project(self, codes: Tensor, values: Tensor) -> Tensor:  # [k], [k] -> [k]
        """The nearest amounts that keep the budget."""

    def choose(self, codes: Tensor, order: Tensor) -> Tensor:  # [k], [r] -> positions
        """Those flips of the positions `order`, the best first, that keep the budget as whole flips."""


def check_block_options(loss: str, steps: int, samples: int, block_size: int, step_size: float) -> None:
    """Refuse options of a block attack that are out of range."""
    loss_spec(loss)
    for name, value, least in (("steps", steps, 1), ("samples", samples, 0), ("block_size", block_size, 1)):
        if value < least:
            raise ValueError(f"{name} must be >= {least}, got {value}")
    if not 0 < step_size < float("inf"):
        raise ValueError(f"step_size must be positive and finite, got {step_size}")


class BlockAscent:
    """The block of flips with their amounts, and the ascent on it.

    Args:
        space: What is flipped.
        block_size: The number of draws that make a block.
        dtype: The type of the amounts.
        generator: The generator of the final draws, on the CPU.
    """

    def __init__(self, space: FlipSpace, block_size: int, dtype: torch.dtype, generator: torch.Generator) -> None:
        self.space = space
        self.block = FlipBlock(space.draw, block_size, generator, dtype=dtype, least=space.least)

    def run(self, steps: int, rate: float, samples: int) -> Tensor:  # -> [k] codes
        """Ascend, then draw sets of flips, and return the set with the highest loss.

        Args:
            steps: The number of steps; the block changes in the first 80 % of them.
            rate: The factor of the gradient; it falls once the block stays.
            samples: The number of sets that are drawn, beside the set of the largest amounts.

        Returns:
            The codes of the flips, in no order.
        """
        block, changing, highest = self.block, max(1, round(RESAMPLED * steps)), -math.inf
        best = block.codes, block.amounts
        for step in range(steps):
            report_progress(step / steps)
            raised = block.amounts + rate / math.sqrt(max(0, step - changing) + 1) * self._gradient(is_first=step == 0)
            block.move(self.space.project(block.codes, raised))
            value = self._value_of(self._chosen(block.largest()))
            if value > highest:
                highest, best = value, (block.codes, block.amounts)
            if step < changing - 1:
                block.resample()
            elif step == changing - 1:
                block.codes, block.amounts = best
        block.codes, block.amounts = best
        return block.codes[self._best_of([block.largest(), *(block.sampled() for _ in range(samples))])]

    def _gradient(self, *, is_first: bool) -> Tensor:  # -> [k]
        """The derivative of the loss by each amount."""
        with torch.enable_grad():
            amounts = self.block.amounts.detach().requires_grad_()
            value = self.space.loss(RelaxedFlips(self.block.codes, amounts))
            value = value + 0 * amounts.sum()  # so that a victim that ignores what is flipped is checked too
            gradient = torch.autograd.grad(value, amounts)[0]
        refuse_nan(gradient, self.space.what)
        if is_first and not bool((gradient != 0).any()):
            raise AttackError(self.space.flat)
        return gradient

    def _chosen(self, order: Tensor) -> Tensor:  # -> positions in the block
        """Those of some flips, the best first, that keep the budget."""
        return self.space.choose(self.block.codes, order)

    @torch.no_grad()
    def _value_of(self, chosen: Tensor) -> float:
        """The loss after some whole flips of the block."""
        return float(self.space.loss(self.block.whole(chosen)))

    def _best_of(self, orders: Sequence[Tensor]) -> Tensor:
        """The set of flips with the highest loss, of those that are not empty."""
        some = [chosen for chosen in map(self._chosen, orders) if len(chosen)]
        values = [self._value_of(chosen) for chosen in some]
        return some[values.index(max(values))]
