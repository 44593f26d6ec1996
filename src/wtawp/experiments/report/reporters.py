"""Reporters: the tables, figures and exported data that belong to a measure.

A measure named in the settings of a plan has its reporter in the module `wtawp.experiments.report.measures.<name>`, as
`REPORTER`, or registers one with `register_reporter`. A measure without a reporter is still run and recorded.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any

from wtawp.experiments.report.tables import Table
from wtawp.experiments.results.summary import PlanReport
from wtawp.experiments.spec import Plan

HOME = "wtawp.experiments.report.measures"
_registered: dict[str, "Reporter"] = {}


@dataclass(frozen=True)
class FigureSpec:
    """How to draw a figure, and what it shows.

    Attributes:
        draw: Takes a report and returns the figure as SVG text; "" where there is nothing to draw yet.
        caption: What the figure shows, in sentences.
        where_printed: What it shows besides for a plan whose numbers the paper prints; nothing by default.
    """

    draw: Callable[[PlanReport], str]
    caption: str
    where_printed: str = ""


@dataclass(frozen=True)
class Reporter:
    """What the report shows of a measure.

    Attributes:
        tables: Functions that take a report and return tables; an empty list where nothing was measured.
        figures: The figures that a plan may name.
        export: Takes a report and returns data for `--json`, by name; an empty mapping where nothing was measured.
        order: Reporters with a lower number come first in a report; equal ones in the order of the plan.
    """

    tables: tuple[Callable[[PlanReport], list[Table]], ...] = ()
    figures: Mapping[str, FigureSpec] = field(default_factory=dict)
    export: Callable[[PlanReport], dict[str, Any]] | None = None
    order: int = 100


def reporter_of(measure: str) -> Reporter | None:
    """Find the reporter of a measure.

    Args:
        measure: The name of the measure in plans, such as "certificate".

    Returns:
        The registered reporter, or the `REPORTER` of the module of that name; None where there is neither.
    """
    if measure in _registered:
        return _registered[measure]
    if not measure.isidentifier() or find_spec(f"{HOME}.{measure}") is None:
        return None
    reporter = import_module(f"{HOME}.{measure}").REPORTER
    assert isinstance(reporter, Reporter)
    return reporter


def register_reporter(measure: str, reporter: Reporter) -> None:
    """Add the reporter of a measure of one's own.

    Args:
        measure: The name of the measure in plans.
        reporter: Its tables, figures and data.

    Raises:
        ValueError: If the measure has a reporter already, or one of its figures has the name of another figure.
    """
    if reporter_of(measure) is not None:
        raise ValueError(f"measure {measure!r} has a reporter already; choose another name")
    from wtawp.experiments.report.figures import figure_names  # here, because it imports this module

    if taken := sorted(set(reporter.figures) & set(figure_names())):
        raise ValueError(f"figure {taken[0]!r} exists already; choose another name")
    _registered[measure] = reporter


def all_reporters() -> dict[str, Reporter]:
    """Every reporter there is.

    Returns:
        The built-in and registered reporters, by the name of their measure.
    """
    built_in = [module.name for module in iter_modules(import_module(HOME).__path__)]
    reporters = {name: reporter_of(name) for name in (*built_in, *_registered)}
    return {name: reporter for name, reporter in reporters.items() if reporter is not None}


def reporters_of(plan: Plan) -> list[Reporter]:
    """The reporters of the measures in a plan's settings.

    Args:
        plan: The plan.

    Returns:
        Each reporter once, by its `order`.
    """
    settings = [cell.setting for cell in plan.cells]
    measures = [m for s in settings for m in (*s.measures, *(m for m in (s.poison, s.noise) if m is not None))]
    reporters = [reporter_of(name) for name in dict.fromkeys(measure.name for measure in measures)]
    return sorted((r for r in reporters if r is not None), key=lambda reporter: reporter.order)
