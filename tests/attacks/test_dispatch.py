import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GCNConv

import wtawp
from wtawp.attacks import attack, attack_names, dice, metattack, pgd, self_training_labels
from wtawp.base import WtawpError, progress_receiver, rng
from wtawp.graphs import EdgeFlips, citation
from wtawp.models import GCN

DATA = citation(seed=0, num_nodes=80, num_words=40)
NODES = torch.arange(30)
VICTIM = GCN(40, 7, hidden=(8,), generator=rng("victim"))
FEW = {name: {"steps": 3} for name in ("pgd", "minmax", "prbcd", "grbcd", "lrbcd", "metattack")}
FEW["strongest"] = {"steps": 3, "restarts": 1, "block_size": 500}
FEW["prbcd"] = FEW["grbcd"] = {"steps": 3, "block_size": 500}


@pytest.mark.parametrize("method", attack_names())
def test_every_method_gives_flips_within_the_budget_and_leaves_the_victim_alone(method: str) -> None:
    VICTIM.train()
    flips = attack(DATA, VICTIM, method=method, budget=5, nodes=NODES, **FEW.get(method, {}))
    assert isinstance(flips, EdgeFlips)
    assert 1 <= len(flips) <= 5
    assert dict(flips.provenance)["attack"] == method
    assert VICTIM.training
    again = attack(DATA, VICTIM, method=method, budget=5, nodes=NODES, **FEW.get(method, {}))
    assert torch.equal(flips.pairs, again.pairs)


@pytest.mark.parametrize("method", sorted(FEW))
def test_every_step_of_a_long_attack_is_reported(method: str) -> None:
    shares: list[float] = []
    with progress_receiver(shares.append, interval=0.0):
        attack(DATA, VICTIM, method=method, budget=5, nodes=NODES, **FEW[method])
    assert shares == sorted(shares)
    assert len(set(shares)) >= 3
    assert all(0.0 <= share <= 1.0 for share in shares)


def test_the_names_stand_for_the_functions() -> None:
    def equal(one: EdgeFlips, other: EdgeFlips) -> bool:
        return torch.equal(one.pairs, other.pairs)

    how: dict[str, object] = {"budget": 5, "seed": 1}
    labels: Tensor = (DATA.y + 1) % 7
    assert equal(
        attack(DATA, VICTIM, nodes=NODES, labels=labels, method="pgd", steps=3, **how),  # type: ignore[arg-type]
        pgd(DATA, VICTIM, nodes=NODES, labels=labels, steps=3, **how),  # type: ignore[arg-type]
    )
    assert equal(
        attack(DATA, VICTIM, method="dice", nodes=NODES, **how),  # type: ignore[arg-type]
        dice(DATA, labels=DATA.y, **how),  # type: ignore[arg-type]
    )
    guessed = self_training_labels(VICTIM.eval()(DATA.x, DATA.edge_index), DATA.y, NODES)
    assert equal(
        attack(DATA, VICTIM, method="metattack", nodes=NODES, steps=3, **how),  # type: ignore[arg-type]
        metattack(DATA, train=NODES, labels=guessed, steps=3, **how),  # type: ignore[arg-type]
    )
    some = torch.arange(40, 60)
    assert equal(
        attack(DATA, VICTIM, method="metattack", nodes=NODES, steps=3, unlabelled=some, **how),  # type: ignore[arg-type]
        metattack(DATA, train=NODES, labels=guessed, steps=3, unlabelled=some, **how),  # type: ignore[arg-type]
    )
    everything = torch.ones(80, dtype=torch.bool)
    assert equal(
        attack(DATA, VICTIM, method="metattack", nodes=everything, steps=3, lam=1.0, **how),  # type: ignore[arg-type]
        metattack(DATA, train=everything, labels=DATA.y, steps=3, lam=1.0, **how),  # type: ignore[arg-type]
    )


def test_it_is_at_the_front_door_and_refuses_other_names() -> None:
    assert wtawp.attack is attack
    with pytest.raises(ValueError, match=r"attack must be one of random, dice, pgd, .* got 'nettack'"):
        attack(DATA, VICTIM, method="nettack", budget=5, nodes=NODES)


def test_a_victim_that_keeps_the_first_graph_is_refused() -> None:
    keeps = GCNConv(40, 7, cached=True)
    with pytest.raises(WtawpError, match="cached=False"):
        attack(DATA, keeps, method="pgd", budget=5, nodes=NODES)
    assert len(attack(DATA, keeps, method="random", budget=5)) == 5  # does not use it
