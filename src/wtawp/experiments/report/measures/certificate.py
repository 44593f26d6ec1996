"""The report of the measure "certificate": certified accuracy as figure, table and data."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wtawp.experiments.report.drawing import GREY, LineStyle, drawing, row_styles
from wtawp.experiments.report.reporters import FigureSpec, Reporter
from wtawp.experiments.report.tables import NOTHING, Entry, Table, mean_and_std
from wtawp.experiments.results.certificates import (
    Grids,
    at_radius,
    certificate_results,
    certified_grids,
    largest_radii,
)
from wtawp.experiments.results.summary import PlanReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh

SHARES = (0.1, 1, 10, 100)  # per cent, at which the bar of colours has ticks
LEAST_SHOWN = 0.1  # per cent: the darkest colour of a map; what is certified for no node is left white
RADII = ((0, 0), (1, 0), (2, 0), (3, 0), (5, 0), (0, 1), (0, 2), (0, 5), (0, 10), (1, 1), (1, 5))  # of the table


def certified_accuracy(report: PlanReport, png: Path | None = None) -> str:
    """Draw a row of panels for each certificate: a heat map for each method, then cuts along additions and deletions.

    Args:
        report: A plan whose settings measure certificates.
        png: A file for the figure in pixels; by default none is written.

    Returns:
        The figure as SVG text; "" where no run is finished.
    """
    by_column = {column: grids for column in report.columns if (grids := certified_grids(report, column))}
    if not by_column:
        return ""
    maps = max(len(grids) for grids in by_column.values())
    with drawing(len(by_column), maps + 2, 3.3 * (maps + 2), 2.9 * len(by_column), png=png) as (axes, out):
        for i, (column, grids) in enumerate(by_column.items()):
            styles = row_styles({c.cell.row: c.cell.setting.awp for c in report.column(column) if c.cell.row in grids})
            row = axes[i * (maps + 2) : (i + 1) * (maps + 2)]
            for ax, (name, runs) in zip(row[:maps], grids.items(), strict=False):
                mesh = _draw_map(ax, runs.mean(0), f"{name}\n{column}")
            figure = row[0].get_figure(root=True)
            assert figure is not None
            bar = figure.colorbar(mesh, ax=row[len(grids) - 1], label="certified accuracy, %")
            bar.set_ticks(SHARES, labels=[f"{share:g}" for share in SHARES])
            bar.minorticks_off()
            for ax in row[len(grids) : maps]:
                ax.set_axis_off()
            additions = {name: runs[:, :, 0] for name, runs in grids.items()}
            deletions = {name: runs[:, 0] for name, runs in grids.items()}
            limits = largest_radii(report.column(column)[0])
            _draw_cuts(row[maps], additions, styles, "additions, no deletions", limits and limits[0])
            _draw_cuts(row[maps + 1], deletions, styles, "deletions, no additions", limits and limits[1])
            row[maps].set_ylabel("certified accuracy, %")
            row[maps + 1].legend(loc="upper right")
    return out[0]


def certified_tables(report: PlanReport) -> list[Table]:
    """Certified accuracy at a few radii, mean and standard deviation over runs; a column for each method.

    Args:
        report: A plan with its measurements.

    Returns:
        One table; none where nothing was certified.
    """
    methods = tuple(dict.fromkeys(name for column in report.columns for name in certified_grids(report, column)))
    rows = []
    for column in report.columns:
        if not (grids := certified_grids(report, column)):
            continue
        abstained = {
            c.cell.row: np.array([100 * r["abstained"] for r in certificate_results(c)]) for c in report.column(column)
        }
        lines = {"abstains": abstained}
        if counted := _counted(report, column):
            lines["votes that count"] = counted
        for a, d in RADII:
            shares = {name: at_radius(runs, (a, d)) for name, runs in grids.items()}
            if any(values.any() for values in shares.values()):
                lines[f"({a}, {d})"] = shares
        rows += [
            (Entry(column), Entry(radius), *(_summary(shares.get(name)) for name in methods))
            for radius, shares in lines.items()
        ]
    if not rows:
        return []
    caption = (
        "Certified accuracy in per cent of the test nodes: right, and certainly so within (additions, deletions) "
        "anywhere in the input. Mean ± standard deviation over runs; of the radii looked at, "
        "those missing are certified for no node."
    )
    return [Table(caption, ("column", "radius", *methods), tuple(rows))]


def certified_means(report: PlanReport) -> dict[str, Any]:
    """Certified accuracy S(r_add, r_del) of each row and column for export, the mean over runs in per cent.

    Args:
        report: A plan with its measurements.

    Returns:
        A list under "certified"; nothing where nothing was certified.
    """
    means = [
        {"row": row, "column": column, "runs": len(runs), "certified": np.round(runs.mean(0), 4).tolist()}
        for column in report.columns
        for row, runs in certified_grids(report, column).items()
    ]
    return {"certified": means} if means else {}


def _counted(report: PlanReport, column: str) -> dict[str, Grids]:
    """The share of the votes of each row that count, [runs], in per cent; nothing where no votes were filtered."""
    cells = report.column(column)
    by_row = {c.cell.row: [100 * r["counted"] for r in certificate_results(c) if "counted" in r] for c in cells}
    return {row: np.array(shares) for row, shares in by_row.items() if shares}


def _summary(values: Grids | None) -> Entry:
    """Mean and standard deviation over runs."""
    if values is None or len(values) == 0:
        return Entry(NOTHING)
    return mean_and_std(float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else None)


def _draw_map(ax: "Axes", grid: Grids, title: str) -> "QuadMesh":
    """Draw a heat map of certified accuracy, with logarithmic colours: most radii are certified for few nodes."""
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import MaxNLocator

    edges = [np.arange(size + 1) - 0.5 for size in grid.shape]
    shown = np.ma.masked_equal(np.where(grid > 0, np.maximum(grid, LEAST_SHOWN), 0), 0)
    mesh = ax.pcolormesh(edges[1], edges[0], shown, norm=LogNorm(LEAST_SHOWN, 100), cmap="viridis")
    ax.set(title=title, xlabel="deletions", ylabel="additions")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    return mesh


def _draw_cuts(
    ax: "Axes", rows: Mapping[str, Grids], styles: Mapping[str, LineStyle], title: str, limit: int | None
) -> None:
    """Draw the mean of each row's runs, [runs, radii], with a band of a standard deviation, and the largest radius."""
    from matplotlib.ticker import MaxNLocator

    for name, runs in rows.items():
        radii, mean = np.arange(runs.shape[1]), runs.mean(0)
        spread = runs.std(0, ddof=1) if len(runs) > 1 else np.zeros_like(mean)
        ax.fill_between(radii, mean - spread, mean + spread, color=styles[name]["color"], alpha=0.15, linewidth=0)
        ax.plot(radii, mean, marker="o", markersize=3, linewidth=1.4, label=name, **styles[name])
    if limit is not None:
        ax.axvline(limit, color=GREY, linewidth=1.0, linestyle=":", label="limit of the samples")
    ax.set(title=title, xlabel="radius", ylim=(0, 100))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


REPORTER = Reporter(
    tables=(certified_tables,),
    figures={
        "certified_accuracy": FigureSpec(
            certified_accuracy,
            "Certified accuracy: test nodes that are right, and certainly so within that many additions and "
            "deletions. Heat maps (logarithmic colours; white: no node) and lines are means over runs, bands one "
            "standard deviation. Dotted: the largest radius that as many samples can certify at all, for a node all of "
            "whose votes agree.",
        )
    },
    export=certified_means,
    order=10,
)
