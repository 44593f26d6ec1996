"""One table of all attacks, through the same checks."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from wtawp.attacks import dice, eva, grbcd, lrbcd, metattack, minmax, pgd, prbcd, random_flips
from wtawp.base import DataError, rng
from wtawp.graphs import EdgeFlips, citation, undirected_pairs
from wtawp.models import GCN

DATA = citation(seed=0, num_nodes=60, num_words=20)
VICTIM = GCN(20, 7, hidden=(8,), generator=rng("victim"))
TRAIN, LABELS = torch.arange(0, 60, 3), DATA.y.clone()
Attack = Callable[[Data, float, int], EdgeFlips]
ATTACKS: dict[str, Attack] = {
    "random": lambda data, budget, seed: random_flips(data, budget=budget, seed=seed),
    "dice": lambda data, budget, seed: dice(data, budget=budget, labels=LABELS, seed=seed),
    "metattack": lambda data, budget, seed: metattack(
        data, budget=budget, train=TRAIN, labels=LABELS, seed=seed, steps=10
    ),
    "pgd": lambda data, budget, seed: pgd(
        data, VICTIM, budget=budget, nodes=TRAIN, labels=LABELS, seed=seed, steps=3, samples=3, step_size=20.0
    ),
    "prbcd": lambda data, budget, seed: prbcd(
        data, VICTIM, budget=budget, nodes=TRAIN, labels=LABELS, seed=seed, steps=3, samples=3, block_size=500
    ),
    "grbcd": lambda data, budget, seed: grbcd(
        data, VICTIM, budget=budget, nodes=TRAIN, labels=LABELS, seed=seed, steps=3, block_size=500
    ),
    "minmax": lambda data, budget, seed: minmax(
        data, VICTIM, budget=budget, nodes=TRAIN, labels=LABELS, seed=seed, steps=3, samples=3, step_size=20.0
    ),
    "lrbcd": lambda data, budget, seed: lrbcd(
        data, VICTIM, budget=budget, nodes=TRAIN, labels=LABELS, seed=seed, steps=3, samples=3, block_size=500
    ),
    "eva": lambda data, budget, seed: eva(
        data, VICTIM, budget=budget, nodes=TRAIN, labels=LABELS, seed=seed, steps=6, population=16
    ),
}
attacks = pytest.mark.parametrize("name", ATTACKS)


@attacks
@pytest.mark.parametrize("budget", [0.1, 0.5, 1, 7])
def test_the_budget_is_kept_and_the_graph_stays_a_graph(name: str, budget: float) -> None:
    edges = undirected_pairs(DATA).shape[1]
    flips = ATTACKS[name](DATA, budget, 0)
    assert 0 < len(flips) <= (budget if isinstance(budget, int) else int(budget * edges))
    assert bool((flips.pairs[0] < flips.pairs[1]).all())
    assert len(torch.unique(flips.pairs, dim=1).T) == len(flips)
    changed = flips.apply(DATA)
    assert changed.is_undirected()
    assert not changed.has_self_loops()
    assert changed.is_coalesced()
    assert undirected_pairs(changed).shape[1] == edges + flips.num_added(DATA) - flips.num_removed(DATA)


@attacks
def test_the_input_and_the_callers_random_state_are_left_alone(name: str) -> None:
    data, state = DATA.clone(), torch.get_rng_state()
    ATTACKS[name](data, 0.1, 0).apply(data)
    assert data.keys() == DATA.keys()
    assert all(torch.equal(data[key], DATA[key]) for key in DATA.keys())  # noqa: SIM118
    assert torch.equal(torch.get_rng_state(), state)


@attacks
def test_the_same_seed_gives_the_same_flips_and_another_gives_others(name: str) -> None:
    one, same, other = (ATTACKS[name](DATA, 0.2, seed) for seed in (0, 0, 1))
    assert torch.equal(one.pairs, same.pairs)
    assert one.provenance == same.provenance
    if name not in ("pgd", "minmax"):  # whose seed decides the last draw alone, which may lose to the likeliest flips
        assert not torch.equal(one.pairs, other.pairs)


@attacks
def test_provenance_names_attack_budget_and_seed(name: str) -> None:
    assert (
        dict(ATTACKS[name](DATA, 0.1, 3).provenance).items() >= {"attack": name, "budget": "0.1", "seed": "3"}.items()
    )


def _loss_after(flips: EdgeFlips) -> float:
    """The tanh margin of the attacked nodes, which every loss of the attacks raises."""
    changed = flips.apply(DATA)
    logits = VICTIM.eval()(changed.x, changed.edge_index)[TRAIN].detach()
    index = LABELS[TRAIN][:, None]
    margin = logits.scatter(1, index, -torch.inf).amax(1) - logits.gather(1, index)[:, 0]
    return float(margin.tanh().mean())


@pytest.mark.parametrize("name", sorted({*ATTACKS} - {"random", "dice", "metattack", "minmax"}))
def test_an_attack_on_the_victim_beats_as_many_random_flips(name: str) -> None:
    attacked = _loss_after(ATTACKS[name](DATA, 0.2, 0))
    assert attacked > max(_loss_after(random_flips(DATA, budget=0.2, seed=seed)) for seed in range(10))


@attacks
def test_bad_budgets_and_graphs_are_refused(name: str) -> None:
    for bad in (0, 0.0, 1.5, 10_000):
        with pytest.raises(ValueError, match="budget"):
            ATTACKS[name](DATA, bad, 0)
    empty = Data(x=DATA.x, y=DATA.y, edge_index=torch.zeros(2, 0, dtype=torch.int64))
    with pytest.raises(DataError, match="no edges"):
        ATTACKS[name](empty, 0.1, 0)


@attacks
def test_labels_are_those_given_and_the_graph_s_own_are_not_looked_at(name: str) -> None:
    other = DATA.clone()
    other.y = (DATA.y + 1) % 7
    assert torch.equal(ATTACKS[name](DATA, 0.2, 0).pairs, ATTACKS[name](other, 0.2, 0).pairs)
    del other.y
    assert torch.equal(ATTACKS[name](DATA, 0.2, 0).pairs, ATTACKS[name](other, 0.2, 0).pairs)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6), share=st.floats(0.1, 0.9), count=st.integers(1, 12), name=st.sampled_from([*ATTACKS])
)
def test_on_any_graph_flips_are_different_pairs_within_the_budget(
    seed: int, share: float, count: int, name: str
) -> None:
    g = torch.Generator().manual_seed(seed)
    upper = (torch.rand(60, 60, generator=g) < share / 6).triu(1)
    upper[0, 1] = True
    edges = (upper | upper.T).nonzero().T
    data = Data(x=torch.rand(60, 20, generator=g), y=LABELS, edge_index=edges)
    budget = min(count, edges.shape[1] // 2)
    flips = ATTACKS[name](data, budget, seed)
    assert 0 < len(flips) <= budget
    assert bool((flips.pairs[0] < flips.pairs[1]).all())
    assert flips.apply(data).is_undirected()
