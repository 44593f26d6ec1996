"""The report of the measure "certificate": certified accuracy as figure, table and data."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wtawp.experiments.report.drawing import LineStyle, drawing, row_styles
from wtawp.experiments.report.reporters import FigureSpec, Reporter
from wtawp.experiments.report.tables import NOTHING, Entry, Table, mean_and_std
from wtawp.experiments.results.summary import CellReport, PlanReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh

Grids = NDArray[np.float64]  # [runs, additions, deletions], per cent
RADII = ((0, 0), (1, 0), (2, 0), (3, 0), (5, 0), (0, 1), (0, 2), (0, 5), (0, 10), (1, 1), (1, 5))  # of the table


def certified_accuracy(report: PlanReport, png: Path | None = None) -> str:
    """Draw a row of panels for each certificate: a heat map for each method, then cuts along additions and deletions.

    Args:
        report: A plan whose settings measure certificates.
        png: A file for the figure in pixels; by default none is written.

    Returns:
        The figure as SVG text; "" where no run is finished.
    """
    by_column = {column: grids for column in report.columns if (grids := _grids(report, column))}
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
            figure.colorbar(mesh, ax=row[len(grids) - 1], label="certified accuracy, %")
            for ax in row[len(grids) : maps]:
                ax.set_axis_off()
            additions = {name: runs[:, :, 0] for name, runs in grids.items()}
            deletions = {name: runs[:, 0] for name, runs in grids.items()}
            _draw_cuts(row[maps], additions, styles, "additions, no deletions")
            _draw_cuts(row[maps + 1], deletions, styles, "deletions, no additions")
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
    methods = tuple(dict.fromkeys(name for column in report.columns for name in _grids(report, column)))
    rows = []
    for column in report.columns:
        if not (grids := _grids(report, column)):
            continue
        abstained = {c.cell.row: np.array([100 * r["abstained"] for r in _results(c)]) for c in report.column(column)}
        lines = {"abstains": abstained}
        if counted := _counted(report, column):
            lines["votes that count"] = counted
        for a, d in RADII:
            shares = {name: _at(runs, (a, d)) for name, runs in grids.items()}
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
        for row, runs in _grids(report, column).items()
    ]
    return {"certified": means} if means else {}


def _results(cell: CellReport) -> list[dict[str, Any]]:
    """The results of the certificate that the cell shows, one for each finished run."""
    index = cell.cell.measure
    results = [] if index is None else [(record.measured or [])[index] for record in cell.records]
    return [result for result in results if "certified" in result]


def _counted(report: PlanReport, column: str) -> dict[str, Grids]:
    """The share of the votes of each row that count, [runs], in per cent; nothing where no votes were filtered."""
    by_row = {c.cell.row: [100 * r["counted"] for r in _results(c) if "counted" in r] for c in report.column(column)}
    return {row: np.array(shares) for row, shares in by_row.items() if shares}


def _grids(report: PlanReport, column: str) -> dict[str, Grids]:
    """Certified accuracies of each row, padded to one size larger than any run's, as nothing is certified beyond."""
    by_row = {c.cell.row: [np.array(r["certified"]) for r in _results(c)] for c in report.column(column)}
    by_row = {row: grids for row, grids in by_row.items() if grids}
    sizes = [grid.shape for grids in by_row.values() for grid in grids]
    shape = tuple(np.max(sizes, axis=0) + 1) if sizes else (0, 0)
    return {row: np.stack([100 * _padded(grid, shape) for grid in grids]) for row, grids in by_row.items()}


def _padded(grid: Grids, shape: Sequence[int]) -> Grids:
    """The grid with zeros at the end, up to a shape."""
    return np.pad(grid, [(0, larger - size) for larger, size in zip(shape, grid.shape, strict=True)])


def _at(runs: Grids, radius: tuple[int, int]) -> Grids:
    """Certified accuracies at one radius, [runs]; 0 outside the grid."""
    inside = radius[0] < runs.shape[1] and radius[1] < runs.shape[2]
    return runs[:, radius[0], radius[1]] if inside else np.zeros(len(runs))


def _summary(values: Grids | None) -> Entry:
    """Mean and standard deviation over runs."""
    if values is None or len(values) == 0:
        return Entry(NOTHING)
    return mean_and_std(float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else None)


def _draw_map(ax: "Axes", grid: Grids, title: str) -> "QuadMesh":
    """Draw a heat map of certified accuracy."""
    from matplotlib.ticker import MaxNLocator

    edges = [np.arange(size + 1) - 0.5 for size in grid.shape]
    mesh = ax.pcolormesh(edges[1], edges[0], grid, vmin=0, vmax=100, cmap="viridis")
    ax.set(title=title, xlabel="deletions", ylabel="additions")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    return mesh


def _draw_cuts(ax: "Axes", rows: Mapping[str, Grids], styles: Mapping[str, LineStyle], title: str) -> None:
    """Draw the mean of each row's runs, [runs, radii], with a band of one standard deviation."""
    from matplotlib.ticker import MaxNLocator

    for name, runs in rows.items():
        radii, mean = np.arange(runs.shape[1]), runs.mean(0)
        spread = runs.std(0, ddof=1) if len(runs) > 1 else np.zeros_like(mean)
        ax.fill_between(radii, mean - spread, mean + spread, color=styles[name]["color"], alpha=0.15, linewidth=0)
        ax.plot(radii, mean, marker="o", markersize=3, linewidth=1.4, label=name, **styles[name])
    ax.set(title=title, xlabel="radius", ylim=(0, 100))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


REPORTER = Reporter(
    tables=(certified_tables,),
    figures={
        "certified_accuracy": FigureSpec(
            certified_accuracy,
            "Certified accuracy: test nodes that are right, and certainly so within that many additions and "
            "deletions. Heat maps and lines are means over runs, bands one standard deviation.",
        )
    },
    export=certified_means,
    order=10,
)
