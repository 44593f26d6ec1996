from collections.abc import Callable
from dataclasses import replace

from wtawp.experiments.plans.catalogue import plan
from wtawp.experiments.report.answers import answers
from wtawp.experiments.report.contents import (
    anchors,
    claim_headlines,
    claim_overview,
    claim_verdicts,
    headlines,
    provenance,
    robustness_headline,
    tables_of,
)
from wtawp.experiments.report.plan_tables import cell_table, claim_table, drop_table, pair_table
from wtawp.experiments.report.tables import NOTHING
from wtawp.experiments.results.summary import summarise
from wtawp.experiments.spec import Claim, Plan, Record

MakeRecords = Callable[..., list[Record]]


def test_the_provenance_names_device_versions_and_what_is_not_looked_at(
    small_plan: Plan, make_records: MakeRecords
) -> None:
    records = make_records(small_plan)
    elsewhere = make_records(small_plan, device="NVIDIA H200, TF32")[:3]
    failed = replace(records[0], status="failed", accuracy=None, error="ValueError: no")
    assert provenance(summarise(small_plan, [failed, *records[1:], *elsewhere])) == (
        "31 of 32 runs on cpu; 1 failed; with torch 2.13.0, wtawp 0.1. Not looked at: 3 runs on NVIDIA H200, TF32."
    )
    assert provenance(summarise(small_plan, [])) == "Nothing was trained yet: 32 runs are missing."


def test_headlines_count_verdicts(small_plan: Plan, make_records: MakeRecords) -> None:
    claimed = replace(small_plan, claims=(Claim("Rows agree.", "rows_agree_within_3"),))
    report = summarise(claimed, make_records(claimed, lambda cell, *_: (cell.printed or (0.0,))[0] + 0.1))
    assert claim_verdicts(report) == ["holds"]
    assert headlines([report]) == [
        "Of 4 judged cells, 4 agree with the paper within 0.5 points and 0 differ; 0 are reported without a verdict, "
        "0 are incomplete.",
        "Of 1 claims of the text, 1 holds, 0 do not, 0 wait for runs.",
    ]


def test_cells_that_are_measured_once_more_are_counted_apart(small_plan: Plan, make_records: MakeRecords) -> None:
    repeated = replace(small_plan, name="released:small", repeats="tab:small")
    off = {cell: (cell.printed or (0.0,))[0] + (0.1 if cell.column == "cora" else 2.0) for cell in repeated.cells}
    reports = [summarise(p, make_records(p, lambda cell, *_: off[cell])) for p in (small_plan, repeated)]
    alone, once_more = headlines(reports[:1]), headlines(reports)
    assert once_more == [
        *alone,
        "Of 4 judged cells that are measured once more, by the protocol of the released code, 2 agree and 2 differ; "
        "0 are incomplete.",
    ]


def test_the_headline_on_robustness_follows_from_the_drops(
    poisoned_plan: Plan, poisoned_records: list[Record], small_plan: Plan, make_records: MakeRecords
) -> None:
    report = summarise(poisoned_plan, poisoned_records)
    assert headlines([report]) == [
        "Of 1 pairs without and with perturbed weights under attack, the perturbation makes the drop (clean accuracy "
        "less that under attack) significantly smaller in 0 and significantly larger in 0; 1 are undecided. The mean "
        "gain is +3.00 points under attack and +2.00 on the clean graphs."
    ]
    assert tables_of(report) == [cell_table(report), pair_table(report), drop_table(report)]
    assert robustness_headline([summarise(small_plan, make_records(small_plan))]) == []


def test_tables_are_claims_then_cells_then_pairs(small_plan: Plan, make_records: MakeRecords) -> None:
    report = summarise(small_plan, make_records(small_plan))
    assert tables_of(report) == [cell_table(report), pair_table(report)]
    claimed = summarise(replace(small_plan, claims=(Claim("Rows agree.", "rows_agree_within_3"),), pairs=()), [])
    assert tables_of(claimed) == [claim_table(claimed), cell_table(claimed)]


def test_of_a_single_split_there_is_no_table_of_pairs_and_no_answer(
    small_plan: Plan, make_records: MakeRecords
) -> None:
    """As of `wtawp certify`, which makes one split by default; the paper's tables keep theirs for the printed gains."""
    printed = replace(small_plan, cells=tuple(replace(cell, splits=1) for cell in small_plan.cells))
    own = replace(printed, name="own", cells=tuple(replace(cell, printed=None) for cell in printed.cells))
    report = summarise(own, make_records(own))
    assert tables_of(report) == [cell_table(report)]
    assert answers(report) == []
    of_paper = summarise(printed, make_records(printed))
    assert tables_of(of_paper) == [cell_table(of_paper), pair_table(of_paper)]


def test_anchors_differ() -> None:
    assert anchors(["tab:a b", "tab-a-b", "??"]) == ["tab-a-b", "tab-a-b-2", "plan"]


def test_the_main_claims_are_counted_named_and_listed_first(make_records: MakeRecords) -> None:
    made = plan("tab:graphclass")
    report = summarise(made, make_records(made, lambda _, split, init: 70 + split + init))
    counted, named = claim_headlines([report])
    assert counted == "Of 2 claims of the text, 0 hold, 2 do not, 0 wait for runs."
    assert named == "Main claims that do not hold (1 of 1): graph classification."
    table = claim_overview([report])
    assert table is not None
    assert [row[0].text for row in table.rows] == ["graph classification", NOTHING]
    assert [row[2].text for row in table.rows] == ["introduction", "tab:graphclass"]
    assert claim_overview([summarise(made, [])]) is None
