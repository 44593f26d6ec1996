"""Selection, crossover and mutation, against loops over nodes and flips."""

import torch

from wtawp.attacks.evolution import FlipSampler, combined, credits_of, tournament
from wtawp.attacks.flipped_graphs import NO_FLIP
from wtawp.base import rng
from wtawp.graphs import sum_operator

SIZE = 6
EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])  # a path, and node 5 alone
CLOSED = sum_operator(torch.cat([EDGES, EDGES.flip(0), torch.arange(SIZE).expand(2, -1)], 1), None, SIZE)


def test_a_tournament_of_many_candidates_is_won_by_the_best_and_of_one_by_anybody() -> None:
    fitness = torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64)
    assert tournament(fitness, 50, 60, rng("t")).unique().tolist() == [1]
    assert tournament(fitness, 50, 1, rng("t")).unique().tolist() == [0, 1, 2]


def test_the_gain_at_a_node_is_divided_among_the_ends_of_flips_in_its_closed_neighbourhood() -> None:
    population = torch.tensor([[0 * SIZE + 5, 1 * SIZE + 4, NO_FLIP], [2 * SIZE + 3, 0 * SIZE + 2, 1 * SIZE + 5]])
    gains = torch.rand(2, SIZE, generator=rng("gains"))
    near = [{0, 1}, {0, 1, 2}, {1, 2, 3}, {2, 3, 4}, {3, 4}, {5}]
    expected = torch.zeros(2, 3)
    for row in range(2):
        flips = [(int(c) // SIZE, int(c) % SIZE) for c in population[row] if c != NO_FLIP]
        ends = [end for flip in flips for end in flip]
        for k, flip in enumerate(flips):
            for end in flip:
                for node in near[end]:
                    expected[row, k] += gains[row, node] / sum(other in near[node] for other in ends)
    got = credits_of(population, gains, CLOSED)
    is_flip = population != NO_FLIP
    torch.testing.assert_close(got[is_flip], expected[is_flip])


def test_children_have_all_fresh_flips_and_the_best_of_their_parents_each_once() -> None:
    parents = torch.tensor([[7, 8, NO_FLIP, 8, 9, 10]])
    earned = torch.tensor([[0.5, 0.1, 9.0, 0.8, 0.2, 0.7]])
    assert sorted(combined(parents, earned, torch.tensor([[3, 10]]), 4)[0].tolist()) == [3, 7, 8, 10]
    assert sorted(combined(parents, earned, torch.tensor([[3, 3]]), 3)[0].tolist()) == [3, 8, 10]


def test_a_child_with_too_few_different_flips_is_filled_up_with_none() -> None:
    child = combined(torch.tensor([[4, 4, 4, NO_FLIP]]), torch.zeros(1, 4), torch.tensor([[5]]), 4)
    assert sorted(child[0].tolist()) == [NO_FLIP, NO_FLIP, 4, 5]


def test_new_flips_have_an_end_at_an_aimed_node_and_mostly_one_of_another_class() -> None:
    classes = torch.tensor([0, 0, 0, 1, 1, 1])
    weights = torch.tensor([[0.0, 1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 2.0, 1.0]])
    codes = FlipSampler(classes, rng("draw")).draw(weights, 400)
    i, j = codes // SIZE, codes % SIZE
    assert bool((i < j).all())
    assert bool(((i[0] == 1) | (j[0] == 1)).all())
    assert bool(torch.isin(torch.stack([i[1], j[1]]), torch.tensor([4, 5])).any(0).all())
    assert float((classes[i] != classes[j]).float().mean()) > 0.9
