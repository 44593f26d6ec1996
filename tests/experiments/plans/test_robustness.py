from typing import Any

import pytest

from wtawp.attacks.registry import attack_spec
from wtawp.core import AwpConfig
from wtawp.experiments.measures.shared.registry import options_of
from wtawp.experiments.plans.robustness import attack_plan, budget_name, evading, targeting
from wtawp.experiments.spec import Setting

BASE = Setting(dataset="wine", model="GCNSVD", epochs=20)
HOW = {"awp": AwpConfig(rho=0.5, lam=0.5), "splits": 2, "inits": 1}


def test_an_evasion_trains_each_model_once_and_attacks_it_at_every_budget() -> None:
    plan = attack_plan(BASE, "pgd", [0.05, 0.1, 0.05], poison=False, adaptive=True, **HOW)
    assert [c.column for c in plan.cells] == ["no attack", "5 %", "10 %"] * 2
    assert len(plan.runs()) == 4
    assert [c.measure for c in plan.cells[:3]] == [None, 0, 1]
    assert plan.pairs == (("GCNSVD", "GCNSVD+WT-AWP"),)
    transferred = attack_plan(BASE, "pgd", [0.05], poison=False, adaptive=False, **HOW)
    assert dict(transferred.cells[1].setting.measures[0].options)["adaptive"] is False


def test_poisoned_rows_share_a_plain_gcn_as_surrogate_or_have_their_own() -> None:
    plain, adaptive = (attack_plan(BASE, "pgd", [0.05], poison=True, adaptive=how, **HOW) for how in (False, True))
    surrogates = {c.setting.surrogate for c in plain.cells if c.setting.poison is not None}
    assert [(s.model, s.options, s.select_on) for s in surrogates if s] == [("GCN", (("hidden", (16,)),), "last")]
    assert {s.model for c in adaptive.cells if (s := c.setting.surrogate)} == {"GCNSVD"}


def test_an_adaptive_attack_on_trainings_is_on_the_model_with_its_options() -> None:
    def surrogate(adaptive: bool, **options: Any) -> Setting:
        base = Setting(dataset="wine", options=tuple(options.items()))
        plan = attack_plan(base, "meta-pgd", [0.05], poison=True, adaptive=adaptive, **HOW)
        (one,) = {setting for c in plan.cells if (setting := c.setting.surrogate) is not None}
        return one

    assert surrogate(adaptive=True, hidden=(8, 8), norm="batch").options == (("hidden", (8, 8)), ("norm", "batch"))
    assert surrogate(adaptive=True).options == ()  # those of the registry: 64 hidden units
    assert surrogate(adaptive=False, hidden=(8, 8)).options == (("hidden", (16,)),)
    assert surrogate(adaptive=True, hidden=(16,)) == surrogate(adaptive=False)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="attack must be one of random, dice"):
        attack_plan(BASE, "fgsm", [0.05], poison=False, adaptive=True, **HOW)
    with pytest.raises(ValueError, match="budgets must be all shares"):
        attack_plan(BASE, "pgd", [0.05, 1], poison=False, adaptive=True, **HOW)
    with pytest.raises(ValueError, match=r"metattack attacks the training, .* ask for poisoning"):
        attack_plan(BASE, "metattack", [0.05], poison=False, adaptive=True, **HOW)


def test_the_loss_of_pgd_on_features_is_part_of_the_key_since_its_default_has_changed() -> None:
    assert attack_spec("pgd-features").options["loss"] == "tanh_margin"
    for measure in (evading("pgd-features", 0.01), targeting("pgd-features", 3, 5)):
        assert dict(measure.options)["loss"] == "tanh_margin"
    assert dict(evading("pgd-features", 0.01, loss="margin").options)["loss"] == "margin"
    assert dict(targeting("fga", 3, 5).options).keys() == {"attack", "budget", "targets"}


def test_budgets_are_told_as_people_say_them() -> None:
    assert [budget_name(b) for b in (0.05, 0.075, 253)] == ["5 %", "7.5 %", "253 edges"]


