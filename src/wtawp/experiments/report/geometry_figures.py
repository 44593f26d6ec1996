"""Flatness and smoothness as figures and tables, from records alone."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from wtawp.experiments.report.drawing import COLOURS, GREY, drawing, method_style, nice_ticks, use_log_scale
from wtawp.experiments.report.tables import NOTHING, Entry, Table
from wtawp.experiments.results.geometry import (
    LIKE,
    FlatComparison,
    SmoothPair,
    flatness_comparisons,
    measures_of,
    ratios_at_matched_loss,
    results_of,
    smooth_pairs,
)
from wtawp.experiments.results.statistics import holm
from wtawp.experiments.results.summary import PlanReport


def smoothness_arrows(report: PlanReport, png: Path | None = None) -> str:
    """fig:lipcora: an arrow for each initialisation, from the model without the method to the one with it."""
    found = smooth_pairs(report)
    if not found:
        return ""
    columns = list(dict.fromkeys(column for column, *_ in found))
    panels = list(dict.fromkeys((matrix, definition) for _, matrix, definition in found))
    rows = report.column(report.columns[0])
    with drawing(len(columns), len(panels), 2.9 * len(panels), 2.8 * len(columns), png=png) as (axes, out):
        for i, column in enumerate(columns):
            for ax, (matrix, definition) in zip(axes[i * len(panels) :], panels, strict=False):
                pairs = found.get((column, matrix, definition), [])
                _arrows(ax, pairs, [c.cell.row for c in rows])
                better = sum(pair.is_better for pair in pairs)
                ax.set_title(f"{column}, {matrix}, {definition}\n{better} of {len(pairs)} better and smoother")
                by = f"{matrix}_hat" if (matrix, definition) == ("A", "released") else matrix
                ax.set(xlabel=f"mean gradient norm by {by}")
            axes[i * len(panels)].set_ylabel("test accuracy, %")
        axes[0].legend(loc="best", fontsize=8)
    return out[0]


def _arrows(ax: Axes, pairs: Sequence[SmoothPair], names: Sequence[str]) -> None:
    for pair in pairs:
        ax.annotate("", pair.after, pair.before, arrowprops={"arrowstyle": "->", "color": GREY, "linewidth": 0.8})
    for name, side in zip(names, ("before", "after"), strict=True):
        points = np.array([getattr(pair, side) for pair in pairs]).reshape(-1, 2)
        ax.plot(*points.T, "o", color=method_style(name)["color"], markersize=4, label=name)
    ax.margins(0.12)
    ax.xaxis.set_major_locator(MaxNLocator(4))


def smoothness_table(report: PlanReport) -> Table:
    """Mean norms without and with the method, and in how many pairs it is better, smoother, both."""
    rows = []
    for (column, matrix, definition), pairs in smooth_pairs(report).items():
        norms = [float(np.mean([getattr(pair, side)[0] for pair in pairs])) for side in ("before", "after")]
        counts = (
            sum(p.after[1] > p.before[1] for p in pairs),
            sum(p.after[0] < p.before[0] for p in pairs),
            sum(p.is_better for p in pairs),
        )
        rows.append((
            Entry(column), Entry(matrix), Entry(definition), *(Entry(f"{norm:.4g}", norm) for norm in norms),
            *(Entry(f"{count} of {len(pairs)}", count) for count in counts),
        ))  # fmt: skip
    names = [c.cell.row for c in report.column(report.columns[0])]
    return Table(
        "Mean norm of the loss gradient by the adjacency matrix A or the features X at noisy inputs, over runs. "
        "'paper': Gaussian noise on A or X, loss on the training nodes; 'released': uniform noise of that length as a "
        "whole on the normalised matrix or on X, loss on all nodes, with dropout. "
        "Then the pairs in which the second method is more accurate, smoother, and both.",
        ("data", "by", "definition", *(f"norm, {name}" for name in names), "more accurate", "smoother", "both"),
        tuple(rows),
    )


def landscape_lines(report: PlanReport, png: Path | None = None) -> str:
    """fig:lossland: the rise of the loss along random directions, all methods aligned at 0."""
    panels = [
        (column, place, measure)
        for column in report.columns
        for place, measure in measures_of(report, column)
        if measure.name == "landscape" and any(results_of(c, place) for c in report.column(column))
    ]
    if not panels:
        return ""
    across = max(Counter(column for column, *_ in panels).values())
    down = math.ceil(len(panels) / across)
    with drawing(down, across, 4.2 * across, 3.0 * down, png=png) as (axes, out):
        for ax, (column, place, measure) in zip(axes, panels, strict=True):
            for cell in report.column(column):
                results = list(results_of(cell, place).values())
                if results:
                    lines = np.array([np.subtract(r["mean"], r["loss"]) for r in results])
                    gaps = sum(r["gaps"] for r in results)
                    draw_lines(ax, results[0]["distances"], lines, cell.cell.row, [r["loss"] for r in results], gaps)
            ax.set(title=column, xlabel=unit_of(str(dict(measure.options).get("scale", "layer"))))
            ax.legend(loc="upper center", fontsize=8)
        for ax in axes[::across]:
            ax.set_ylabel("rise of the training loss")
    return out[0]


def unit_of(scale: str) -> str:
    """What a distance along a direction is measured in."""
    return {
        "unit": "distance between weights",
        "layer": "distance, in lengths of each layer's weights",
        "filter": "distance, in lengths of each filter's weights",
    }[scale]


def draw_lines(
    ax: Axes, distances: Sequence[float], lines: NDArray[np.float64], row: str, losses: Sequence[float],
    gaps: int | None = None,
) -> None:  # fmt: skip
    """Curves [k, distances] of a method: their mean, and quartiles as a band; what is not finite is a gap.

    `gaps` tells how many losses were not finite, where the curves are means of others.
    """
    finite = np.where(np.isfinite(lines), lines, np.nan)
    look = method_style(row)
    gaps = int((~np.isfinite(lines)).sum()) if gaps is None else gaps
    told = f"{row}, loss {np.mean(losses):.3f}" + (f", {gaps} gaps" if gaps else "")
    holes = np.isnan(finite).any(0)  # a mean over the rest would be of other lines than beside it
    if len(finite) > 1:
        band = np.quantile(np.nan_to_num(finite), [0.25, 0.75], axis=0)
        ax.fill_between(distances, *np.where(holes, np.nan, band), color=look["color"], alpha=0.18, linewidth=0)
    ax.plot(distances, np.where(holes, np.nan, np.nan_to_num(finite).mean(0)), linewidth=1.6, label=told, **look)


def flatness_table(report: PlanReport) -> Table:
    """Which measures call the second method flatter, with the losses beside them."""
    compared = flatness_comparisons(report)
    judged = [c for c in compared if c.is_flatness and c.difference is not None]
    corrected = dict(zip(map(id, judged), holm([_p(c) for c in judged]), strict=True))
    rows = []
    for c in compared:
        p, told = corrected.get(id(c), 1.0), c.difference
        interval = NOTHING if told is None else f"{told.mean:+.4g} ({told.low:+.4g} to {told.high:+.4g})"
        interval = f"not finite in {c.num_gaps}" if c.num_gaps else interval
        said = f"{p:.2g}" if id(c) in corrected else NOTHING
        won = NOTHING if told is None else f"{c.smaller} of {told.num_pairs}"
        rows.append((
            Entry(c.column), Entry(c.quantity), Entry(f"{c.before:.4g}", c.before), Entry(f"{c.after:.4g}", c.after),
            _ratio(c), Entry(interval), Entry(won), Entry(said), Entry(c.verdict(p) or NOTHING),
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


def _ratio(compared: FlatComparison) -> Entry:
    ratios = [r for r in compared.ratio if r > 0]
    mean = float(np.exp(np.log(ratios).mean())) if ratios and not compared.num_gaps else None
    return Entry(NOTHING) if mean is None else Entry(f"{mean:.3g}", mean)


def matched_loss_table(report: PlanReport) -> Table:
    """The ratios again, where both methods' training losses are alike."""
    rows = [
        (
            Entry(c.column),
            Entry(c.quantity),
            Entry(f"{c.ratio:.2f}", c.ratio),
            Entry(f"{c.below} of {c.num_splits}", c.below),
        )
        for c in ratios_at_matched_loss(report)
    ]
    return Table(
        "The same where the loss does not decide: splits whose training losses with and without the method lie within "
        f"a factor of {LIKE:g}. The geometric mean over them of the measure with the method over that without it, and "
        "the splits in which it is below 1, flatter. Chosen after the first table was seen.",
        ("data", "measure", "with / without", "flatter in"),
        tuple(rows),
    )


