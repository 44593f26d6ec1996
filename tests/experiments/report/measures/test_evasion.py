from collections.abc import Callable
from dataclasses import replace

import pytest

from wtawp.attacks import AttackOutcome
from wtawp.experiments.plans.robustness import attack_plan
from wtawp.experiments.report.contents import tables_of
from wtawp.experiments.report.export import export_data
from wtawp.experiments.report.html import render_html
from wtawp.experiments.report.measures.evasion import winner_tables
from wtawp.experiments.results.summary import PlanReport, summarise
from wtawp.experiments.spec import Record, Setting

MakeRecords = Callable[..., list[Record]]


@pytest.fixture
def report(make_records: MakeRecords) -> PlanReport:
    plan = attack_plan(
        Setting(dataset="wine"), "strongest", [0.05], awp=None, poison=False, adaptive=True, splits=3, inits=1
    )
    records = []
    for record in make_records(plan):
        skipped = {"PGD": "it takes no edge_weight"} if record.split == 2 else {}
        accuracies = {"PRBCD": 0.5, "PGD": 0.25 * (1 + record.split)}
        outcome = AttackOutcome("PGD" if record.split == 0 else "PRBCD", {
            name: each for name, each in accuracies.items() if name not in skipped
        }, skipped)  # fmt: skip
        provenance = [list(entry) for entry in outcome.provenance()]
        records.append(replace(record, measured=[{"accuracy": 0.4, "provenance": provenance}]))
    return summarise(plan, records)


def test_the_table_says_which_attack_won_and_which_could_not_be_applied(report: PlanReport) -> None:
    (table,) = winner_tables(report)
    assert table in tables_of(report)
    assert [[entry.text for entry in row] for row in table.rows] == [
        ["GCN", "5 %", "PGD", "1 of 3", "37.50", "in 1 of 3: it takes no edge_weight"],
        ["GCN", "5 %", "PRBCD", "2 of 3", "50.00", "–"],  # noqa: RUF001
    ]
    assert "2 of 3" in render_html([report])
    exported = export_data(report)["attacks"]
    assert isinstance(exported, list)
    assert [(each["attack"], each["won"]) for each in exported] == [("PGD", 1), ("PRBCD", 2)]


def test_a_plan_with_a_single_attack_has_no_such_table(make_records: MakeRecords) -> None:
    plan = attack_plan(Setting(dataset="wine"), "pgd", [0.05], awp=None, poison=False, adaptive=True, splits=1, inits=1)
    records = [replace(r, measured=[{"accuracy": 0.4, "provenance": []}]) for r in make_records(plan)]
    report = summarise(plan, records)
    assert winner_tables(report) == []
    assert "attacks" not in export_data(report)
    assert "weak" in tables_of(report)[0].caption
