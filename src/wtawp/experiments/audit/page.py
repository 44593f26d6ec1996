"""The audit as one self-contained HTML page, without scripts and without requests to the network."""

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from wtawp.experiments.audit.figures import Panel, panels_of
from wtawp.experiments.audit.findings import Audit, AuditSection
from wtawp.experiments.report.drawing import embed


def audit_page(audit: Audit) -> str:
    """Write an audit as one HTML page: the summary first, then the sections, then how it was made.

    Args:
        audit: The results.

    Returns:
        The page; it needs no other file and no network.
    """
    environment = Environment(
        loader=PackageLoader("wtawp.experiments.audit"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("audit.html.j2").render(
        audit=audit,
        sections=[(section, _drawn(section)) for section in audit.sections],
    )


def _drawn(section: AuditSection) -> list[tuple[Panel, Markup]]:
    """The panels of a section, with their drawings as markup: they are drawn here, from numbers and escaped names."""
    panels = list(panels_of(section))
    return [(p, Markup(embed(p.svg, prefix=f"{section.section.key}-{i}", label=p.alt))) for i, p in enumerate(panels)]
