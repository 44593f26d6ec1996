"""The report as Markdown, and as a folder of files that a repository shows.

Pure functions of plans and records: the same records give the same bytes.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from wtawp.base import write_atomic
from wtawp.experiments.report.answers import answers, is_own
from wtawp.experiments.report.contents import CLAIMS, anchors, claim_overview, headlines, provenance, tables_of
from wtawp.experiments.report.dataset_tables import graph_dataset_table, node_dataset_table
from wtawp.experiments.report.figures import captions_of, figures_of
from wtawp.experiments.report.plan_tables import failure_table
from wtawp.experiments.report.tables import Table
from wtawp.experiments.results.summary import PlanReport

MADE_BY = """Everything in this folder but the records (`*.jsonl.gz`, `certificate_soundness.json`) is made from them: `wtawp report --records results --folder results`.
What the differences come from is in [docs/deviations.md](../docs/deviations.md); how to train it all again in
[docs/experiments.md](../docs/experiments.md)."""  # noqa: E501


def render_markdown(reports: Sequence[PlanReport], *, figures: str | None = None) -> str:
    """Write plans as Markdown, with all their tables.

    Args:
        reports: Plans with their measurements.
        figures: The folder of the figures, relative to the text, for links to them; by default there are no links.

    Returns:
        The text.
    """
    parts = ["# Results", *([] if figures is None else [MADE_BY]), *headlines(reports)]
    if (claims := claim_overview(reports)) is not None:
        parts += [f"## {CLAIMS}", markdown_table(claims)]
    for anchor, report in zip(anchors(r.plan.name for r in reports), reports, strict=True):
        parts += [f"## {_escape(report.plan.name)}: {_escape(report.plan.title)}", _escape(provenance(report))]
        parts += [_escape(answer) for answer in (answers(report) if is_own(report) else [])]
        parts += [markdown_table(table) for table in tables_of(report)]
        if figures is not None and report.records:  # where nothing was measured, nothing is drawn
            parts += [f"![{caption}]({figures}/{anchor}-{name}.svg)" for name, caption in captions_of(report.plan)]
        if report.failed:
            parts.append(markdown_table(failure_table(report)))
    return "\n\n".join(parts) + "\n"


def write_folder(reports: Sequence[PlanReport], folder: Path) -> None:
    """Write the report as README.md, datasets.md and figures/*.svg.

    Args:
        reports: Plans with their measurements.
        folder: Where to write; it is created if necessary.
    """
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "README.md", render_markdown(reports, figures="figures").encode())
    write_atomic(folder / "datasets.md", render_dataset_tables().encode())
    for anchor, report in zip(anchors(r.plan.name for r in reports), reports, strict=True):
        for name, svg, _ in figures_of(report):
            if svg:
                write_atomic(folder / "figures" / f"{anchor}-{name}.svg", svg.encode())


def render_dataset_tables() -> str:
    """Write the paper's two tables of data sets beside our counts as Markdown; nothing is downloaded.

    Returns:
        The text.
    """
    tables = node_dataset_table(), graph_dataset_table()
    return "\n\n".join(["# Data sets", *map(markdown_table, tables)]) + "\n"


def markdown_table(table: Table) -> str:
    """Write a table as Markdown: the rows under their headers, then the caption; numbers are aligned to the right.

    Args:
        table: The table.

    Returns:
        The text, without a line break at its end.
    """
    is_numeric = [any(row[i].order is not None for row in table.rows) for i in range(len(table.headers))]
    lines = [table.headers, ["---:" if right else "---" for right in is_numeric]]
    lines += [[_escape(entry.text) for entry in row] for row in table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{table.caption}"


def _escape(words: str) -> str:
    """Words that Markdown shows literally, also inside a table."""
    escaped = words.replace("&", "&amp;").replace("<", "&lt;")
    return " ".join(re.sub(r"([\\`*|\[\]])", r"\\\1", escaped).split())
