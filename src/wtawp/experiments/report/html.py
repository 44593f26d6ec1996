"""The report as one HTML page that requests nothing from the network."""

from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from wtawp.experiments.report.answers import answers, is_own
from wtawp.experiments.report.artifacts import StoredArtifact
from wtawp.experiments.report.contents import (
    CLAIMS,
    anchors,
    claim_overview,
    claim_verdicts,
    headlines,
    provenance,
    tables_of,
)
from wtawp.experiments.report.drawing import embed
from wtawp.experiments.report.figures import figures_of
from wtawp.experiments.report.plan_tables import failure_table, record_table, setting_table
from wtawp.experiments.report.tables import Table
from wtawp.experiments.results.outcomes import Verdict
from wtawp.experiments.results.summary import PlanReport


@dataclass(frozen=True)
class Figure:
    """A figure of the page.

    Attributes:
        name: Its name in the plan.
        svg: The drawing; "" where nothing was measured yet.
        caption: What it shows.
    """

    name: str
    svg: Markup
    caption: str


@dataclass(frozen=True)
class Part:
    """A part of the page that belongs to no plan, such as the search that chose what a plan compares.

    Attributes:
        title: Its heading.
        paragraphs: Sentences below the heading.
        tables: Its tables.
        figures: Its figures.
    """

    title: str
    paragraphs: tuple[str, ...]
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class PlanSection:
    """A plan as the page shows it.

    Attributes:
        anchor: The id of its heading.
        report: The plan with its measurements.
        answers: What the comparisons of the user say, in sentences; none for plans of the paper.
        provenance: Where the numbers come from.
        claims: The verdicts on its claims.
        tables: Its tables of results.
        figures: Its figures.
        settings: What each cell trains.
        records: Where the numbers of each cell come from.
        failures: The failed runs.
    """

    anchor: str
    report: PlanReport
    answers: list[str]
    provenance: str
    claims: list[Verdict]
    tables: list[Table]
    figures: list[Figure]
    settings: Table
    records: Table
    failures: Table


def render_html(
    reports: Sequence[PlanReport], artifacts: Sequence[StoredArtifact] = (), parts: Sequence[Part] = ()
) -> str:
    """Write plans as one page: sortable tables, figures, settings and records; then artifacts of single models.

    Args:
        reports: Plans with their measurements.
        artifacts: What the commands that inspect single models wrote; none by default.
        parts: What is shown before the plans; nothing by default.

    Returns:
        The page.
    """
    environment = Environment(
        loader=PackageLoader("wtawp.experiments.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names = anchors(r.plan.name for r in reports)
    claims = claim_overview(reports)
    claimed = () if claims is None else (Part(CLAIMS, (), (claims,), ()),)
    sections = [_section(i, a, r) for i, (a, r) in enumerate(zip(names, reports, strict=True))]
    return environment.get_template("report.html.j2").render(
        sections=sections,
        headlines=headlines(reports),
        artifacts=artifacts,
        parts=(*claimed, *parts),
        is_beside_the_paper=any(r.is_printed or r.plan.claims for r in reports),
    )


def _section(number: int, anchor: str, report: PlanReport) -> PlanSection:
    """A plan with everything that the page shows of it."""
    figures = [
        Figure(name, Markup(embed(svg, prefix=f"p{number}f{i}", label=caption) if svg else ""), caption)
        for i, (name, svg, caption) in enumerate(figures_of(report))  # drawn by us, with names escaped
    ]
    return PlanSection(
        anchor=anchor,
        report=report,
        answers=answers(report) if is_own(report) else [],
        provenance=provenance(report),
        claims=claim_verdicts(report),
        tables=tables_of(report),
        figures=figures,
        settings=setting_table(report),
        records=record_table(report),
        failures=failure_table(report),
    )
