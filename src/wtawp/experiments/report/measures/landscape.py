"""The report of the measure "landscape": the loss along random lines through the weights."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wtawp.experiments.report.drawing import LineStyle, drawing, method_style
from wtawp.experiments.report.reporters import FigureSpec, Reporter
from wtawp.experiments.results.geometry import measures_of, results_of
from wtawp.experiments.results.summary import PlanReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DISTANCE_LABELS = {  # by the scale of the directions
    "unit": "distance between weights",
    "layer": "distance, in lengths of each layer's weights",
    "filter": "distance, in lengths of each filter's weights",
}


def landscape_lines(report: PlanReport) -> str:
    """fig:lossland: draw the rise of the loss along random directions, with all methods aligned at distance 0.

    Args:
        report: A plan whose settings measure landscapes.

    Returns:
        The figure as SVG text; "" where no run is finished.
    """
    panels = [
        (column, index, measure)
        for column in report.columns
        for index, measure in measures_of(report, column)
        if measure.name == "landscape" and any(results_of(c, index) for c in report.column(column))
    ]
    if not panels:
        return ""
    across = max(Counter(column for column, *_ in panels).values())
    down = math.ceil(len(panels) / across)
    with drawing(down, across, 4.2 * across, 3.0 * down) as (axes, out):
        for ax, (column, index, measure) in zip(axes, panels, strict=True):
            for cell in report.column(column):
                results = list(results_of(cell, index).values())
                if results:
                    draw_lines(
                        ax,
                        results[0]["distances"],
                        np.array([np.subtract(r["mean"], r["loss"]) for r in results]),
                        cell.cell.row,
                        [r["loss"] for r in results],
                        style=method_style(cell.cell.setting.awp),
                        gaps=sum(r["gaps"] for r in results),
                    )
            ax.set(title=column, xlabel=distance_label(str(dict(measure.options).get("scale", "layer"))))
            ax.legend(loc="upper center", fontsize=8)
        for ax in axes[::across]:
            ax.set_ylabel("rise of the training loss")
    return out[0]


def distance_label(scale: str) -> str:
    """The label of an axis of distances along a direction.

    Args:
        scale: The scale of the direction: "unit", "layer" or "filter".

    Returns:
        The label, which names the unit.

    Raises:
        ValueError: If there is no such scale.
    """
    if scale not in DISTANCE_LABELS:
        raise ValueError(f"scale must be one of {', '.join(DISTANCE_LABELS)}, got {scale!r}")
    return DISTANCE_LABELS[scale]


def draw_lines(
    ax: "Axes",
    distances: Sequence[float],
    lines: NDArray[np.float64],
    label: str,
    losses: Sequence[float],
    *,
    style: LineStyle,
    gaps: int | None = None,
) -> None:
    """Draw the mean of a method's curves, with a band between their quartiles; a value that is not finite is a gap.

    Args:
        ax: The axes to draw on.
        distances: The distances along the lines, [k].
        lines: The rise of the loss along each line, [lines, k].
        label: The name of the method in the legend.
        losses: The losses at distance 0; the legend shows their mean.
        style: Colour and dashes.
        gaps: The number of losses that are not finite, for the legend; counted in `lines` by default, which is too few
            where they are means of other lines.
    """
    finite = np.where(np.isfinite(lines), lines, np.nan)
    gaps = int((~np.isfinite(lines)).sum()) if gaps is None else gaps
    text = f"{label}, loss {np.mean(losses):.3f}" + (f", {gaps} gaps" if gaps else "")
    holes = np.isnan(finite).any(0)  # a mean over the rest would be of other lines than its neighbours
    if len(finite) > 1:
        band = np.quantile(np.nan_to_num(finite), [0.25, 0.75], axis=0)
        ax.fill_between(distances, *np.where(holes, np.nan, band), color=style["color"], alpha=0.18, linewidth=0)
    ax.plot(distances, np.where(holes, np.nan, np.nan_to_num(finite).mean(0)), linewidth=1.6, label=text, **style)


REPORTER = Reporter(
    figures={
        "landscape_lines": FigureSpec(
            landscape_lines,
            "Rise of the training loss along ten random directions, averaged, all methods aligned at distance 0: the "
            "mean over runs, with a band between the quartiles of the runs. The legend tells the mean loss where they "
            "start.",
        )
    },
    order=30,
)
