"""What an audit says: a summary in sentences, then sections with tables; all of it as data."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from wtawp.experiments.audit.comparisons import (
    accuracy_lead,
    certified_at,
    geometry_values,
    values_lead,
)
from wtawp.experiments.audit.sections import ACCURACY, CERTIFICATE, EVASION, FLAT, POISONING, Section
from wtawp.experiments.audit.sizes import Sizes
from wtawp.experiments.audit.subject import Subject
from wtawp.experiments.audit.tables import section_tables
from wtawp.experiments.report.contents import provenance
from wtawp.experiments.report.export import export_data
from wtawp.experiments.report.tables import Table
from wtawp.experiments.results.drops import compare_drops
from wtawp.experiments.results.summary import CellReport, PlanReport

Part = tuple[Section, PlanReport]


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
        rows: The labels of the rows, plain training first.
        summary: What the audit says, in sentences.
        sections: The sections with their tables.
        reduced: What is smaller than in an audit that may take any time.
        left_out: What could not be measured, and why.
        made: How the audit was made: names and values.
    """

    model: str
    dataset: str
    rows: tuple[str, ...]
    summary: tuple[str, ...]
    sections: tuple[AuditSection, ...]
    reduced: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]
    made: tuple[tuple[str, str], ...]

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
    made = {
        "command": command,
        "model": subject.base.model,
        "data": subject.base.dataset,
        "rows": "; ".join(f"{row}: {awp or 'plain training'}" for row, awp in subject.methods),
        "setting": str(subject.base),
        "seeds": f"splits 0 to {sizes.splits - 1}; every row has the same splits and initial weights",
        "time allowed": f"{minutes:g} minutes",
        **{f"runs, {section.title.lower()}": provenance(report) for section, report in parts},
    }
    return Audit(
        model=subject.base.model, dataset=subject.base.dataset, rows=tuple(row for row, _ in subject.methods),
        summary=tuple(summarise_in_words(subject, parts)),
        sections=tuple(AuditSection(s, r, tuple(section_tables(s, r))) for s, r in parts), reduced=tuple(reduced),
        left_out=(*left_out, *skipped), made=tuple(made.items()),
    )  # fmt: skip


def summarise_in_words(subject: Subject, parts: Sequence[Part]) -> Iterator[str]:
    """Say what an audit found, in plain words and with its uncertainty.

    Args:
        subject: What is audited.
        parts: The sections with their measurements.

    Yields:
        Sentences, or a few of them together.
    """
    rows = tuple(row for row, _ in subject.methods)
    for section, report in parts:
        if section.kind == ACCURACY:
            yield from _accuracy(report, rows)
    yield from _worst_attack([part for part in parts if part[0].kind == EVASION], rows)
    for section, report in parts:
        if section.kind == POISONING:
            yield from _poisoned(section, report, rows)
    for section, report in parts:
        if section.kind == CERTIFICATE:
            yield from _guaranteed(section, report, rows)
    for section, report in parts:
        if section.kind == FLAT:
            yield from _flat(report, rows)


def _cells(report: PlanReport, column: str) -> dict[str, CellReport]:
    """The cells of a column with measurements, by row."""
    return {c.cell.row: c for c in report.column(column) if c.mean is not None}


def _over(report: PlanReport) -> str:
    """Over how many splits, or initialisations, means are taken."""
    cell = report.cells[0].cell
    if cell.splits > 1 or cell.inits == 1:
        return f"{cell.splits} split{'s' * (cell.splits > 1)}"
    return f"{cell.inits} initialisations of one split"


def _accuracy(report: PlanReport, rows: tuple[str, ...]) -> Iterator[str]:
    """Which row is the most accurate without an attack, and by how much."""
    cells = _cells(report, "clean")
    if not cells:
        yield "Accuracy: no training has finished."
        return
    best = max(cells, key=lambda row: cells[row].mean or 0.0)
    others = [row for row in rows if row in cells and row != best]
    text = f"Accuracy: on clean data {best} classifies {cells[best].mean:.1f} % of the test nodes correctly"
    if not others:
        yield f"{text} (mean over {_over(report)})."
        return
    leads = {row: accuracy_lead(report, "clean", best, row) for row in others}
    clear = all(lead is not None and lead.is_clear for lead in leads.values())
    head = "the most of all rows" if clear else "the highest mean, but not clearly the best row"
    compared = "; ".join(
        f"against {row} ({cells[row].mean:.1f} %) {lead.describe() if lead else 'too few splits to compare'}"
        for row, lead in leads.items()
    )
    yield f"{text}, {head} (means over {_over(report)}): {compared}."


