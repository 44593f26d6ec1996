import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from wtawp.attacks import (
    AttackRequest,
    AttackSpec,
    attack_names,
    attack_spec,
    dice,
    metattack_many,
    minmax,
    pgd_many,
    random_flips,
)
from wtawp.base import AttackError, resolve, rng
from wtawp.graphs import EdgeFlips, citation
from wtawp.models import GCN

DATA = citation(seed=0, num_nodes=60, num_words=20)
VICTIMS = [GCN(20, 7, hidden=(8,), generator=rng("victim", i)) for i in range(3)]
TRAIN, REST = torch.arange(0, 60, 3), torch.tensor([i for i in range(60) if i % 3])
REQUEST = AttackRequest(
    data=DATA, victims=VICTIMS, budget=4, nodes=[REST] * 3, labels=[DATA.y, (DATA.y + 1) % 7, DATA.y],
    seeds=[1000, 1001, 2000], split_seeds=[1, 1, 2], trains=[TRAIN] * 3,
)  # fmt: skip


def same(found: list[EdgeFlips], expected: list[EdgeFlips]) -> bool:
    return [(f.pairs.tolist(), f.provenance) for f in found] == [(f.pairs.tolist(), f.provenance) for f in expected]


@pytest.mark.parametrize("name", attack_names())
def test_options_are_those_of_the_function_and_cover_the_protocol(name: str) -> None:
    spec = attack_spec(name)
    function = resolve(str(spec.function))
    passed = {"train", "unlabelled", "objective", "progress", "surrogate", "weights", "budget"}
    taken = set(function.__kwdefaults__ or {}) - passed
    assert set(spec.options) == taken
    assert all(function.__kwdefaults__[option] == default for option, default in spec.options.items())
    protocol = {*dict(spec.poisoning_options), *dict(spec.evasion_options)} - {"nodes", "labels"}
    assert protocol <= set(spec.options)


def test_attacks_without_a_victim_are_run_once_for_each_split() -> None:
    of_splits = [random_flips(DATA, budget=4, seed=seed) for seed in (1, 2)]
    assert same(attack_spec("random").run(REQUEST), [of_splits[0], of_splits[0], of_splits[1]])
    of_splits = [dice(DATA, budget=4, labels=DATA.y, seed=seed) for seed in (1, 2)]  # those of a split's first victim
    assert same(attack_spec("dice").run(REQUEST), [of_splits[0], of_splits[0], of_splits[1]])


def test_attacks_on_victims_use_the_seed_of_each() -> None:
    many = {"budget": 4, "labels": REQUEST.labels, "seeds": REQUEST.seeds, "steps": 3}
    assert same(attack_spec("pgd").run(REQUEST, steps=3), pgd_many(DATA, VICTIMS, nodes=[REST] * 3, **many))  # type: ignore[arg-type]
    assert same(
        attack_spec("metattack").run(REQUEST, steps=3),
        metattack_many(DATA, trains=[TRAIN] * 3, unlabelled=[REST] * 3, **many),  # type: ignore[arg-type]
    )
    each = [
        minmax(DATA, victim, budget=4, nodes=REST, labels=labels, seed=seed, steps=3)
        for victim, labels, seed in zip(VICTIMS, REQUEST.labels, REQUEST.seeds, strict=True)
    ]
    assert same(attack_spec("minmax").run(REQUEST, steps=3), each)


def test_a_users_attack_may_ask_for_the_training_nodes() -> None:
    def spy(data: Data, *, train: Tensor, seed: int) -> EdgeFlips:
        return EdgeFlips.of(train[:2, None], int(data.num_nodes), (("seed", str(seed)),))

    spec = AttackSpec(name="spy", label="Spy", function=spy, needs="training", stages=("poisoning",))
    assert [f.pairs.flatten().tolist() for f in spec.run(REQUEST)] == [[0, 3]] * 3
    alone = AttackRequest.single(DATA, VICTIMS[0], budget=1, nodes=REST, labels=DATA.y, seed=0)
    for needs_training in (spec, attack_spec("metattack")):
        with pytest.raises(ValueError, match="needs the training nodes"):
            needs_training.run(alone)


def test_more_flips_than_the_budget_allows_are_an_error() -> None:
    def greedy(data: Data, *, seed: int) -> EdgeFlips:
        return random_flips(data, budget=9, seed=seed)

    spec = AttackSpec(name="greedy", label="Greedy", function=greedy, needs="nothing")
    request = AttackRequest.single(DATA, None, budget=2, nodes=REST, labels=DATA.y, seed=0)
    with pytest.raises(AttackError, match="'greedy' returned 9 flips, but its budget is 2"):
        spec.run(request)


@pytest.mark.parametrize("result", [torch.zeros(2, 1, dtype=torch.long), None])
def test_an_attack_must_return_flips(result: Tensor | None) -> None:
    spec = AttackSpec(name="mine", label="Mine", function=lambda data: result, needs="nothing")  # noqa: ARG005
    request = AttackRequest.single(DATA, None, budget=2, nodes=REST, labels=DATA.y, seed=0)
    expected = rf"'mine' must return EdgeFlips, .* got {type(result).__name__}; build them with EdgeFlips\.of\(pairs, "
    with pytest.raises(AttackError, match=expected):
        spec.run(request)


def test_an_attack_on_many_victims_must_return_flips_for_each() -> None:
    for result, got in (([random_flips(DATA, budget=1, seed=0)], "list of 1"), (None, "NoneType")):
        spec = AttackSpec(name="many", label="Many", function=random_flips, run_many=lambda _, result=result: result)
        with pytest.raises(AttackError, match=f"'many' must return a list with flips for each of 3 victims, got {got}"):
            spec.run(REQUEST)
