"""Block ascent on losses whose best flips are known."""

import pytest
import torch
from torch import Tensor

from wtawp.attacks.block_ascent import BlockAscent, check_block_options
from wtawp.attacks.projection import project_onto_budget
from wtawp.attacks.relaxed import RelaxedFlips
from wtawp.base import AttackError, rng

SIZE = 400


class Weighted:
    """Each flip adds its own weight to the loss, so that the best flips are those of the largest weights."""

    what, flat = "features", "nothing matters"

    def __init__(self, weight: Tensor, count: int, least: float = 0.0, block: int = SIZE) -> None:
        self.weight, self.count, self.least, self.block = weight, count, least, block
        self.generator, self.relaxed = rng("draws"), list[int]()

    def draw(self, draws: int) -> Tensor:
        if self.block >= SIZE:
            return torch.arange(SIZE)
        return torch.unique(torch.randint(0, SIZE, (draws,), generator=self.generator))

    def loss(self, flips: RelaxedFlips) -> Tensor:
        self.relaxed.append(len(flips.codes))
        assert bool((flips.codes.diff() > 0).all()), "sorted, and each once"
        return self.weight[flips.codes] @ flips.amounts

    def project(self, codes: Tensor, values: Tensor) -> Tensor:  # noqa: ARG002
        return project_onto_budget(values, self.count)

    def choose(self, codes: Tensor, order: Tensor) -> Tensor:  # noqa: ARG002
        return order[: self.count]


def ascend(space: Weighted, steps: int = 60, samples: int = 5) -> Tensor:
    return BlockAscent(space, space.block, torch.float64, rng("ascent")).run(steps, 0.5, samples).sort().values


@pytest.mark.parametrize("least", [0.0, 1e-7])
@pytest.mark.parametrize("block", [SIZE, 100])
def test_the_best_flips_are_found_also_in_blocks_of_a_quarter(block: int, least: float) -> None:
    weight = torch.randn(SIZE, generator=rng("weights"), dtype=torch.float64)
    space = Weighted(weight, 7, least, block)
    assert torch.equal(ascend(space), weight.topk(7).indices.sort().values)
    assert max(space.relaxed) <= block, "no more flips are relaxed than a block has room for"


def test_fewer_flips_than_the_budget_are_returned_where_more_do_harm() -> None:
    weight = torch.where(torch.arange(SIZE) < 3, 1.0, -1.0).double()
    assert ascend(Weighted(weight, 7)).tolist() == [0, 1, 2]


def test_the_same_generators_give_the_same_flips() -> None:
    weight = torch.randn(SIZE, generator=rng("weights"), dtype=torch.float64)
    one, same = (ascend(Weighted(weight, 30, block=90), steps=4) for _ in range(2))
    assert torch.equal(one, same)


def test_gradients_that_are_zero_or_not_finite_are_refused() -> None:
    with pytest.raises(AttackError, match="nothing matters"):
        ascend(Weighted(torch.zeros(SIZE, dtype=torch.float64), 7))
    with pytest.raises(AttackError, match="with respect to features is NaN"):
        ascend(Weighted(torch.full((SIZE,), torch.nan, dtype=torch.float64), 7))


def test_options_out_of_range_are_refused() -> None:
    fine = {"loss": "ce", "steps": 1, "samples": 0, "block_size": 1, "step_size": 1.0}
    check_block_options(**fine)  # type: ignore[arg-type]
    for bad in ({"steps": 0}, {"samples": -1}, {"block_size": 0}, {"step_size": float("inf")}, {"loss": "hinge"}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            check_block_options(**{**fine, **bad})  # type: ignore[arg-type]
