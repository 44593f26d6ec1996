from collections.abc import Callable
from dataclasses import replace

from wtawp.experiments.report.plan_tables import (
    cell_table,
    claim_table,
    failure_table,
    pair_table,
    record_table,
    setting_table,
)
from wtawp.experiments.report.tables import Table
from wtawp.experiments.results.summary import summarise
from wtawp.experiments.spec import Cell, Claim, Plan, Record

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
        ["GCN", "cora", "84.00 ± 1.07", "84.00 ± 0.50", "+0.00", "8", "agrees"],
        ["WT-AWP", "cora", "85.00 ± 1.07", "85.00 ± 0.50", "+0.00", "8", "agrees"],
        ["GCN", "karate", "70.00 ± 0.00", "70.00 ± 0.50", "+0.00", "8", "agrees"],
        ["WT-AWP", "karate", "70.00 ± 0.00", "70.20 ± 0.50", "-0.20", "8", "agrees"],
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
    assert karate == ["GCN", "WT-AWP", "karate", "+0.00", no_interval, "–", "–", "–", "0 of 4", "1"]  # noqa: RUF001
    (missing, _) = texts(pair_table(summarise(small_plan, [])))
    assert missing == ["GCN", "WT-AWP", "cora (incomplete)", *["–"] * 7]  # noqa: RUF001


def test_claims_settings_and_records_are_listed(small_plan: Plan, make_records: MakeRecords) -> None:
    claimed = replace(small_plan, claims=(Claim("Rows agree.", "rows_agree_within_3"),))
    report = summarise(claimed, by_hand(small_plan, make_records))
    ((claim, verdict, sentence),) = texts(claim_table(report))
    assert (claim, verdict) == ("Rows agree.", "holds")
    assert "cora: GCN 84.00, WT-AWP 85.00, 1.00 points apart" in sentence
    assert texts(setting_table(report))[1] == ["WT-AWP", "cora", "GCN on cora, rho=1.0, lam=0.7", "200", "4", "2"]
    key = next(small_plan.cells[0].runs()).key
    assert texts(record_table(report))[0] == ["GCN", "cora", key, "8", "0", "4.0", f"wtawp results show {key}"]
