import json
from pathlib import Path

from wtawp.experiments.audit.findings import Audit

Small = tuple[Audit, Path]


def sentence(audit: Audit, head: str) -> str:
    (text,) = [paragraph for paragraph in audit.summary if paragraph.startswith(f"{head}:")][:1]
    return text


def test_the_summary_names_the_row_with_the_highest_mean_and_the_others(small_audit: Small) -> None:
    audit = small_audit[0]
    means = {c.cell.row: c.mean or 0.0 for c in audit.sections[0].report.cells}
    best = max(means, key=lambda row: means[row])
    text = sentence(audit, "Accuracy")
    assert f"on clean data {best} classifies {means[best]:.1f} %" in text
    for row, mean in means.items():
        assert row == best or f"against {row} ({mean:.1f} %)" in text
    assert "means over 2 splits" in text


def test_the_worst_attack_is_the_one_with_the_largest_drop(small_audit: Small) -> None:
    audit = small_audit[0]
    drops = {}
    for section in audit.sections:
        if section.section.kind == "evasion":
            (cell,) = [c for c in section.report.column("5 %") if c.cell.row == audit.rows[0]]
            drops[section.section.title.rpartition(": ")[2]] = cell.mean_drop or 0.0
    assert len(drops) >= 4
    worst = max(drops, key=lambda name: drops[name])
    assert f"falls most under {worst}: from" in sentence(audit, "Attacks")


def test_every_kind_of_section_has_its_say(small_audit: Small) -> None:
    audit = small_audit[0]
    heads = [paragraph.partition(":")[0] for paragraph in audit.summary]
    wanted = ["Accuracy", "Attacks", "Poisoning", "Guaranteed against changes of edges", "Flatness", "Smoothness"]
    assert [head for head in dict.fromkeys(heads) if head in wanted] == wanted


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


def test_what_is_smaller_is_told(small_audit: Small) -> None:
    assert "Splits: 2 instead of 10." in small_audit[0].reduced
    assert small_audit[0].left_out == ()
