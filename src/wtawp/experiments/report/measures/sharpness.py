"""The report of the measure "sharpness": is the solution of the second method flatter?

The comparison also contains what the measures "spectrum" and "landscape" of the same settings give, and the losses.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from wtawp.experiments.report.drawing import COLOURS, GREY, drawing, legend_beside, log_ticks, use_log_scale
from wtawp.experiments.report.reporters import FigureSpec, Reporter
from wtawp.experiments.report.tables import NOTHING, Entry, Table
from wtawp.experiments.results.geometry import (
    MATCHED_LOSS_FACTOR,
    GeometryComparison,
    geometry_comparisons,
    ratios_at_matched_loss,
)
from wtawp.experiments.results.statistics import holm
from wtawp.experiments.results.summary import PlanReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SPLIT_COLOURS = {"flatness": COLOURS[5], "loss": COLOURS[6]}  # of the dots, by the kind of quantity
MEAN_COLOUR = COLOURS[1]


def flatness_tables(report: PlanReport) -> list[Table]:
    """Which measures call the second method flatter, with the losses beside them; then the same at matched losses.

    Args:
        report: A plan with its measurements.

    Returns:
        Two tables; none where there is nothing to compare.
    """
    compared = geometry_comparisons(report)
    return [_flatness_table(report, compared), _matched_loss_table(report)] if compared else []


def _flatness_table(report: PlanReport, compared: list[GeometryComparison]) -> Table:
    """Every quantity of both methods, with the paired difference and its verdict."""
    judged = [(i, c.difference.p_value) for i, c in enumerate(compared) if c.is_flatness and c.difference is not None]
    corrected = dict(zip((i for i, _ in judged), holm([p for _, p in judged]), strict=True))
    rows = []
    for i, c in enumerate(compared):
        p, d = corrected.get(i, 1.0), c.difference
        interval = NOTHING if d is None else f"{d.mean:+.4g} ({d.interval('+.4g')})"
        interval = f"not finite in {c.num_gaps}" if c.num_gaps else interval
        smaller = NOTHING if d is None else f"{c.num_smaller} of {d.num_pairs}"
        rows.append((
            Entry(c.column), Entry(c.quantity.label), Entry(f"{c.before:.4g}", c.before),
            Entry(f"{c.after:.4g}", c.after), _mean_ratio(c), Entry(interval), Entry(smaller),
            Entry(f"{p:.2g}" if i in corrected else NOTHING), Entry(c.verdict(p) or NOTHING),
        ))  # fmt: skip
    names = [c.cell.row for c in report.column(report.columns[0])]
    return Table(
        "Is the second method's solution flatter? Means over splits, the geometric mean of the second over the first, "
        "the paired difference with its 95 % interval, the splits in which it is smaller, p after Holm's correction "
        "over the measures of flatness, and what that says. Losses are told beside them: a lower loss alone makes many "
        "of these measures smaller.",
        ("data", "measure", *names, "second / first", "difference", "smaller in", "p, Holm", "second is"),
        tuple(rows),
    )


def _mean_ratio(compared: GeometryComparison) -> Entry:
    """The geometric mean of the ratios over splits."""
    ratios = [r for r in compared.ratio if r > 0]
    mean = float(np.exp(np.log(ratios).mean())) if ratios and not compared.num_gaps else None
    return Entry(NOTHING) if mean is None else Entry(f"{mean:.3g}", mean)


def _matched_loss_table(report: PlanReport) -> Table:
    """The ratios on the splits where the training losses of both methods match."""
    rows = [
        (
            Entry(c.column),
            Entry(c.quantity.label),
            Entry(f"{c.ratio:.2f}", c.ratio),
            Entry(f"{c.num_below} of {c.num_splits}", c.num_below),
        )
        for c in ratios_at_matched_loss(report)
    ]
    return Table(
        "The same where the loss does not decide: splits whose training losses with and without the method lie within "
        f"a factor of {MATCHED_LOSS_FACTOR:g}. The geometric mean over them of the measure with the method over that "
        "without it, and the splits in which it is below 1, flatter. Chosen after the first table was seen.",
        ("data", "measure", "with / without", "flatter in"),
        tuple(rows),
    )


def flatness_ratios(report: PlanReport) -> str:
    """Draw each measure with the method over that without, a dot for each split.

    Args:
        report: A plan whose settings measure sharpness.

    Returns:
        The figure as SVG text; "" where there is nothing to compare.
    """
    compared = geometry_comparisons(report)
    if not compared:
        return ""
    columns = list(dict.fromkeys(c.column for c in compared))
    names = list(dict.fromkeys(c.quantity.label for c in compared))
    down = math.ceil(len(columns) / 2)
    across = math.ceil(len(columns) / down)
    with drawing(down, across, 4.6 * across + 1.5, (0.9 + 0.3 * len(names)) * down) as (axes, out):
        for ax in axes[len(columns) :]:
            ax.set_axis_off()
        for i, (ax, column) in enumerate(zip(axes, columns, strict=False)):
            ax.axvline(1, color=GREY, linewidth=0.8)
            for c in (c for c in compared if c.column == column):
                _draw_ratios(ax, c, names.index(c.quantity.label))
            use_log_scale(ax, "x")
            ax.set_yticks(range(len(names)), names if i % across == 0 else [])
            ax.set(title=column, ylim=(len(names) - 0.5, -0.5), xlabel="with WT-AWP / without")
            ax.set_xticks(log_ticks(*ax.get_xlim()))
        _draw_legend(axes[across - 1])
    return out[0]


def _draw_ratios(ax: "Axes", compared: GeometryComparison, height: float) -> None:
    """Draw a dot for each split and their geometric mean; the rim says how many splits have no ratio."""
    ratios = np.array([r for r in compared.ratio if r > 0])
    if len(ratios):
        spread = height + np.linspace(-0.22, 0.22, len(ratios))
        ax.plot(ratios, spread, "o", color=SPLIT_COLOURS[compared.quantity.kind], markersize=3, alpha=0.7)
        ax.plot([np.exp(np.log(ratios).mean())], [height], "D", color=MEAN_COLOUR, markersize=5)
    if missing := len(compared.ratio) - len(ratios):
        ax.annotate(f"{missing} without", (1, height), xycoords=("axes fraction", "data"), ha="right", fontsize=7)


def _draw_legend(ax: "Axes") -> None:
    """Explain dots and diamonds beside the axes."""
    symbols = {
        "flatness, a split; below 1 is flatter": (SPLIT_COLOURS["flatness"], "o"),
        "loss, a split": (SPLIT_COLOURS["loss"], "o"),
        "mean over splits": (MEAN_COLOUR, "D"),
    }
    for label, (colour, marker) in symbols.items():
        ax.plot([], [], marker, color=colour, markersize=4, label=label)
    legend_beside(ax, fontsize=8)


REPORTER = Reporter(
    tables=(flatness_tables,),
    figures={
        "flatness_ratios": FigureSpec(
            flatness_ratios,
            "Each measure of flatness (light blue) and the final losses (black) with the method over the same without "
            "it: a dot for each split, a diamond for their geometric mean. Below 1 is flatter.",
        )
    },
    order=30,
)
