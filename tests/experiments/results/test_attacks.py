from collections.abc import Callable
from dataclasses import replace

import pytest

from wtawp.attacks import AttackOutcome
from wtawp.core import AwpConfig
from wtawp.experiments.plans.catalogue import plan as plan_of_the_paper
from wtawp.experiments.plans.robustness import attack_plan
from wtawp.experiments.results.attacks import AttackWins, attack_wins, weakness_note
from wtawp.experiments.results.summary import summarise
from wtawp.experiments.spec import Plan, Record, Setting

MakeRecords = Callable[..., list[Record]]
HOW = {"awp": AwpConfig(rho=1.0, lam=0.7), "poison": False, "adaptive": True, "splits": 2, "inits": 1}
OUTCOMES = {  # by row and split
    ("GCN", 0): AttackOutcome("A", {"A": 0.5, "B": 0.6}),
    ("GCN", 1): AttackOutcome("A", {"A": 0.4}, {"B": "no gradient"}),
    ("GCN+WT-AWP", 0): AttackOutcome("B", {"A": 0.7, "B": 0.6}),
    ("GCN+WT-AWP", 1): AttackOutcome("A", {"A": 0.5, "B": 0.8}),
}


def plan_with(attack: str, **options: str) -> Plan:
    return attack_plan(Setting(dataset="wine"), attack, [0.05], options=options, **HOW)  # type: ignore[arg-type]


def test_wins_accuracies_and_reasons_are_counted_in_each_cell(make_records: MakeRecords) -> None:
    plan, records = plan_with("strongest"), []
    for record in make_records(plan):
        row = "GCN+WT-AWP" if record.setting.get("awp") else "GCN"
        outcome = OUTCOMES[row, record.split]
        provenance = [["seed", "0"], *([name, value] for name, value in outcome.provenance())]
        records.append(replace(record, measured=[{"accuracy": 0.4, "provenance": provenance}]))
    assert attack_wins(summarise(plan, records)) == [
        AttackWins("GCN", "5 %", "A", 2, 2, pytest.approx(45.0), ()),
        AttackWins("GCN", "5 %", "B", 0, 2, pytest.approx(60.0), (("no gradient", 1),)),
        AttackWins("GCN+WT-AWP", "5 %", "A", 1, 2, pytest.approx(60.0), ()),
        AttackWins("GCN+WT-AWP", "5 %", "B", 1, 2, pytest.approx(70.0), ()),
    ]


def test_records_of_a_single_attack_name_no_winner(make_records: MakeRecords) -> None:
    plan = plan_with("pgd")
    single = [replace(r, measured=[{"accuracy": 0.4, "provenance": [["attack", "pgd"]]}]) for r in make_records(plan)]
    assert attack_wins(summarise(plan, single)) == []
    assert attack_wins(summarise(plan, [])) == []


def test_only_tables_that_rest_on_the_papers_attack_are_called_weak() -> None:
    assert "weak" in weakness_note(plan_with("pgd"))
    assert "weak" in weakness_note(plan_with("pgd", loss="ce"))
    assert "weak" in weakness_note(plan_of_the_paper("tab:evasion"))
    for strong in (plan_with("pgd", loss="tanh_margin"), plan_with("prbcd"), plan_with("strongest")):
        assert weakness_note(strong) == ""
    assert weakness_note(plan_of_the_paper("extra:attacks")) == "", "it has PRBCD beside PGD"
    assert weakness_note(plan_of_the_paper("tab:natacc")) == ""
    assert "weak" in weakness_note(plan_of_the_paper("tab:poison")), "half of its columns are PGD's"
    assert weakness_note(plan_of_the_paper("tab:dicepoison")) == ""
