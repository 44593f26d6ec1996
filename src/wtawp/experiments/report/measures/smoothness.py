"""The report of the measure "smoothness": gradient norms by graph and features, without and with the method."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from wtawp.experiments.report.drawing import GREY, drawing, method_style
from wtawp.experiments.report.reporters import FigureSpec, Reporter
from wtawp.experiments.report.tables import Entry, Table, number
from wtawp.experiments.results.geometry import SmoothnessPair, smoothness_comparisons
from wtawp.experiments.results.summary import CellReport, PlanReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def smoothness_arrows(report: PlanReport) -> str:
    """fig:lipcora: draw an arrow for each run, from the model without the method to the one with it.

    Args:
        report: A plan whose settings measure smoothness.

    Returns:
        The figure as SVG text; "" where no run is finished.
    """
    compared = {(c.column, c.matrix, c.definition): c for c in smoothness_comparisons(report)}
    if not compared:
        return ""
    columns = list(dict.fromkeys(column for column, *_ in compared))
    panels = list(dict.fromkeys((matrix, definition) for _, matrix, definition in compared))
    cells = report.column(report.columns[0])
    with drawing(len(columns), len(panels), 2.9 * len(panels), 2.8 * len(columns)) as (axes, out):
        for i, column in enumerate(columns):
            for ax, (matrix, definition) in zip(axes[i * len(panels) :], panels, strict=False):
                comparison = compared.get((column, matrix, definition))
                pairs, num_better = ((), 0) if comparison is None else (comparison.pairs, comparison.num_better)
                _draw_arrows(ax, pairs, cells)
                ax.set_title(f"{column}, {matrix}, {definition}\n{num_better} of {len(pairs)} better and smoother")
                by = f"{matrix}_hat" if (matrix, definition) == ("A", "released") else matrix
                ax.set(xlabel=f"mean gradient norm by {by}")
            axes[i * len(panels)].set_ylabel("test accuracy, %")
        axes[0].legend(loc="best", fontsize=8)
    return out[0]


def _draw_arrows(ax: "Axes", pairs: Sequence[SmoothnessPair], cells: Sequence[CellReport]) -> None:
    """Draw an arrow from the first to the second model of each pair, and a dot for each model."""
    from matplotlib.ticker import MaxNLocator

    for pair in pairs:
        ax.annotate("", pair.after, pair.before, arrowprops={"arrowstyle": "->", "color": GREY, "linewidth": 0.8})
    for cell, side in zip(cells, ("before", "after"), strict=True):
        points = np.array([getattr(pair, side) for pair in pairs]).reshape(-1, 2)
        ax.plot(*points.T, "o", color=method_style(cell.cell.setting.awp)["color"], markersize=4, label=cell.cell.row)
    ax.margins(0.12)
    ax.xaxis.set_major_locator(MaxNLocator(4))


def smoothness_tables(report: PlanReport) -> list[Table]:
    """Mean norms without and with the method, and the numbers of pairs that are more accurate, smoother and both.

    Args:
        report: A plan with its measurements.

    Returns:
        One table; none where no smoothness was measured.
    """
    rows = []
    for compared in smoothness_comparisons(report):
        pairs = compared.pairs
        norms = [_geometric_mean([getattr(pair, side)[0] for pair in pairs]) for side in ("before", "after")]
        counts = (
            sum(p.after[1] > p.before[1] for p in pairs),
            sum(p.after[0] < p.before[0] for p in pairs),
            compared.num_better,
        )
        rows.append((
            Entry(compared.column), Entry(compared.matrix), Entry(compared.definition),
            *(number(norm, ".4g") for norm in norms), number(norms[1] / norms[0] if norms[0] else None, ".3g"),
            *(Entry(f"{count} of {len(pairs)}", count) for count in counts),
        ))  # fmt: skip
    if not rows:
        return []
    names = [c.cell.row for c in report.column(report.columns[0])]
    caption = (
        "Mean norm of the loss gradient by the adjacency matrix A or the features X at noisy inputs, geometric means "
        "over runs, and that of the second method over the first. "
        "'paper': Gaussian noise on A or X, loss on the training nodes; 'released': uniform noise of that length as a "
        "whole on the normalised matrix or on X, loss on all nodes, with dropout. "
        "Then the pairs in which the second method is more accurate, smoother, and both."
    )
    headers = (
        "data",
        "by",
        "definition",
        *(f"norm, {name}" for name in names),
        "second / first",
        "more accurate",
        "smoother",
        "both",
    )
    return [Table(caption, headers, tuple(rows))]


def _geometric_mean(norms: Sequence[float]) -> float:
    """The geometric mean; 0 where a norm is."""
    return math.exp(fmean(map(math.log, norms))) if min(norms) > 0 else 0.0


REPORTER = Reporter(
    tables=(smoothness_tables,),
    figures={
        "smoothness_arrows": FigureSpec(
            smoothness_arrows,
            "Test accuracy over the mean norm of the loss gradient by the adjacency matrix A or the features X at "
            "noisy inputs: an arrow for each run, from the model without the method to the model with it. "
            "Up and to the left is more accurate and smoother.",
        )
    },
    order=20,
)
