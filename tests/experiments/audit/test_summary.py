from dataclasses import replace
from pathlib import Path
from statistics import fmean

from wtawp.experiments.audit.comparisons import worst_accuracies
from wtawp.experiments.audit.findings import Audit
from wtawp.experiments.audit.summary import _attack_finding, _worst
from wtawp.experiments.results.summary import CellReport, PlanReport

Small = tuple[Audit, Path]


def sentence(audit: Audit, head: str) -> str:
    (text,) = [str(finding) for finding in audit.findings if finding.topic == head]
    return text


def test_the_summary_names_the_row_with_the_highest_mean_and_the_others(small_audit: Small) -> None:
    audit = small_audit[0]
    means = {c.cell.row: c.mean or 0.0 for c in audit.sections[0].report.cells}
    best = max(means, key=lambda row: means[row])
    text = sentence(audit, "Accuracy")
    assert f"on clean data {best} classifies {means[best]:.1f} %" in text
    for row, mean in means.items():
        assert row == best or f"Against {row} ({mean:.1f} %): " in text
    assert "means over 2 splits" in text


def test_rows_are_compared_under_the_worst_attack_of_each_run(small_audit: Small) -> None:
    audit = small_audit[0]
    reports = [s.report for s in audit.sections if s.section.kind == "evasion"]
    worst = {}
    for row in audit.rows:
        cells = [c for report in reports for c in report.column("5 %") if c.cell.row == row]
        worst[row] = [min(c.accuracies[split, 0] for c in cells) for split in (0, 1)]
    assert f"keeps {fmean(worst[audit.rows[0]]):.1f} % under the worst of the attacks" in sentence(audit, "Attacks")
    for row in audit.rows[1:]:
        assert f"{row}: {fmean(worst[row]):.1f} % under the worst of the attacks" in sentence(audit, "Attacks")
        assert "accuracy under the worst of the attacks: " in sentence(audit, "In short")


def test_the_attacks_are_named_and_the_lack_of_searching_ones_is_said(small_audit: Small) -> None:
    audit = small_audit[0]
    parts = [(s.section, s.report) for s in audit.sections if s.section.kind == "evasion"]
    names = ", ".join(section.title.removeprefix("Under attack: ") for section, _ in parts)
    assert f"under the worst of the attacks for each model ({names}); on average" in sentence(audit, "Attacks")
    assert "No searching attack was run" not in sentence(audit, "Attacks")
    blind = [part for part in parts if part[0].key in ("attack-random", "attack-dice")]
    assert len(blind) == 2
    worst = _worst(blind, audit.rows)
    assert worst is not None
    assert _attack_finding(worst, audit.rows).details[0] == "No searching attack was run, and one may take far more."


def test_the_headline_does_not_favour_rows_whose_worst_attack_is_another_one(small_audit: Small) -> None:
    audit = small_audit[0]
    first, second, *_ = [(s.section, s.report) for s in audit.sections if s.section.kind == "evasion"]
    plain, other, last = audit.rows
    table = (  # by attack; every row loses 40 points to one of them and nothing to the other
        (first, {plain: 50.0, other: 90.0, last: 90.0}),
        (second, {plain: 90.0, other: 50.0, last: 50.0}),
    )
    parts = [(section, with_accuracies(report, means)) for (section, report), means in table]
    worst = _worst(parts, audit.rows)
    assert worst is not None
    assert {row: set(values.values()) for row, values in worst.accuracies.items()} == {
        row: {50.0} for row in audit.rows
    }
    assert [lead.mean for lead in worst.leads.values()] == [0.0, 0.0]
    assert worst_accuracies([report for _, report in parts], "5 %", "no such row") == {}


def with_accuracies(report: PlanReport, accuracies: dict[str, float]) -> PlanReport:
    """The same plan, with one accuracy for all runs of a row."""

    def measured(cell: CellReport) -> CellReport:
        share = accuracies[cell.cell.row] / 100
        index = cell.cell.measure
        records = tuple(
            replace(r, measured=[{**m, "accuracy": share} if i == index else m for i, m in enumerate(r.measured or [])])
            for r in cell.records
        )
        return replace(cell, records=records)

    return replace(report, cells=tuple(map(measured, report.cells)))


def test_the_strongest_attack_is_the_one_with_the_largest_mean_drop(small_audit: Small) -> None:
    audit = small_audit[0]
    drops = {}
    for section in audit.sections:
        if section.section.kind == "evasion":
            (cell,) = [c for c in section.report.column("5 %") if c.cell.row == audit.rows[0]]
            drops[section.section.title.rpartition(": ")[2]] = cell.mean_drop or 0.0
    assert len(drops) >= 4
    worst = max(drops, key=lambda name: drops[name])
    assert f"on average {worst} takes the most, {drops[worst]:.1f} points" in sentence(audit, "Attacks")


def test_every_kind_of_section_has_its_say(small_audit: Small) -> None:
    audit = small_audit[0]
    assert [finding.topic for finding in audit.findings] == [
        "In short", "Accuracy", "Attacks", "Poisoning", "Guaranteed (edges)", "Flatness", "Smoothness by edges",
        "Smoothness by features",
    ]  # fmt: skip
    for finding in audit.findings:
        assert len(finding.details) >= 2
        assert finding.answer.endswith((".", ":"))


def test_the_first_finding_says_higher_or_lower_only_where_the_difference_is_clear(small_audit: Small) -> None:
    audit = small_audit[0]
    report = audit.sections[0].report
    for row, detail in zip(audit.rows[1:], audit.findings[0].details, strict=True):
        (pair,) = [p for p in report.pairs if (p.before, p.after) == (audit.rows[0], row)]
        is_clear = pair.holm_p_value is not None and pair.holm_p_value < 0.05
        gain = 0.0 if pair.gain is None else pair.gain.mean
        word = "no clear difference" if not is_clear else "higher" if gain > 0 else "lower"
        assert detail.startswith(f"{row} ")
        assert f"clean accuracy: {word}" in detail


def test_the_guarantee_is_read_from_the_certificates(small_audit: Small) -> None:
    audit = small_audit[0]
    (section,) = [s for s in audit.sections if s.section.kind == "certificate"]
    records = section.report.column("smoothed")[0].records
    grids = [(record.measured or [])[0]["certified"] for record in records]
    removed = fmean(100 * grid[0][1] if len(grid[0]) > 1 else 0.0 for grid in grids)
    assert f"at least {removed:.1f} % of the test nodes" in sentence(audit, "Guaranteed (edges)")
