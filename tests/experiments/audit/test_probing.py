import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.attacks.random_attack import random_flips
from wtawp.attacks.registry import register_attack, unregister_attack
from wtawp.attacks.spec import AttackSpec
from wtawp.core import AwpConfig
from wtawp.experiments.audit.probing import FLATNESS, Abilities, Line, _Prober, audited_attacks, probe
from wtawp.experiments.audit.subject import make_subject
from wtawp.experiments.measures.shared.interface import TrainedModels
from wtawp.experiments.spec import Setting, SplitRule
from wtawp.graphs import EdgeFlips


def abilities_of(reference: str, graph: Path) -> Abilities:
    base = Setting(dataset=str(graph), model=reference, epochs=3, split=SplitRule())
    return probe(make_subject(base, AwpConfig(rho=1.0, lam=0.7)), device="cpu")


def worst_of_some(
    data: Data, victim: nn.Module, *, budget: float, nodes: Tensor, labels: Tensor, seed: int, steps: int = 50
) -> EdgeFlips:
    """The worst of some random flips, by what the victim predicts: a black-box attack."""
    tried = [random_flips(data, budget=budget, seed=seed + step) for step in range(steps)]

    @torch.no_grad()
    def num_right(flips: EdgeFlips) -> int:
        flipped = flips.apply(data)
        return int((victim(flipped.x, flipped.edge_index).argmax(1) == labels)[nodes].sum())

    return min(tried, key=num_right)


@pytest.fixture
def black_box() -> Iterator[AttackSpec]:
    spec = AttackSpec(name="mine", label="Mine", function=worst_of_some, needs="predictions")
    yield register_attack(spec)
    unregister_attack("mine")


def test_attacks_come_from_the_registry_with_those_of_users(black_box: AttackSpec) -> None:
    *others, last = audited_attacks("evasion")
    assert {"random", "DICE", "PGD", "PRBCD"} <= {spec.label for spec in others}
    assert "GRBCD" not in {spec.label for spec in others}
    assert last is black_box
    assert black_box not in audited_attacks("poisoning")


def test_a_model_with_edge_weights_takes_part_in_everything(user_module: str, graph_file: Path) -> None:
    abilities = abilities_of(f"{user_module}:Weighted", graph_file)
    assert abilities.left_out == ()
    assert set(abilities.flatness) == set(FLATNESS)
    assert set(abilities.evasions) == {spec.name for spec in audited_attacks("evasion")}
    assert all(is_adaptive for _, is_adaptive in abilities.evasions.values())
    assert set(abilities.votes) == {"features", "edges"}
    assert abilities.num_edges == 96
    assert abilities.training.each > 0
    assert Abilities.from_json(json.loads(json.dumps(abilities.to_json()))) == abilities


def test_without_edge_weights_gradient_attacks_go_through_a_plain_gcn_and_say_why(
    user_module: str, graph_file: Path, black_box: AttackSpec
) -> None:
    abilities = abilities_of(f"{user_module}:Detached", graph_file)
    line, sees_the_model = abilities.evasions[black_box.name]
    assert sees_the_model
    assert line.each > 0  # its time grows with its steps
    reasons = dict(abilities.left_out)
    by_gradient = [spec for spec in audited_attacks("evasion") if spec.uses_gradient]
    assert len(by_gradient) >= 2
    for spec in audited_attacks("evasion"):
        assert abilities.evasions[spec.name][1] == (spec not in by_gradient)
    for spec in by_gradient:
        assert "takes no edge_weight" in reasons[f"{spec.label} on the model itself"]
    assert "smoothness by edges" in reasons
    assert "smoothness by features" in reasons
    assert {"sharpness", "loss landscape"} <= set(abilities.flatness)


def test_a_model_that_keeps_its_first_graph_is_neither_attacked_nor_certified(
    user_module: str, graph_file: Path
) -> None:
    abilities = abilities_of(f"{user_module}:Cached", graph_file)
    assert abilities.evasions == {}
    assert abilities.votes == {}
    reasons = dict(abilities.left_out)
    assert all("cached" in reasons[what] for what in ("random", "DICE", "certificate on edges"))
    assert {"sharpness", "loss landscape"} <= set(abilities.flatness)


def test_a_line_is_a_fixed_time_and_one_for_each_unit() -> None:
    assert [Line(2.0, 0.5).at(size) for size in (0, 1, 10)] == [2.0, 2.5, 7.0]


def fail(error: Exception) -> None:
    raise error


def test_exhausted_memory_stops_the_trials_and_is_not_noted_as_a_refusal() -> None:
    prober = _Prober(TrainedModels([], Data(), "wine", [], [], "GCN"), None)
    with prober._trying("what is refused"):
        fail(RuntimeError("this model has no such gradient"))
    assert prober.left_out == [("what is refused", "this model has no such gradient")]
    with pytest.raises(RuntimeError) as of_the_cpu:
        torch.empty(10**15)
    for error in (torch.OutOfMemoryError("CUDA out of memory"), of_the_cpu.value):
        with pytest.raises(RuntimeError, match="memory") as raised, prober._trying("PGD"):
            fail(error)
        assert "while trying PGD" in raised.value.__notes__[0]
    assert len(prober.left_out) == 1
