"""The report: plans and their records as Markdown, and as one HTML page that asks nothing of the network.

Pure functions: they train nothing and load nothing that does, and the same records give the same bytes.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from wtawp.experiments.report.artifacts import StoredArtifact
from wtawp.experiments.report.bound_figures import bound_table, has_bounds
from wtawp.experiments.report.certificate_figures import certified_means, certified_table, has_certificates
from wtawp.experiments.report.drawing import with_ids
from wtawp.experiments.report.figures import captions_of, figures_of
from wtawp.experiments.report.geometry_figures import (
    flatness_table,
    has_flatness,
    has_smoothness,
    matched_loss_table,
    smoothness_table,
)
from wtawp.experiments.report.tables import (
    Table,
    cell_table,
    claim_table,
    failure_table,
    graph_dataset_table,
    node_dataset_table,
    pair_table,
    record_table,
    setting_table,
)
from wtawp.experiments.results.claims import check
from wtawp.experiments.results.summary import PlanReport

MADE_BY = """Everything in this folder but the records (`*.jsonl.gz`, `certificate_soundness.json`) is made from them: `wtawp report --records results --folder results`.
What the differences come from is in [docs/deviations.md](../docs/deviations.md); how to train it all again in
[docs/experiments.md](../docs/experiments.md)."""  # noqa: E501


@dataclass(frozen=True)
class Figure:
    """A drawing and what it shows; `svg` is "" where nothing was measured yet."""

    name: str
    svg: Markup
    caption: str


@dataclass(frozen=True)
class Section:
    """A plan as the page shows it."""

    anchor: str
    report: PlanReport
    source: str
    claims: list[str]  # their verdicts
    tables: list[Table]
    figures: list[Figure]
    settings: Table
    records: Table
    failures: Table


def markdown(reports: Sequence[PlanReport], *, figures: str | None = None) -> str:
    """All plans as text: the tables of cells, pairs and claims; links to their figures in the folder `figures`."""
    parts = ["# Results", *([] if figures is None else [MADE_BY]), *headlines(reports)]
    anchors = _anchors(r.plan.name for r in reports)
    for anchor, report in zip(anchors, reports, strict=True):
        parts += [f"## {_text(report.plan.name)}: {_text(report.plan.title)}", _text(source(report))]
        parts += [as_markdown(table) for table in tables_of(report)]
        if figures is not None and report.records:  # where nothing was measured, nothing is drawn
            parts += [f"![{caption}]({figures}/{anchor}-{name}.svg)" for name, caption in captions_of(report.plan)]
        if report.failed:
            parts.append(as_markdown(failure_table(report)))
    return "\n\n".join(parts) + "\n"


def write_folder(reports: Sequence[PlanReport], folder: Path) -> None:
    """The report as files that a repository shows: README.md, datasets.md and figures/*.svg."""
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(markdown(reports, figures="figures"), encoding="utf-8")
    (folder / "datasets.md").write_text(dataset_tables(), encoding="utf-8")
    for anchor, report in zip(_anchors(r.plan.name for r in reports), reports, strict=True):
        for name, svg, _ in figures_of(report):
            if svg:
                (folder / "figures" / f"{anchor}-{name}.svg").write_text(svg, encoding="utf-8")


def html(reports: Sequence[PlanReport], looks: Sequence[StoredArtifact] = ()) -> str:
    """All plans as one page: the same tables, to be sorted, with figures, settings and records; then the looks."""
    environment = Environment(
        loader=PackageLoader("wtawp.experiments.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sections = [_section(a, r) for a, r in zip(_anchors(r.plan.name for r in reports), reports, strict=True)]
    told = headlines(reports) if reports else []
    return environment.get_template("report.html.j2").render(sections=sections, headlines=told, looks=looks)


def dataset_tables() -> str:
    """The paper's two tables of data sets beside our counts, as Markdown; nothing is fetched for them."""
    return "\n\n".join(["# Data sets", as_markdown(node_dataset_table()), as_markdown(graph_dataset_table())]) + "\n"


def as_data(report: PlanReport) -> dict[str, object]:
    """The numbers of a plan, for machines."""
    cells = [
        {"row": c.cell.row, "column": c.cell.column, "mean": c.mean, "std": c.std, "runs": c.found, "wanted": c.wanted,
         "failed": len(c.failed), "printed": c.cell.printed, "verdict": c.verdict} for c in report.cells
    ]  # fmt: skip
    pairs = [
        {"before": p.before, "after": p.after, "column": p.column, "p_over_runs": p.runs_p_value,
         "gain": None if p.gain is None else asdict(p.gain), "p_holm": p.holm_p_value} for p in report.pairs
    ]  # fmt: skip
    claims = [{"text": claim.text, **asdict(check(claim, report))} for claim in report.plan.claims]
    found: dict[str, object] = {"plan": report.plan.name, "device": report.device, "cells": cells, "pairs": pairs}
    certified = {"certified": certified_means(report)} if has_certificates(report) else {}
    return {**found, "claims": claims, **certified}


def headlines(reports: Sequence[PlanReport]) -> list[str]:
    """What it comes to, in two sentences."""
    verdicts = Counter(c.verdict for r in reports for c in r.cells)
    judged = verdicts["agrees"] + verdicts["differs"]
    outcomes = Counter(verdict for r in reports for verdict in _claims(r))
    return [
        f"Of {judged} judged cells, {verdicts['agrees']} agree with the paper within 0.5 points and "
        f"{verdicts['differs']} differ; {verdicts['reported']} are reported without a verdict, "
        f"{verdicts['incomplete']} are incomplete.",
        f"Of {sum(outcomes.values())} claims of the text, {outcomes['holds']} "
        f"{'holds' if outcomes['holds'] == 1 else 'hold'}, {outcomes['does not hold']} "
        f"{'does' if outcomes['does not hold'] == 1 else 'do'} not, {outcomes['incomplete']} wait for runs.",
    ]


def source(report: PlanReport) -> str:
    """Where the numbers come from: device, runs, versions."""
    if report.device is None:
        return f"Nothing was trained yet: {report.wanted} runs are missing."
    said = [f"{len(report.records)} of {report.wanted} runs on {report.device}"]
    if report.failed:
        said.append(f"{len(report.failed)} failed")
    known = {pair for record in report.records for pair in record.versions.items()}
    versions = [" ".join(pair) for pair in sorted(known) if pair[0] != "flips"]
    flips = len(known) - len(versions)
    versions += [f"{flips} sets of flips"] if flips else []
    if versions:
        said.append("with " + ", ".join(versions))
    others = "".join(f" Not looked at: {count} runs on {device}." for device, count in report.other_devices)
    return "; ".join(said) + "." + others


def as_markdown(table: Table) -> str:
    """The rows under their headers, then the caption; numbers to the right."""
    numeric = [any(row[i].order is not None for row in table.rows) for i in range(len(table.headers))]
    lines = [table.headers, ["---:" if right else "---" for right in numeric]]
    lines += [[_text(entry.text) for entry in row] for row in table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{table.caption}"


def tables_of(report: PlanReport) -> list[Table]:
    """Claims, cells, certificates, smoothness, flatness, bounds and pairs, as far as the plan has them."""
    tables = [claim_table(report)] if report.plan.claims else []
    tables.append(cell_table(report))
    if has_certificates(report):
        tables.append(certified_table(report))
    if has_smoothness(report):
        tables.append(smoothness_table(report))
    if has_flatness(report):
        tables += [flatness_table(report), matched_loss_table(report)]
    if has_bounds(report):
        tables.append(bound_table(report))
    return [*tables, pair_table(report)] if report.pairs else tables


def _section(anchor: str, report: PlanReport) -> Section:
    drawn = [
        Figure(name, Markup(with_ids(svg, f"{anchor}-{name}")), caption)  # drawn by us, with names escaped
        for name, svg, caption in figures_of(report)
    ]
    return Section(
        anchor=anchor,
        report=report,
        source=source(report),
        claims=_claims(report),
        tables=tables_of(report),
        figures=drawn,
        settings=setting_table(report),
        records=record_table(report),
        failures=failure_table(report),
    )


def _claims(report: PlanReport) -> list[str]:
    return [check(claim, report).verdict for claim in report.plan.claims]


def _anchors(names: Iterable[str]) -> list[str]:
    """An id for each heading: letters, digits and dashes; a name that comes again gets a number."""
    seen: Counter[str] = Counter()
    anchors = []
    for name in names:
        anchor = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-") or "plan"
        seen[anchor] += 1
        anchors.append(anchor if seen[anchor] == 1 else f"{anchor}-{seen[anchor]}")
    return anchors


def _text(words: str) -> str:
    """Words that Markdown shows as they are, also inside a table."""
    escaped = words.replace("&", "&amp;").replace("<", "&lt;")
    return " ".join(re.sub(r"([\\`*|\[\]])", r"\\\1", escaped).split())
