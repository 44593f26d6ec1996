from collections.abc import Callable
from dataclasses import replace

from wtawp.experiments.results.distinct import distinct_judged, distinct_pairs
from wtawp.experiments.results.summary import summarise
from wtawp.experiments.spec import Plan, Record


def test_what_stands_in_two_tables_is_listed_once(poisoned_plan: Plan, poisoned_records: list[Record]) -> None:
    cells = tuple(replace(cell, printed=(91.0, 1.0)) for cell in poisoned_plan.cells)
    reports = {name: summarise(replace(poisoned_plan, name=name, cells=cells), poisoned_records) for name in "ab"}
    assert len(distinct_judged(reports, ["a"], attacked=False)) == 4
    assert distinct_judged(reports, ["a", "b"], attacked=False) == distinct_judged(reports, ["a"], attacked=False)
    attacked = distinct_judged(reports, ["a", "b"], attacked=True)
    assert [(c.cell.row, c.cell.column) for c in attacked] == [("GCN", "5 %"), ("GCN+WT-AWP", "5 %")]
    pairs = [(pair.column, is_attacked) for pair, is_attacked in distinct_pairs(reports, ["a", "b"])]
    assert pairs == [("no attack", False), ("5 %", True)]


def test_what_is_not_judged_is_left_out(small_plan: Plan, make_records: Callable[..., list[Record]]) -> None:
    first, *others = small_plan.cells
    plan = replace(small_plan, cells=(replace(first, judged=False), *others))
    found = distinct_judged({"a": summarise(plan, make_records(plan))}, ["a"], attacked=False)
    assert [(c.cell.row, c.cell.column) for c in found] == [("WT-AWP", "cora"), ("GCN", "karate"), ("WT-AWP", "karate")]
