"""The report of the measure "sharpness": is the solution of the second method flatter?

The comparison also contains what the measures "spectrum" and "landscape" of the same settings give, and the losses.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from wtawp.experiments.report.drawing import COLOURS, GREY, drawing, legend_beside, log_ticks, use_log_scale
from wtawp.experiments.report.reporters import FigureSpec, Reporter
from wtawp.experiments.report.tables import NOTHING, Entry, Table, number
from wtawp.experiments.results.geometry import (
    MATCHED_LOSS_FACTOR,
    MODE_GAP,
    GeometryComparison,
    Modes,
    find_modes,
    geometry_comparisons,
    ratios_at_matched_loss,
    with_holm,
)
from wtawp.experiments.results.summary import PlanReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SPLIT_COLOURS = {"flatness": COLOURS[5], "loss": COLOURS[6]}  # of the dots, by the kind of quantity
MEAN_COLOUR = COLOURS[1]


def flatness_tables(report: PlanReport) -> list[Table]:
    """Which measures call the second method flatter, with the losses beside them; then two kinds of splits apart.

    Args:
        report: A plan with its measurements.

    Returns:
        A table of all splits, one of the splits with matched losses and, where the splits of a column are of two kinds,
        one of both kinds; none where there is nothing to compare.
    """
    compared = geometry_comparisons(report)
    if not compared:
        return []
    modes = find_modes(compared)
    tables = [_flatness_table(report, compared), _matched_loss_table(report)]
    return [*tables, _mode_table(compared, modes)] if modes else tables


def _flatness_table(report: PlanReport, compared: list[GeometryComparison]) -> Table:
    """Every quantity of both methods, with the ratio and its verdict."""
    rows = []
    for c, p in with_holm(compared):
        interval = NOTHING if c.ratio_interval is None else "{:.3g} to {:.3g}".format(*c.ratio_interval)
        interval = f"not positive in {c.num_not_positive}" if c.num_not_positive else interval
        smaller = NOTHING if c.log_ratio is None else f"{c.num_smaller} of {c.log_ratio.num_pairs}"
        rows.append((
            Entry(c.column), Entry(c.quantity.label), Entry(f"{c.before:.4g}", c.before),
            Entry(f"{c.after:.4g}", c.after), number(c.mean_ratio, ".3g"), Entry(interval), Entry(smaller),
            number(p, ".2g"), Entry(NOTHING if p is None else c.verdict(p)),
        ))  # fmt: skip
    names = [c.cell.row for c in report.column(report.columns[0])]
    return Table(
        "Is the second method's solution flatter? Geometric means over splits, that of the second over the first with "
        "its 95 % interval, the splits in which it is smaller, p of a paired t-test of the logarithms after Holm's "
        "correction over the measures of flatness, and what that says. Losses stand beside them: a lower loss alone "
        "makes many of these measures smaller.",
        ("data", "measure", *names, "second / first", "95 % interval", "smaller in", "p, Holm", "second is"),
        tuple(rows),
    )


def _mode_table(compared: list[GeometryComparison], modes: dict[str, Modes]) -> Table:
    """The ratios in the two kinds of splits."""
    rows = []
    for c in compared:
        if c.column in modes and c.log_ratio is not None:
            mode = modes[c.column]
            lower, upper = mode.mean_ratios(c)
            rows.append((
                Entry(c.column), Entry(c.quantity.label), number(lower, ".3g"),
                Entry(str(len(mode.lower)), len(mode.lower)), number(upper, ".3g"),
                Entry(str(len(mode.upper)), len(mode.upper)),
            ))  # fmt: skip
    return Table(
        "Splits are of two kinds, which one mean would hide: the ratios of their training losses, with the method over "
        f"without it, have a gap of more than a factor of {MODE_GAP:g}. The geometric mean of second over first in "
        "each kind: where that ratio lies below the gap (validation stops plain training early, the losses are "
        "alike) and above it.",
        ("data", "measure", "below the gap", "splits", "above the gap", "splits above"),
        tuple(rows),
    )


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
    columns, modes = list(dict.fromkeys(c.column for c in compared)), find_modes(compared)
    names = list(dict.fromkeys(c.quantity.label for c in compared))
    down = math.ceil(len(columns) / 2)
    across = math.ceil(len(columns) / down)
    with drawing(down, across, 4.6 * across + 1.5, (0.9 + 0.3 * len(names)) * down) as (axes, out):
        for ax in axes[len(columns) :]:
            ax.set_axis_off()
        for i, (ax, column) in enumerate(zip(axes, columns, strict=False)):
            ax.axvline(1, color=GREY, linewidth=0.8)
            for c in (c for c in compared if c.column == column):
                _draw_ratios(ax, c, names.index(c.quantity.label), modes.get(column))
            use_log_scale(ax, "x")
            ax.set_yticks(range(len(names)), names if i % across == 0 else [])
            ax.set(title=column, ylim=(len(names) - 0.5, -0.5), xlabel="with WT-AWP / without")
            ax.set_xticks(log_ticks(*ax.get_xlim()))
        _draw_legend(axes[across - 1], has_modes=bool(modes))
    return out[0]


def _draw_ratios(ax: "Axes", compared: GeometryComparison, height: float, modes: Modes | None) -> None:
    """Draw a dot for each split and their geometric mean, or that of each mode; the rim counts splits without ratio."""
    ratios = np.array([r for r in compared.ratio if r > 0])
    if len(ratios):
        spread = height + np.linspace(-0.22, 0.22, len(ratios))
        ax.plot(ratios, spread, "o", color=SPLIT_COLOURS[compared.quantity.kind], markersize=3, alpha=0.7)
        is_apart = modes is not None and compared.log_ratio is not None
        means = modes.mean_ratios(compared) if modes and is_apart else (np.exp(np.log(ratios).mean()),)
        for mean, face in zip(means, (MEAN_COLOUR, "white"), strict=False):
            ax.plot([mean], [height], "D", color=MEAN_COLOUR, markerfacecolor=face, markersize=5)
    if missing := len(compared.ratio) - len(ratios):
        ax.annotate(f"{missing} without", (1, height), xycoords=("axes fraction", "data"), ha="right", fontsize=7)


def _draw_legend(ax: "Axes", *, has_modes: bool) -> None:
    """Explain dots and diamonds beside the axes."""
    symbols = {
        "flatness, a split; below 1 is flatter": (SPLIT_COLOURS["flatness"], "o", SPLIT_COLOURS["flatness"]),
        "loss, a split": (SPLIT_COLOURS["loss"], "o", SPLIT_COLOURS["loss"]),
        "mean over splits": (MEAN_COLOUR, "D", MEAN_COLOUR),
    }
    if has_modes:  # where there are two diamonds, the filled one is that of splits with similar training losses
        symbols["mean over splits with\ndifferent training losses"] = (MEAN_COLOUR, "D", "white")
    for label, (colour, marker, face) in symbols.items():
        ax.plot([], [], marker, color=colour, markerfacecolor=face, markersize=4, label=label)
    legend_beside(ax, fontsize=8)


REPORTER = Reporter(
    tables=(flatness_tables,),
    figures={
        "flatness_ratios": FigureSpec(
            flatness_ratios,
            "Each measure of flatness (light blue) and the final losses (black) with the method over the same without "
            "it: a dot for each split, a diamond for their geometric mean. Where the splits are of two kinds, the "
            "filled diamond is the mean of those whose training losses are alike, the open one that of the others. "
            "Below 1 is flatter.",
        )
    },
    order=30,
)