def _worst_attack(parts: Sequence[Part], rows: tuple[str, ...]) -> Iterator[str]:
    """Under which attack each row falls most, at the largest budget that all attacks have, and what WT-AWP changes."""
    columns = [[c for c in report.columns if _has_attack(report, c)] for _, report in parts]
    common = [column for column in (columns[0] if columns else []) if all(column in each for each in columns)]
    if not common:
        return
    column = common[-1]
    drops = {
        (row, section.key): cell.mean_drop
        for section, report in parts
        for row, cell in _cells(report, column).items()
        if cell.mean_drop is not None
    }
    if not drops:
        return
    by_key = {section.key: (section, report) for section, report in parts}
    plain = rows[0]
    worst = max((key for row, key in drops if row == plain), key=lambda key: drops[plain, key], default=None)
    if worst is None:
        return
    section, report = by_key[worst]
    cell, name = _cells(report, column)[plain], section.title.rpartition(": ")[2]
    clean = (cell.mean or 0.0) + drops[plain, worst]
    yield (
        f"Attacks: with {column} of the edges changed after training, {plain} falls most under {name}: from "
        f"{clean:.1f} % to {cell.mean:.1f} %." + _against_plain(report, column, rows)
    )
    elsewhere = [row for row in rows[1:] if max(drops.get((row, k), -1.0) for k in by_key) != drops.get((row, worst))]
    for row in elsewhere:
        key = max((k for k in by_key if (row, k) in drops), key=lambda k: drops[row, k])
        name = by_key[key][0].title.rpartition(": ")[2]
        yield f"{row} falls most under {name}, by {drops[row, key]:.1f} points."


def _has_attack(report: PlanReport, column: str) -> bool:
    """Whether the cells of a column are attacked."""
    return any(c.cell.attack is not None for c in report.column(column))


def _against_plain(report: PlanReport, column: str, rows: tuple[str, ...]) -> str:
    """What the other rows change against the first one, under an attack."""
    drops = {(d.before, d.after): d for d in compare_drops(report) if d.column == column}
    text = ""
    for row in rows[1:]:
        lead = accuracy_lead(report, column, row, rows[0])
        if lead is None:
            continue
        text += f" {row} against {rows[0]}: {lead.describe()}"
        drop = drops.get((rows[0], row))
        if drop is not None:
            how = "less" if drop.is_smaller else "more" if drop.is_larger else "neither clearly more nor less"
            text += f"; the attack takes {how} from it ({drop.drop_after:.1f} instead of {drop.drop_before:.1f} points)"
        text += "."
    return text


def _poisoned(section: Section, report: PlanReport, rows: tuple[str, ...]) -> Iterator[str]:
    """What a training on a poisoned graph costs."""
    column = report.columns[-1]
    cell = _cells(report, column).get(rows[0])
    if cell is None or cell.mean_drop is None:
        return
    name = section.title.rpartition(": ")[2]
    yield (
        f"Poisoning: trained on a graph of which {name} changed {column} of the edges, {rows[0]} reaches "
        f"{cell.mean:.1f} %, {cell.mean_drop:.1f} points less than on the clean graph (means over {_over(report)})."
        + _against_plain(report, column, rows)
    )


def _guaranteed(section: Section, report: PlanReport, rows: tuple[str, ...]) -> Iterator[str]:
    """What no attacker can change."""
    cells = _cells(report, "smoothed")
    what = section.title.rpartition(" ")[2]
    one = "edge" if what == "edges" else "feature of a node"
    if rows[0] not in cells:
        return
    kinds = {"removes": (0, 1), "adds": (1, 0)}
    sentences = []
    for verb, radius in kinds.items():
        values = {row: certified_at(cell, *radius) for row, cell in cells.items()}
        text = f"whatever one {one} an attacker {verb}, {fmean(values[rows[0]].values()):.1f} % of the test nodes"
        sentences.append(text)
    text = (
        f"Guaranteed against changes of {what}: {'; '.join(sentences)} keep their right class under the smoothed "
        f"{rows[0]} (mean over {_over(report)})."
    )
    for row in rows[1:]:
        if row in cells:
            plain, other = (certified_at(cells[each], 0, 1) for each in (rows[0], row))
            lead = values_lead((cells[rows[0]], cells[row]), (plain, other))
            share = fmean(other.values())
            text += f" {row}: {share:.1f} % if one is removed" + (f"; {lead.describe()}." if lead else ".")
    yield text


def _flat(report: PlanReport, rows: tuple[str, ...]) -> Iterator[str]:
    """How flat the loss is around the weights, or how smooth in the inputs."""
    cells = _cells(report, "clean")
    values = {row: geometry_values(cell) for row, cell in cells.items()}
    if rows[0] not in values:
        return
    for name in ("sharpness, layer, rho=0.1", "gradient by edges", "gradient by features"):
        if not values[rows[0]].get(name):
            continue
        is_sharpness = name.startswith("sharpness")
        first = fmean(values[rows[0]][name].values())
        if is_sharpness:
            text = (
                f"Flatness: if the weights of each layer move by a tenth of their length, in the worst direction, the "
                f"training loss of {rows[0]} rises by {first:.3g} (mean over {_over(report)})."
            )
        else:
            text = f"Smoothness: the {name} of the training loss of {rows[0]} has the length {first:.3g}."
        for row in rows[1:]:
            if values.get(row, {}).get(name):
                lead = values_lead((cells[rows[0]], cells[row]), (values[rows[0]][name], values[row][name]))
                mean = fmean(values[row][name].values())
                difference = "" if lead is None else f"; {lead.describe('', '+.3g')}"
                text += f" {row}: {mean:.3g}{difference}."
        yield text


def _section_data(each: AuditSection) -> dict[str, Any]:
    """A section as plain data."""
    tables = [
        {"caption": t.caption, "headers": list(t.headers), "rows": [[e.text for e in row] for row in t.rows]}
        for t in each.tables
    ]
    section = replace(each.section, seconds={})
    return {
        "key": section.key, "title": section.title, "tells": section.tells, "tables": tables,
        "failures": list(each.failures), "numbers": export_data(each.report),
    }  # fmt: skip
