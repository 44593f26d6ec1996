import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GCNConv

import wtawp
from wtawp.attacks import attack, attack_names, attack_spec, dice, metattack, pgd, self_training_labels
from wtawp.base import WtawpError, progress_receiver, rng
from wtawp.graphs import EdgeFlips, FeatureFlips, GraphFlips, citation
from wtawp.models import GCN

DATA = citation(seed=0, num_nodes=80, num_words=40)
NODES = torch.arange(30)
VICTIM = GCN(40, 7, hidden=(8,), generator=rng("victim"))
FEW = {name: {"steps": 3} for name in ("pgd", "minmax", "prbcd", "grbcd", "lrbcd", "metattack")}
FEW |= {"pgd-features": {"steps": 3}, "prbcd-features": {"steps": 3}, "nettack": {"likelihood_cutoff": None}}
FEW["meta-pgd"] = {"steps": 3, "training_steps": 3, "samples": 2, "block_size": 500}
FEW["strongest"] = {"steps": 3, "restarts": 1, "block_size": 500}
KINDS = {"edges": EdgeFlips, "features": FeatureFlips, "edges and features": GraphFlips}
FEW["prbcd"] = FEW["grbcd"] = {"steps": 3, "block_size": 500}


@pytest.mark.parametrize("method", attack_names())
def test_every_method_gives_flips_within_the_budget_and_leaves_the_victim_alone(method: str) -> None:
    VICTIM.train()
    nodes = NODES[:1] if attack_spec(method).has_one_target else NODES
    flips = attack(DATA, VICTIM, method=method, budget=5, nodes=nodes, **FEW.get(method, {}))
    assert type(flips) is KINDS[attack_spec(method).changes]
    assert 1 <= len(flips) <= 5
    assert dict(flips.provenance)["attack"] == method
    assert VICTIM.training
    again = attack(DATA, VICTIM, method=method, budget=5, nodes=nodes, **FEW.get(method, {}))
    assert torch.equal(flips.apply(DATA).edge_index, again.apply(DATA).edge_index)
    assert torch.equal(flips.apply(DATA).x, again.apply(DATA).x)


@pytest.mark.parametrize("method", [*sorted(FEW), "fga"])
def test_every_step_of_a_long_attack_is_reported(method: str) -> None:
    shares: list[float] = []
    nodes = NODES[:1] if attack_spec(method).has_one_target else NODES
    with progress_receiver(shares.append, interval=0.0):
        attack(DATA, VICTIM, method=method, budget=5, nodes=nodes, **FEW.get(method, {}))
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
    with pytest.raises(ValueError, match=r"attack must be one of random, dice, pgd, .* got 'nettak'; did you mean"):
        attack(DATA, VICTIM, method="nettak", budget=5, nodes=NODES)


def test_a_budget_may_be_left_out_where_the_attack_has_a_default() -> None:
    degree = int((DATA.edge_index[0] == 3).sum())
    flips = attack(DATA, VICTIM, method="nettack", nodes=[3], likelihood_cutoff=None)
    assert 1 <= len(flips) <= degree + 2
    for method in ("pgd", "random", "fga"):
        with pytest.raises(ValueError, match=f"attack '{method}' needs a budget"):
            attack(DATA, VICTIM, method=method, nodes=NODES)
    with pytest.raises(ValueError, match="one node at a time, got 30 nodes"):
        attack(DATA, VICTIM, method="nettack", nodes=NODES)


def test_a_victim_that_keeps_the_first_graph_is_refused() -> None:
    keeps = GCNConv(40, 7, cached=True)
    with pytest.raises(WtawpError, match="cached=False"):
        attack(DATA, keeps, method="pgd", budget=5, nodes=NODES)
    assert len(attack(DATA, keeps, method="random", budget=5)) == 5  # does not use it
