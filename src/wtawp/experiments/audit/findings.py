"""What an audit says: a summary in sentences, then sections with tables; all of it as data."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wtawp.experiments.audit.sections import Section
from wtawp.experiments.audit.sizes import Sizes
from wtawp.experiments.audit.subject import Subject
from wtawp.experiments.audit.summary import Finding, Part, findings_of
from wtawp.experiments.audit.tables import section_tables
from wtawp.experiments.execution.building import describe_split
from wtawp.experiments.report.contents import provenance
from wtawp.experiments.report.export import export_data
from wtawp.experiments.report.tables import Table
from wtawp.experiments.results.summary import PlanReport


@dataclass(frozen=True)
class AuditSection:
    """A section of an audit with its measurements.

    Attributes:
        section: The question, and the plan that answers it.
        report: The plan with its measurements.
        tables: Its tables.
    """

    section: Section
    report: PlanReport
    tables: tuple[Table, ...]

    @property
    def failures(self) -> tuple[str, ...]:
        """The reasons of failed runs, each once."""
        errors = [(record.error or "no reason is stored").strip().splitlines()[-1] for record in self.report.failed]
        return tuple(dict.fromkeys(errors))


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The results of an audit.

    Attributes:
        model: The model, as in settings.
        dataset: The data set, as in settings.
        rows: The labels of the rows, plain training first; of given weights, the only row.
        findings: What the audit says, in plain words.
        sections: The sections with their tables.
        reduced: What is smaller than in an audit that may take any time.
        left_out: What could not be measured, and why.
        made: How the audit was made: names and values.
    """

    model: str
    dataset: str
    rows: tuple[str, ...]
    findings: tuple[Finding, ...]
    sections: tuple[AuditSection, ...]
    reduced: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]
    made: tuple[tuple[str, str], ...]

    @property
    def summary(self) -> tuple[str, ...]:
        """The findings as paragraphs."""
        return tuple(map(str, self.findings))

    @property
    def data_name(self) -> str:
        """The data set for people: its name, or that of its file."""
        return Path(self.dataset).name

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables, in the order of the sections."""
        return tuple(table for section in self.sections for table in section.tables)

    def to_json(self) -> dict[str, Any]:
        """Write the audit as plain data.

        Returns:
            What the page says, and the numbers behind it, for JSON.
        """
        return {
            "model": self.model, "dataset": self.dataset, "rows": list(self.rows), "summary": list(self.summary),
            "sections": [_section_data(each) for each in self.sections],
            "reduced": list(self.reduced), "left_out": [{"what": w, "why": y} for w, y in self.left_out],
            "made": dict(self.made),
        }  # fmt: skip


def collect(
    subject: Subject,
    parts: Sequence[Part],
    *,
    sizes: Sizes,
    reduced: Sequence[str],
    left_out: Sequence[tuple[str, str]],
    minutes: float,
    command: str,
) -> Audit:
    """Put the results of an audit together.

    Args:
        subject: What is audited.
        parts: The sections with their measurements.
        sizes: How often and how long it measured.
        reduced: What is smaller than in an audit that may take any time.
        left_out: What could not be measured, and why.
        minutes: How long it was allowed to take.
        command: What the user typed.

    Returns:
        The audit.
    """
    skipped = [("searching attacks", "too little time")] * (not sizes.searched_budgets)
    skipped += [("poisoning", "too little time")] * (not sizes.poisoned_splits and not subject.is_checkpoint)
    skipped += [("certificates", "too little time")] * (not sizes.certified)
    unperturbed = "weights that were given, not trained here" if subject.is_checkpoint else "plain training"
    made = {
        "command": command,
        "model": subject.base.model,
        "data": subject.base.dataset,
        "rows": "; ".join(f"{row}: {awp or unperturbed}" for row, awp in subject.methods),
        "split": describe_split(subject.base),
        "setting": str(subject.base),
        "seeds": _seeds(subject, sizes.splits),
        "time allowed": f"{minutes:g} minutes",
        **{f"runs, {section.title.lower()}": provenance(report) for section, report in parts},
    }
    return Audit(
        model=subject.base.model, dataset=subject.base.dataset, rows=tuple(row for row, _ in subject.methods),
        findings=tuple(findings_of(subject, parts)),
        sections=tuple(AuditSection(s, r, tuple(section_tables(s, r))) for s, r in parts), reduced=tuple(reduced),
        left_out=(*left_out, *skipped), made=tuple(made.items()),
    )  # fmt: skip


def _seeds(subject: Subject, number: int) -> str:
    """The splits and initialisations of all rows, in words."""
    if subject.is_checkpoint:
        return "split 0; the weights are given"
    if subject.has_one_split:
        return f"initialisations 0 to {number - 1} of one split; every row has the same initial weights"
    return f"splits 0 to {number - 1}; every row has the same splits and initial weights"


def _section_data(each: AuditSection) -> dict[str, Any]:
    """A section as plain data."""
    tables = [
        {"caption": t.caption, "headers": list(t.headers), "rows": [[e.text for e in row] for row in t.rows]}
        for t in each.tables
    ]
    section = each.section
    return {
        "key": section.key, "title": section.title, "tells": section.tells, "tables": tables,
        "failures": list(each.failures), "numbers": export_data(each.report),
    }  # fmt: skip