def _p(comparison: FlatComparison) -> float:
    assert comparison.difference is not None
    return comparison.difference.p_value


def flatness_ratios(report: PlanReport, png: Path | None = None) -> str:
    """Each measure with the method over that without, a dot for each split."""
    compared = flatness_comparisons(report)
    columns = list(dict.fromkeys(c.column for c in compared))
    if not compared:
        return ""
    names = list(dict.fromkeys(c.quantity for c in compared))
    down = math.ceil(len(columns) / 2)
    across = math.ceil(len(columns) / down)
    with drawing(down, across, 4.6 * across + 1.5, (0.9 + 0.3 * len(names)) * down, png=png) as (axes, out):
        for ax in axes[len(columns) :]:
            ax.set_axis_off()
        for i, (ax, column) in enumerate(zip(axes, columns, strict=False)):
            ax.axvline(1, color=GREY, linewidth=0.8)
            for c in (c for c in compared if c.column == column):
                _ratio_row(ax, c, names.index(c.quantity))
            use_log_scale(ax, "x")
            ax.set_yticks(range(len(names)), names if i % across == 0 else [])
            ax.set(title=column, ylim=(len(names) - 0.5, -0.5), xlabel="with WT-AWP / without")
            ax.set_xticks(nice_ticks(*ax.get_xlim()))
        _ratio_legend(axes[across - 1])
    return out[0]


def _ratio_row(ax: Axes, compared: FlatComparison, height: float) -> None:
    """A dot for each split and their geometric mean; how many have no ratio is told at the rim."""
    ratios = np.array([r for r in compared.ratio if r > 0])
    if len(ratios):
        spread = height + np.linspace(-0.22, 0.22, len(ratios))
        ax.plot(ratios, spread, "o", color=COLOURS[5 if compared.is_flatness else 6], markersize=3, alpha=0.7)
        ax.plot([np.exp(np.log(ratios).mean())], [height], "D", color=COLOURS[1], markersize=5)
    if missing := len(compared.ratio) - len(ratios):
        ax.annotate(f"{missing} without", (1, height), xycoords=("axes fraction", "data"), ha="right", fontsize=7)


def _ratio_legend(ax: Axes) -> None:
    dots = {"flatness, a split; below 1 is flatter": (COLOURS[5], "o"), "loss, a split": (COLOURS[6], "o"),
            "mean over splits": (COLOURS[1], "D")}  # fmt: skip
    for told, (colour, marker) in dots.items():
        ax.plot([], [], marker, color=colour, markersize=4, label=told)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8)


def has_smoothness(report: PlanReport) -> bool:
    """Whether there is anything for `smoothness_table`."""
    return bool(smooth_pairs(report))


def has_flatness(report: PlanReport) -> bool:
    """Whether there is anything for `flatness_table`."""
    return bool(flatness_comparisons(report))
