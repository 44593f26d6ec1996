from collections.abc import Callable
from dataclasses import replace

from wtawp.experiments.report.plan_tables import (
    cell_table,
    claim_table,
    drop_table,
    failure_table,
    pair_table,
    record_table,
    setting_table,
)
from wtawp.experiments.report.tables import Table
from wtawp.experiments.results.summary import summarise
from wtawp.experiments.spec import Cell, Claim, Plan, Record, SplitRule

MakeRecords = Callable[..., list[Record]]


def texts(table: Table) -> list[list[str]]:
    assert all(len(row) == len(table.headers) for row in table.rows)
    return [[entry.text for entry in row] for row in table.rows]


def by_hand(small_plan: Plan, make_records: MakeRecords) -> list[Record]:
    """84 +- 1 without and 85 +- 1 with on Cora, where every split gains 0.9 or 1.1; the printed number on karate."""

    def accuracy(cell: Cell, split: int, _: int) -> float:
        if cell.column == "karate":
            return 70.0
        gain = 1.0 + 0.1 * (-1) ** (split // 2)
        return 84.0 + (-1) ** split + (gain if cell.row == "WT-AWP" else 0.0)

    return make_records(small_plan, accuracy)


def test_cells_stand_beside_the_paper_s(small_plan: Plan, make_records: MakeRecords) -> None:
    records = by_hand(small_plan, make_records)
    assert texts(cell_table(summarise(small_plan, records))) == [
        ["GCN", "cora", "84.00 ± 1.07", "84.00 ± 0.50", "+0.00", "+0.0", "8", "agrees"],
        ["WT-AWP", "cora", "85.00 ± 1.07", "85.00 ± 0.50", "+0.00", "+0.0", "8", "agrees"],
        ["GCN", "karate", "70.00 ± 0.00", "70.00 ± 0.50", "+0.00", "+0.0", "8", "agrees"],
        ["WT-AWP", "karate", "70.00 ± 0.00", "70.20 ± 0.50", "-0.20", "-1.8", "8", "agrees"],  # 0.2 / (0.5 / 20^0.5)
    ]
    failed = replace(records[1], status="failed", accuracy=None, error="Traceback\n  x\nValueError: too <large>\n")
    report = summarise(small_plan, [failed, *records[2:]])
    assert texts(cell_table(report))[0][-2:] == ["6 of 8, 1 failed", "incomplete"]
    assert texts(failure_table(report)) == [[records[1].key, "0", "1", "ValueError: too <large>"]]


def test_pairs_show_the_honest_comparison_and_the_paper_s(small_plan: Plan, make_records: MakeRecords) -> None:
    cora, karate = texts(pair_table(summarise(small_plan, by_hand(small_plan, make_records))))
    # Differences 1.1, 1.1, 0.9, 0.9: deviation 0.11547, t(0.975, 3) = 3.182, so the interval is 1 +- 0.184.
    assert cora[:5] == ["GCN", "WT-AWP", "cora", "+1.00", "+0.82 to +1.18"]
    assert cora[7:9] == ["+8.66", "4 of 4"]
    no_interval = "none, all pairs differ equally"  # row 6: and no p-value
    assert karate == ["GCN", "WT-AWP", "karate", "+0.00", no_interval, "–", "–", "–", "0 of 4", "1", "+0.20"]  # noqa: RUF001
    (missing, _) = texts(pair_table(summarise(small_plan, [])))
    assert missing == ["GCN", "WT-AWP", "cora (incomplete)", *["–"] * 7, "+1.00"]  # noqa: RUF001


def test_claims_settings_and_records_are_listed(small_plan: Plan, make_records: MakeRecords) -> None:
    claimed = replace(small_plan, claims=(Claim("Rows agree.", "rows_agree_within_3"),))
    report = summarise(claimed, by_hand(small_plan, make_records))
    ((claim, verdict, sentence),) = texts(claim_table(report))
    assert (claim, verdict) == ("Rows agree.", "holds")
    assert "cora: GCN 84.00, WT-AWP 85.00, 1.00 points apart" in sentence
    assert texts(setting_table(report))[1] == ["WT-AWP", "cora", "GCN on cora, rho=1.0, lam=0.7", "200", "4", "2"]
    key = next(small_plan.cells[0].runs()).key
    assert texts(record_table(report))[0] == ["GCN", "cora", key, "8", "0", "4.0", f"wtawp results show {key}"]


def test_where_nothing_is_printed_no_column_is_about_the_paper(small_plan: Plan, make_records: MakeRecords) -> None:
    own = replace(small_plan, cells=tuple(replace(cell, printed=None) for cell in small_plan.cells))
    report = summarise(own, by_hand(own, make_records))
    assert cell_table(report).headers == ("row", "column", "accuracy", "runs")
    assert "paper" not in cell_table(report).caption + pair_table(report).caption
    assert pair_table(report).headers[-1] == "splits won"
    assert texts(pair_table(report))[0][3:5] == ["+1.00", "+0.82 to +1.18"]


def test_pairs_of_a_single_split_are_of_initialisations(small_plan: Plan) -> None:
    def of_masks(cell: Cell) -> Cell:
        return replace(
            cell, splits=1, inits=3, setting=replace(cell.setting, split=SplitRule(kind="masks")), printed=None
        )

    one = replace(small_plan, cells=tuple(map(of_masks, small_plan.cells)))
    table = pair_table(summarise(one, []))
    assert table.headers[-1] == "initialisations won"
    assert "paired over initialisations, with" in table.caption
    assert "Masks describe the only split: initialisations are paired, and nothing" in table.caption
    some = replace(one, cells=(*one.cells[:2], *(replace(c, printed=None) for c in small_plan.cells[2:])))
    assert pair_table(summarise(some, [])).headers[-1] == "pairs won"
    assert "the only split of some columns: initialisations are paired there" in pair_table(summarise(some, [])).caption


def test_under_attack_the_drop_stands_beside_accuracy_and_gain(
    poisoned_plan: Plan, poisoned_records: list[Record], small_plan: Plan, make_records: MakeRecords
) -> None:
    report = summarise(poisoned_plan, poisoned_records)
    assert cell_table(report).headers == ("row", "column", "accuracy", "drop", "runs")
    assert [row[3] for row in texts(cell_table(report))] == ["–", "10.00", "–", "9.00"]  # noqa: RUF001
    ((*names, clean, gain, before, after, change, interval, p, holm),) = texts(drop_table(report))
    assert names == ["GCN", "GCN+WT-AWP", "5 %"]
    # Differences -1.0, -1.5, -0.5: deviation 0.5, t(0.975, 2) = 4.303, so the interval is -1 +- 1.242.
    assert (clean, gain, before, after) == ("+2.00", "+3.00", "10.00", "9.00")
    assert (change, interval, p, holm) == ("-1.00", "-2.24 to +0.24", "0.074", "0.074")
    assert drop_table(summarise(small_plan, make_records(small_plan))).rows == ()
    flat = [replace(r, accuracy={"test": 0.8 if "poison" in r.setting else 0.9}) for r in poisoned_records]
    assert texts(drop_table(summarise(poisoned_plan, flat)))[0][7:9] == ["+0.00", "none, all pairs differ equally"]
