from collections.abc import Iterator
from importlib import import_module

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

from wtawp.attacks import (
    AttackOutcome,
    AttackRequest,
    AttackSpec,
    attack_names,
    attack_spec,
    random_flips,
    register_attack,
    strongest,
    unregister_attack,
)
from wtawp.attacks.strongest_attack import run_strongest
from wtawp.base import AttackError, isolated_rng, rng
from wtawp.graphs import EdgeFlips, citation, stratified
from wtawp.models import GCN, MLP
from wtawp.training import evaluate, fit

DATA = citation(seed=0, num_nodes=60, num_words=20)
SPLIT = stratified(DATA.y, seed=0, train=0.3, val=0.2)
FEW = {"steps": 4, "block_size": 600}


@pytest.fixture(scope="module")
def victim() -> GCN:
    model = GCN(20, 7, hidden=(8,), generator=rng("victim"))
    fit(model, DATA, SPLIT, seed=0, epochs=30)
    return model


class Sage(nn.Module):
    """A victim that takes no edge weights but uses the graph."""

    def __init__(self) -> None:
        super().__init__()
        with isolated_rng("sage"):
            self.conv = SAGEConv(20, 7)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.conv(x, edge_index)
        return out


def outcome_of(flips: EdgeFlips) -> AttackOutcome:
    outcome = AttackOutcome.of(flips.provenance)
    assert outcome is not None
    return outcome


def members() -> Iterator[tuple[AttackSpec, dict[str, object]]]:
    """Every attack that takes part, with its options."""
    for name in attack_names("evasion"):
        for variant in attack_spec(name).strong_variants:
            options = {**dict(variant), "steps": FEW["steps"]}
            yield attack_spec(name), {**options, **({"block_size": 600} if "block_size" in options else {})}


def test_it_is_at_least_as_strong_as_each_of_its_members(victim: GCN) -> None:
    common = {"budget": 6, "nodes": SPLIT.test, "labels": DATA.y, "seed": 3}
    flips = strongest(DATA, victim, **common, **FEW)  # type: ignore[arg-type]
    accuracy = evaluate(victim, flips.apply(DATA), SPLIT.test)[1]
    outcome = outcome_of(flips)
    assert len(flips) <= 6
    assert accuracy == pytest.approx(min(outcome.accuracies.values()), abs=1e-6)
    assert outcome.accuracies[outcome.winner] == min(outcome.accuracies.values())
    request = AttackRequest.single(DATA, victim, **common)  # type: ignore[arg-type]
    alone = [spec.run(request, **options)[0] for spec, options in members()]
    assert len(alone) >= 4
    assert accuracy <= min(evaluate(victim, each.apply(DATA), SPLIT.test)[1] for each in alone) + 1e-6
    transferred = {"PRBCD on a surrogate", "GRBCD on a surrogate"}
    assert set(outcome.accuracies) == {"PGD, tanh_margin", "PGD, ce", "PRBCD", "GRBCD", "EvA"} | transferred


def test_flips_of_a_surrogate_are_tried_so_that_no_transfer_is_stronger(victim: GCN) -> None:
    surrogate = GCN(20, 7, hidden=(8,), generator=rng("another"))
    fit(surrogate, DATA, SPLIT, seed=1, epochs=30)
    request = {"budget": 6, "nodes": SPLIT.test, "labels": DATA.y, "seed": 0}
    flips = strongest(DATA, victim, surrogate=surrogate, **request, **FEW)  # type: ignore[arg-type]
    spec = attack_spec("prbcd")
    (transferred,) = spec.run(AttackRequest.single(DATA, surrogate, **request), **FEW)  # type: ignore[arg-type]
    left = evaluate(victim, transferred.apply(DATA), SPLIT.test)[1]
    assert outcome_of(flips).accuracies["PRBCD on a surrogate"] == pytest.approx(left, abs=1e-6)
    assert evaluate(victim, flips.apply(DATA), SPLIT.test)[1] <= left + 1e-6


def test_each_victim_gets_the_flips_that_it_gets_alone_and_its_own_winner(victim: GCN) -> None:
    other = GCN(20, 7, hidden=(8,), generator=rng("other victim"))
    request = AttackRequest(
        data=DATA, victims=[victim, other], budget=4, nodes=[SPLIT.test, SPLIT.val], labels=[DATA.y] * 2,
        seeds=[5, 6], split_seeds=[0, 1],
    )  # fmt: skip
    together = run_strongest(request, restarts=1, transfer=False, **FEW)
    for flips, model, nodes, seed in zip(together, request.victims, request.nodes, request.seeds, strict=True):
        alone = strongest(
            DATA, model, budget=4, nodes=nodes, labels=DATA.y, seed=seed, restarts=1, transfer=False, **FEW
        )
        assert torch.equal(flips.pairs, alone.pairs)
        assert flips.provenance == alone.provenance


