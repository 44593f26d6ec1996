"""Blocks of flips: which they hold, and what stays when they are drawn anew; here flips of random pairs."""

import torch

from wtawp.attacks.flip_blocks import EPS, FlipBlock, draw_pairs
from wtawp.base import rng

SIZE = 40


def block(block_size: int = 100, seed: int = 0) -> FlipBlock:
    generator = rng("block", seed)
    return FlipBlock(
        lambda draws: draw_pairs(torch.arange(0, SIZE, 2), SIZE, draws, block_size, generator),
        block_size,
        generator,
        dtype=torch.float64,
        least=EPS,
    )


def test_a_small_block_holds_different_pairs_of_free_nodes_and_a_large_one_all_of_them() -> None:
    some, everything = block(), block(block_size=1000)
    for each in (some, everything):
        i, j = each.codes // SIZE, each.codes % SIZE
        assert bool((i < j).all())
        assert bool((i % 2 == 0).all())
        assert bool((j % 2 == 0).all())
        assert len(torch.unique(each.codes)) == len(each.codes) == len(each.amounts)
        assert bool((each.amounts == EPS).all())
    assert 50 < len(some.codes) <= 100
    assert len(everything.codes) == 20 * 19 // 2
    assert torch.equal(some.codes, block().codes)
    assert not torch.equal(some.codes, block(seed=1).codes)


def test_flips_stay_when_the_rest_is_drawn_anew() -> None:
    drawn = block()
    amounts = torch.zeros_like(drawn.amounts)
    amounts[[3, 8, 20]] = torch.tensor([0.5, 2.0, 0.1], dtype=torch.float64)
    drawn.move(amounts)
    before = dict(zip(drawn.codes.tolist(), drawn.amounts.tolist(), strict=True))
    assert before[int(drawn.codes[8])] == 1 - EPS
    drawn.resample()
    after = dict(zip(drawn.codes.tolist(), drawn.amounts.tolist(), strict=True))
    flipped = {code for code, amount in before.items() if amount > EPS}
    assert {code for code, amount in after.items() if amount > EPS} == flipped
    assert all(after[code] == before[code] for code in flipped)
    assert set(after) != set(before)
    assert [float(drawn.amounts[i]) for i in drawn.largest()] == [1 - EPS, 0.5, 0.1]


def test_pairs_are_drawn_with_their_flips_as_probabilities() -> None:
    drawn = block()
    amounts = torch.zeros_like(drawn.amounts)
    amounts[[3, 8]] = torch.tensor([1.0, 0.5], dtype=torch.float64)
    drawn.move(amounts)
    sets = [drawn.sampled().tolist() for _ in range(200)]
    assert all(each in ([3], [3, 8]) for each in sets)
    assert 60 < sum(8 in each for each in sets) < 140


def test_whole_flips_are_sorted_and_flipped_entirely() -> None:
    drawn = block()
    whole = drawn.whole(torch.tensor([9, 4]))
    assert whole.codes.tolist() == drawn.codes[[4, 9]].tolist()
    assert whole.amounts.tolist() == [1.0, 1.0]