def test_attacks_on_single_nodes_show_the_accuracy_of_their_targets() -> None:
    how = {"awp": None, "poison": False, "adaptive": True, "splits": 2, "inits": 1}
    base = Setting(dataset="wine")
    plan = attack_plan(base, "nettack", [None, 3], **how)  # type: ignore[arg-type]
    columns = ["all test nodes, no attack", "targets, degree + 2 flips each", "targets, 3 flips each"]
    assert [cell.column for cell in plan.cells] == columns
    assert plan.cells[0].setting.measures == (targeting("nettack", None, 40), targeting("nettack", 3, 40))
    assert all(cell.attack is None for cell in plan.cells)
    fewer = attack_plan(base, "fga", [3], targets=5, **how)  # type: ignore[arg-type]
    assert fewer.cells[1].setting.measures == (targeting("fga", 3, 5),)
    assert attack_plan(base, "pgd-features", [4], **how).cells[1].column == "4 features"  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="fga needs a budget"):
        attack_plan(base, "fga", [None], **how)  # type: ignore[arg-type]


def test_options_of_attacks_on_single_nodes_reach_the_attack() -> None:
    how = {"awp": None, "poison": False, "adaptive": True, "splits": 1, "inits": 1}
    base = Setting(dataset="wine")
    options = {"direct": False, "influencers": 3}
    plan = attack_plan(base, "nettack", [None, 3], options=options, **how)  # type: ignore[arg-type]
    wanted = tuple(targeting("nettack", budget, 40, direct=False, influencers=3) for budget in (None, 3))
    assert all(cell.setting.measures == wanted for cell in plan.cells)
    fewer = attack_plan(base, "fga", [2], targets=5, options={"loss": "margin"}, **how)  # type: ignore[arg-type]
    assert fewer.cells[0].setting.measures == (targeting("fga", 2, 5, loss="margin"),)
    measure = attack_plan(base, "nettack", [3], options={"no_such_option": 3}, **how)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nettack has no option 'no_such_option'; it has attack, budget"):
        options_of(measure.cells[0].setting.measures[0])


@pytest.mark.parametrize(("attack", "targets"), [("nettack", None), ("fga", 5)])
def test_attacks_on_single_nodes_refuse_a_surrogate_and_poisoning(attack: str, targets: int | None) -> None:
    how = {"awp": None, "targets": targets, "splits": 1, "inits": 1}
    base = Setting(dataset="wine")
    with pytest.raises(ValueError, match="single nodes always attack the model itself; leave out --no-adaptive"):
        attack_plan(base, attack, [3], poison=False, adaptive=False, **how)  # type: ignore[arg-type]
    for adaptive in (True, False):
        with pytest.raises(ValueError, match="poisoning single nodes would need a training for each"):
            attack_plan(base, attack, [3], poison=True, adaptive=adaptive, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(("attack", "name"), [("pgd", "budget"), ("nettack", "targets"), ("dice", "attack")])
def test_an_argument_is_no_option_of_an_attack(attack: str, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is no option of an attack; use the argument {name} instead"):
        attack_plan(BASE, attack, [3], poison=False, adaptive=True, options={name: 3}, **HOW)


def test_options_of_an_attack_take_precedence_over_those_of_its_protocol() -> None:
    how: dict[str, Any] = {"awp": None, "splits": 1, "inits": 1}
    base = Setting(dataset="wine")
    plan = attack_plan(base, "pgd", [0.1], poison=True, adaptive=False, options={"surrogate": "GAT"}, **how)
    poison = plan.cells[1].setting.poison
    assert poison is not None
    assert dict(poison.options)["surrogate"] == "GAT"
    assert plan.title.endswith("by the gradient of GAT")
    plans = [
        attack_plan(base, "pgd", [0.1], poison=False, adaptive=adaptive, options=options, **how)
        for adaptive, options in ((False, {}), (False, {"adaptive": False}), (True, {"adaptive": False}))
    ]
    assert plans[0] == plans[1] == plans[2]
    assert dict(plans[0].cells[1].setting.measures[0].options)["adaptive"] is False
