import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from wtawp.core import AwpConfig
from wtawp.experiments.results.facts import facts
from wtawp.experiments.results.summary import PlanReport, summarise
from wtawp.experiments.spec import Cell, Plan, Record, Setting

MakeRecords = Callable[..., list[Record]]
OF_ROBUSTNESS = "robustness|attacked|pairs|drops|mean gain"
NATACC = ("tab:natacc", "released:natacc")
WT, AUTO = AwpConfig(rho=1.0, lam=0.7), AwpConfig(rho=1.0, lam="auto")


def test_cells_and_pairs_that_stand_in_two_tables_count_once(
    poisoned_plan: Plan, poisoned_records: list[Record]
) -> None:
    cells = tuple(replace(cell, printed=(91.0, 1.0)) for cell in poisoned_plan.cells)
    plan = replace(poisoned_plan, cells=cells)
    names = ("tab:natacc", "tab:poison", "tab:dicepoison", "tab:evasion")
    reports = {name: summarise(replace(plan, name=name), poisoned_records) for name in names}
    found = facts(reports)
    numbers = {name: fact() for name, fact in found.items() if re.match(OF_ROBUSTNESS, name)}
    assert numbers["robustness cells"] == 4
    assert numbers["attacked cells"] == 2
    assert (numbers["robustness cells that agree"], numbers["attacked cells that agree"]) == (1, 0)
    assert (numbers["pairs"], numbers["attacked pairs"], numbers["attacked pairs that gain"]) == (2, 1, 1)
    assert numbers["attacked pairs that gain significantly"] == 1
    assert (numbers["drops"], numbers["drops that are larger"]) == (1, 0)
    assert numbers["drops that are smaller"] + numbers["drops that are undecided"] == 1
    assert numbers["mean gain under attack"] == pytest.approx(3.0)
    assert numbers["mean gain on clean graphs"] == pytest.approx(2.0)


def test_distances_of_repeated_tables_are_those_of_a_loop_over_their_cells(
    small_plan: Plan, make_records: MakeRecords
) -> None:
    off = {"GCN": 0.3, "WT-AWP": -0.1}
    names = ("natacc", "ablation", "evasion")
    reports = {}
    for protocol, factor in (("tab", 1.0), ("released", 2.0)):
        records = make_records(
            small_plan, lambda cell, split, _init, f=factor: cell.printed[0] + f * (off[cell.row] + (split % 2) - 0.5)
        )
        reports |= {f"{protocol}:{name}": summarise(small_plan, records) for name in names}
    found = facts(reports)
    for table in names:
        assert found[f"{table} offset"]() == pytest.approx(0.1)
        assert found[f"{table} distance"]() == pytest.approx(0.2)
        assert found[f"{table} offset, released"]() == pytest.approx(0.2)
        assert found[f"{table} distance, released"]() == pytest.approx(0.4)
        assert found[f"{table} deviation, printed"]() == 0.5
        assert found[f"{table} deviation, released"]() == pytest.approx(2 * found[f"{table} deviation"]())
        assert found[f"{table} cells"]() == found[f"{table} cells, released"]() == 4
        assert found[f"{table} cells that agree"]() == 4
        assert found[f"{table} cells that agree, released"]() == 2
        zs = [c.difference / np.hypot(stats.sem(c.split_means), c.cell.printed[1] / 20**0.5)
              for c in reports[f"tab:{table}"].cells]  # fmt: skip
        assert found[f"{table} cells beyond two errors"]() == sum(abs(z) > 2 for z in zs)
        assert found[f"{table} cells that differ beyond two errors"]() == 0
        # As if the method did nothing: 84.3 for 85 and 70.3 for 70.2.
        assert found[f"{table} cells that agree without the method"]() == 3


def test_a_number_that_a_repeated_table_lacks_is_not_taken_for_zero(
    small_plan: Plan, make_records: MakeRecords
) -> None:
    cells = tuple(
        replace(c, printed=(c.printed[0], None)) if c.row == "GCN" else c for c in small_plan.cells if c.printed
    )
    plan = replace(small_plan, cells=cells)
    found = facts({"tab:natacc": summarise(plan, make_records(plan, lambda cell, *_: cell.printed[0] + 0.5))})
    assert found["natacc offset"]() == pytest.approx(0.5)
    with pytest.raises(ValueError, match=r"this needs the plan released:natacc"):
        found["natacc offset, released"]()
    both = facts({name: summarise(plan, make_records(plan, lambda c, *_: c.printed[0])) for name in NATACC})
    with pytest.raises(ValueError, match=r"released:natacc lacks this number in 2 cells, first in GCN, "):
        both["natacc deviation, printed"]()


def test_the_study_without_tuning_counts_real_data_and_clear_changes(make_records: MakeRecords) -> None:
    gains = {"cora": (1.0, 0.5), "wine": (-2.0, 0.1), "digits": (-1.0, -0.3), "citation": (-50.0, -6.0)}
    rows = {"GCN": None, "GCN+WT-AWP": WT, "GCN+WT-AWP auto": AUTO}
    cells = tuple(Cell(row, d, Setting(dataset=d, awp=awp), 5, 1) for d in gains for row, awp in rows.items())

    def accuracy(cell: Cell, split: int, _init: int) -> float:
        added = (0.0, *gains[cell.column])[list(rows).index(cell.row)]
        return 80.0 + split + added * (1 + 0.01 * (split - 2))

    plan = Plan("extra:auto", "", cells, (("GCN", "GCN+WT-AWP"), ("GCN", "GCN+WT-AWP auto")))
    report = summarise(plan, make_records(plan, accuracy))
    empty = replace(report, cells=(), pairs=())
    found = facts({"extra:auto": report, "extra:auto-small": empty, "extra:auto-best": _best(make_records)})
    assert found["study pairs"]() == 3
    assert [found[f"fixed {what}"]() for what in ("improves", "harms")] == [1, 2]
    assert [found[f"auto {what}"]() for what in ("improves", "harms")] == [1, 1]
    assert found["fixed mean gain"]() == pytest.approx(-2 / 3)
    assert found["auto worst gain"]() == pytest.approx(-0.3)
    assert found["least kept of the best"]() == pytest.approx(25.0)
    assert found["most kept of the best"]() == pytest.approx(50.0)


def _best(make_records: MakeRecords) -> PlanReport:
    """In one column lam="auto" gains 1 where the best fixed setting gains 2, in the other 1 where that gains 4."""
    gains = {"plain": (0.0, 0.0), "auto": (1.0, 1.0), "weak": (0.5, 4.0), "strong": (2.0, 3.0)}
    awps = {"plain": None, "auto": AUTO, "weak": replace(WT, lam=0.3), "strong": WT}
    cells = tuple(Cell(row, d, Setting(dataset=d, awp=awps[row]), 3, 1) for row in gains for d in ("cora", "wine"))
    plan = Plan("extra:auto-best", "", cells, tuple(("plain", row) for row in gains if row != "plain"))
    return summarise(plan, make_records(plan, lambda cell, s, _: 80 + s + gains[cell.row][cell.column == "wine"]))


def test_the_league_is_quoted_by_its_methods(league_report: PlanReport) -> None:
    found = facts({"extra:league": league_report})
    assert found["league rank of WT-AWP"]() == 1.5
    assert found["league gain of SAM"]() == pytest.approx(1.15 * 0.125)
    assert (found["league better: WT-AWP"](), found["league worse: WT-AWP"]()) == (3, 1)
    assert (found["league columns"](), found["league methods"](), found["league trials"]()) == (4, 3, 2)
    assert found["correlation of WT-AWP in extra:league"]() == pytest.approx(-0.4)