def test_a_victim_without_edge_weights_is_attacked_by_its_predictions_and_the_reasons_are_kept() -> None:
    model = Sage()
    flips = strongest(DATA, model, budget=4, nodes=SPLIT.test, labels=DATA.y, seed=0, restarts=1, **FEW)
    outcome = outcome_of(flips)
    assert set(outcome.accuracies) == {"EvA", "PRBCD on a surrogate", "GRBCD on a surrogate"}
    assert set(outcome.skipped) == {"PGD, tanh_margin", "PGD, ce", "PRBCD", "GRBCD"}
    assert all("takes no edge_weight" in reason for reason in outcome.skipped.values())


def test_an_attack_of_a_user_takes_part(victim: GCN) -> None:
    def guess(data: Data, victim: nn.Module, *, budget: int, seed: int) -> EdgeFlips:  # noqa: ARG001
        return random_flips(data, budget=budget, seed=seed)

    register_attack(AttackSpec(name="guess", label="Guess", function=guess, needs="predictions", strong_variants=((),)))
    try:
        options = {"budget": 4, "nodes": SPLIT.test, "labels": DATA.y, "seed": 0, "transfer": False, **FEW}
        outcomes = [outcome_of(strongest(DATA, m, **options)) for m in (Sage(), victim)]  # type: ignore[arg-type]
    finally:
        unregister_attack("guess")
    assert set(outcomes[0].accuracies) == {"EvA", "Guess"}
    assert set(outcomes[1].accuracies) == {"PGD, tanh_margin", "PGD, ce", "PRBCD", "GRBCD", "EvA", "Guess"}


def test_more_restarts_never_leave_more_accuracy(victim: GCN) -> None:
    options = {"budget": 4, "nodes": SPLIT.test, "labels": DATA.y, "seed": 1, "transfer": False, **FEW}
    once, often = (outcome_of(strongest(DATA, victim, restarts=r, **options)) for r in (1, 3))  # type: ignore[arg-type]
    assert all(often.accuracies[name] <= accuracy for name, accuracy in once.accuracies.items())


def test_attacks_that_look_at_all_pairs_are_left_out_of_large_graphs(
    victim: GCN, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("wtawp.attacks.strongest_attack"), "MOST_NODES", 59)
    options = {"budget": 4, "nodes": SPLIT.test, "labels": DATA.y, "seed": 0, "transfer": False, **FEW}
    outcome = outcome_of(strongest(DATA, victim, **options))  # type: ignore[arg-type]
    assert set(outcome.accuracies) == {"PRBCD", "GRBCD", "EvA"}
    assert "60 are more than 59" in outcome.skipped["PGD, ce"]


def test_a_victim_that_cannot_be_attacked_is_an_error_with_reasons(broken: nn.Module) -> None:
    mlp = MLP(20, 7, hidden=(5,), generator=rng("mlp"))
    options = {"budget": 4, "nodes": SPLIT.test, "labels": DATA.y, "seed": 0, **FEW}
    with pytest.raises(AttackError, match="MLP ignores the graph: no flips of EvA, PRBCD on a surrogate"):
        strongest(DATA, mlp, **options)  # type: ignore[arg-type]
    with pytest.raises(AttackError, match=r"none of the attacks can be applied to Broken .*NaN or infinite"):
        strongest(DATA, broken, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"restarts": 0}, "restarts must be >= 1, got 0"),
        ({"steps": 0}, "steps must be >= 1"),
        ({"block_size": 0}, "block_size must be >= 1"),
        ({"budget": 0}, "budget"),
        ({"nodes": torch.tensor([60])}, "nodes must lie in 0 to 59"),
        ({"labels": DATA.y[:3]}, "one for each node"),
    ],
)
def test_bad_arguments_are_refused_and_not_taken_for_attacks_that_cannot_be_applied(
    victim: GCN, change: dict[str, object], message: str
) -> None:
    options = {"budget": 4, "nodes": SPLIT.test, "labels": DATA.y, "seed": 0, **change}
    with pytest.raises(ValueError, match=message):
        strongest(DATA, victim, **options)  # type: ignore[arg-type]
