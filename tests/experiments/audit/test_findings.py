import json
from dataclasses import replace
from pathlib import Path

from wtawp.experiments.audit.findings import Audit, _seeds
from wtawp.experiments.audit.page import audit_page
from wtawp.experiments.audit.subject import Subject
from wtawp.experiments.spec import Setting, SplitRule

Small = tuple[Audit, Path]


def test_the_data_hold_what_the_page_says(small_audit: Small) -> None:
    audit = small_audit[0]
    data = json.loads(json.dumps(audit.to_json()))
    assert data["summary"] == list(audit.summary)
    assert [s["title"] for s in data["sections"]] == [s.section.title for s in audit.sections]
    first = data["sections"][0]["tables"][0]
    assert first["headers"] == ["row", "clean"]
    assert [row[0] for row in first["rows"]] == list(audit.rows)
    assert sum(len(s["tables"]) for s in data["sections"]) == len(audit.tables)
    assert all(not s["failures"] for s in data["sections"])
    assert data["made"]["model"].endswith(":Weighted")


def test_failed_runs_are_told_with_the_last_line_of_their_errors(small_audit: Small) -> None:
    section = small_audit[0].sections[0]
    first, *others = section.report.cells
    error = "Traceback (most recent call last):\n  somewhere\nValueError: no such thing\n"
    failed = tuple(replace(r, status="failed", error=error) for r in first.records)
    report = replace(section.report, cells=(replace(first, records=(), failed=failed), *others))
    broken = replace(section, report=report)
    assert broken.failures == ("ValueError: no such thing",)
    page = audit_page(replace(small_audit[0], sections=(broken,)))
    assert "<strong>Runs failed:</strong> ValueError: no such thing" in page


def test_what_is_smaller_is_told(small_audit: Small) -> None:
    assert "Splits: 2 instead of 10." in small_audit[0].reduced
    assert small_audit[0].left_out == ()


def test_the_seeds_are_those_of_what_is_paired() -> None:
    subject = Subject(base=Setting(dataset="wine", split=SplitRule()), methods=(("GCN", None),))
    assert _seeds(subject, 4).startswith("splits 0 to 3;")
    assert _seeds(replace(subject, has_one_split=True), 4).startswith("initialisations 0 to 3 of one split;")
    given = replace(subject, base=replace(subject.base, weights="0123"), most_splits=1)
    assert _seeds(given, 1) == "split 0; the weights are given"
