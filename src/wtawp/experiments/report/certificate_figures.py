"""Certified accuracy as figures and a table, from records alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from wtawp.experiments.report.drawing import drawing, looks
from wtawp.experiments.report.tables import NOTHING, Entry, Table, mean_and_std
from wtawp.experiments.results.summary import CellReport, PlanReport

Grids = NDArray[np.float64]  # [runs, A, D], per cent
RADII = ((0, 0), (1, 0), (2, 0), (3, 0), (5, 0), (0, 1), (0, 2), (0, 5), (0, 10), (1, 1), (1, 5))  # of the table


def certified_accuracy(report: PlanReport, png: Path | None = None) -> str:
    """A row of panels for each certificate: a heat map for each method, then cuts along additions and deletions."""
    found = {column: _grids(report, column) for column in report.columns}
    found = {column: grids for column, grids in found.items() if grids}
    if not found:
        return ""
    maps = max(len(grids) for grids in found.values())
    with drawing(len(found), maps + 2, 3.3 * (maps + 2), 2.9 * len(found), png=png) as (axes, out):
        for i, (column, grids) in enumerate(found.items()):
            row = axes[i * (maps + 2) : (i + 1) * (maps + 2)]
            for ax, (name, runs) in zip(row[:maps], grids.items(), strict=False):
                mesh = _heat_map(ax, runs.mean(0), f"{name}\n{column}")
            figure = row[0].get_figure(root=True)
            assert figure is not None
            figure.colorbar(mesh, ax=row[len(grids) - 1], label="certified accuracy, %")
            for ax in row[len(grids) : maps]:
                ax.set_axis_off()
            _cuts(row[maps], {name: runs[:, :, 0] for name, runs in grids.items()}, "additions, no deletions")
            _cuts(row[maps + 1], {name: runs[:, 0] for name, runs in grids.items()}, "deletions, no additions")
            row[maps].set_ylabel("certified accuracy, %")
            row[maps + 1].legend(loc="upper right")
    return out[0]


def certified_table(report: PlanReport) -> Table:
    """Certified accuracy at a few radii, mean and standard deviation over runs; a column for each method."""
    methods = tuple(dict.fromkeys(name for column in report.columns for name in _grids(report, column)))
    rows = []
    for column in report.columns:
        if not (grids := _grids(report, column)):
            continue
        abstained = {c.cell.row: np.array([100 * r["abstained"] for r in _results(c)]) for c in report.column(column)}
        told = {"abstains": abstained}
        for a, d in RADII:
            shares = {name: _at(runs, (a, d)) for name, runs in grids.items()}
            if any(values.any() for values in shares.values()):
                told[f"({a}, {d})"] = shares
        rows += [
            (Entry(column), Entry(what), *(_told(shares.get(name)) for name in methods))
            for what, shares in told.items()
        ]
    return Table(
        "Certified accuracy in per cent of the test nodes: right, and certainly so within (additions, deletions) "
        "anywhere in the input. Mean ± standard deviation over runs; of the radii looked at, "
        "those missing are certified for no node.",
        ("column", "radius", *methods),
        tuple(rows),
    )


def certified_means(report: PlanReport) -> list[dict[str, object]]:
    """S(r_add, r_del) of each row and column, the mean over runs in per cent, for machines."""
    return [
        {"row": row, "column": column, "runs": len(runs), "certified": np.round(runs.mean(0), 4).tolist()}
        for column in report.columns
        for row, runs in _grids(report, column).items()
    ]


def has_certificates(report: PlanReport) -> bool:
    """Whether there is anything to draw."""
    return any(_grids(report, column) for column in report.columns)


def _results(cell: CellReport) -> list[dict[str, Any]]:
    place = cell.cell.measure
    results = [] if place is None else [(record.measured or [])[place] for record in cell.records]
    return [result for result in results if "certified" in result]


def _grids(report: PlanReport, column: str) -> dict[str, Grids]:
    """By row; all of one size, one larger than any run's own, as beyond that nothing is certified."""
    found = {c.cell.row: [np.array(r["certified"]) for r in _results(c)] for c in report.column(column)}
    found = {row: grids for row, grids in found.items() if grids}
    sizes = [grid.shape for grids in found.values() for grid in grids]
    shape = tuple(np.max(sizes, axis=0) + 1) if sizes else (0, 0)
    return {row: np.stack([100 * _padded(grid, shape) for grid in grids]) for row, grids in found.items()}


def _padded(grid: Grids, shape: Sequence[int]) -> Grids:
    return np.pad(grid, [(0, size - own) for size, own in zip(shape, grid.shape, strict=True)])


def _at(runs: Grids, radius: tuple[int, int]) -> Grids:
    inside = radius[0] < runs.shape[1] and radius[1] < runs.shape[2]
    return runs[:, radius[0], radius[1]] if inside else np.zeros(len(runs))


def _told(values: Grids | None) -> Entry:
    if values is None or len(values) == 0:
        return Entry(NOTHING)
    return mean_and_std(float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else None)


def _heat_map(ax: Axes, grid: Grids, title: str) -> QuadMesh:
    edges = [np.arange(size + 1) - 0.5 for size in grid.shape]
    mesh = ax.pcolormesh(edges[1], edges[0], grid, vmin=0, vmax=100, cmap="viridis")
    ax.set(title=title, xlabel="deletions", ylabel="additions")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    return mesh


def _cuts(ax: Axes, rows: dict[str, Grids], title: str) -> None:
    """[runs, radii] each: the mean as steps, a band of one standard deviation."""
    for (name, runs), look in zip(rows.items(), looks(rows).values(), strict=True):
        radii, mean = np.arange(runs.shape[1]), runs.mean(0)
        spread = runs.std(0, ddof=1) if len(runs) > 1 else np.zeros_like(mean)
        ax.fill_between(radii, mean - spread, mean + spread, color=look["color"], alpha=0.15, linewidth=0)
        ax.plot(radii, mean, marker="o", markersize=3, linewidth=1.4, label=name, **look)
    ax.set(title=title, xlabel="radius", ylim=(0, 100))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
