"""The report of the measure "collective": nodes certified together and one by one, as figure, table and data."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wtawp.experiments.report.drawing import drawing, row_styles
from wtawp.experiments.report.reporters import FigureSpec, Reporter
from wtawp.experiments.report.tables import Entry, Table, mean_and_std
from wtawp.experiments.results.summary import CellReport, PlanReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
Curves = dict[str, list[dict[str, Any]]]  # by row, those of each run
BUDGETS = (1, 5, 10, 50, 100, 500)  # of the table
SIDES = {"together": "together", "per_node": "one by one"}


def certified_together(report: PlanReport, png: Path | None = None) -> str:
    """Draw the shares of nodes that are certified together and one by one over the budget, a panel for each flip.

    Args:
        report: A plan whose settings measure collective certificates.
        png: A file for the figure in pixels; by default none is written.

    Returns:
        The figure as SVG text; "" where no run is finished.
    """
    panels = [(column, flips, curves) for column in report.columns for flips, curves in _curves(report, column).items()]
    if not panels:
        return ""
    with drawing(1, len(panels), 4.2 * len(panels), 3.0, png=png) as (axes, out):
        for ax, (column, flips, curves) in zip(axes, panels, strict=True):
            styles = row_styles({c.cell.row: c.cell.setting.awp for c in report.column(column) if c.cell.row in curves})
            for row, runs in curves.items():
                draw_curves(ax, runs, row, styles[row]["color"])
            ax.set(title=f"{column}: {flips}", xlabel=f"{flips} in the whole graph")
        axes[0].set_ylabel("correct and certified, %")
        axes[-1].legend(loc="upper right")
    return out[0]


def draw_curves(ax: "Axes", runs: list[dict[str, Any]], name: str, colour: str) -> None:
    """Draw the mean over runs: a solid line for nodes together, a dotted one for nodes one by one.

    Args:
        ax: Where to draw.
        runs: The curves of runs, as the measure stores them.
        name: What the legend calls them.
        colour: The colour of the lines.
    """
    from matplotlib.ticker import FuncFormatter

    budgets = np.unique(np.concatenate([run["budgets"] for run in runs]))
    for side, dashes in zip(SIDES, ("-", ":"), strict=True):
        shares = 100 * np.stack([shares_at(run, side, budgets) for run in runs])
        label = f"{name}, {SIDES[side]}"
        ax.plot(budgets, shares.mean(0), color=colour, linestyle=dashes, linewidth=1.4, label=label)
        if len(runs) > 1:
            spread = shares.std(0, ddof=1)
            ends = shares.mean(0) - spread, shares.mean(0) + spread
            ax.fill_between(budgets, *ends, color=colour, alpha=0.15, linewidth=0)
    ax.set_xscale("symlog", linthresh=10)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.set(ylim=(0, 100), xlim=(0, None))


def collective_tables(report: PlanReport) -> list[Table]:
    """Average certifiable radii and certified shares at a few budgets, mean and standard deviation over runs.

    Args:
        report: A plan with its measurements.

    Returns:
        One table; none where nothing was certified.
    """
    found = {column: _curves(report, column) for column in report.columns}
    methods = tuple(dict.fromkeys(row for kinds in found.values() for curves in kinds.values() for row in curves))
    rows = []
    for column, kinds in found.items():
        for flips, curves in kinds.items():
            for what, values in _lines(curves).items():
                entries = [_summary(values[name]) if name in values else Entry("") for name in methods]
                rows.append((Entry(column), Entry(flips), Entry(what), *entries))
    if not rows:
        return []
    caption = (
        "The average number of flips in the whole graph that a test node certifiably withstands, and the per cent of "
        "test nodes that are correct and certified under a budget of flips: one by one (each node withstands the whole "
        "budget) and together (one perturbation attacks all nodes). Mean ± standard deviation over runs."
    )
    return [Table(caption, ("column", "flips", "certified", *methods), tuple(rows))]


def collective_curves(report: PlanReport) -> dict[str, Any]:
    """The curves of all runs for export.

    Args:
        report: A plan with its measurements.

    Returns:
        A list under "collective"; nothing where nothing was certified.
    """
    curves = [
        {"row": row, "column": column, "flips": flips, "runs": runs}
        for column in report.columns
        for flips, by_row in _curves(report, column).items()
        for row, runs in by_row.items()
    ]
    return {"collective": curves} if curves else {}


def shares_at(curve: dict[str, Any], side: str, budgets: NDArray[np.int64]) -> Floats:
    """The certified share at each budget: that of the next larger stored one, as shares never rise with the budget.

    Args:
        curve: A curve as the measure stores it.
        side: "together" or "per_node".
        budgets: The budgets; beyond the last stored one nothing changes.

    Returns:
        Shares, one for each budget.
    """
    place = np.searchsorted(curve["budgets"], budgets).clip(max=len(curve["budgets"]) - 1)
    return np.asarray(np.array(curve[side], dtype=np.float64)[place])


def _lines(curves: Curves) -> dict[str, dict[str, Floats]]:
    """The values of each line of the table, by row of the plan."""
    lines = {
        f"average flips, {name}": {row: np.array([run[key] for run in runs]) for row, runs in curves.items()}
        for key, name in (("per_node_average", "one by one"), ("average", "together"))
    }
    for budget in BUDGETS:
        for side, name in reversed(SIDES.items()):
            at = np.array([budget])
            shares = {row: np.array([100 * shares_at(r, side, at)[0] for r in runs]) for row, runs in curves.items()}
            if any(values.any() for values in shares.values()):
                lines[f"% at {budget}, {name}"] = shares
    return lines


def _results(cell: CellReport) -> list[dict[str, Any]]:
    """The results of the measure that the cell shows, one for each finished run."""
    index = cell.cell.measure
    results = [] if index is None else [(record.measured or [])[index] for record in cell.records]
    return [result for result in results if "curves" in result]


def _curves(report: PlanReport, column: str) -> dict[str, Curves]:
    """The curves of a column by the kind of flips, then by row."""
    found: dict[str, Curves] = {}
    for cell in report.column(column):
        for result in _results(cell):
            for flips, curve in result["curves"].items():
                found.setdefault(flips, {}).setdefault(cell.cell.row, []).append(curve)
    return found


def _summary(values: Floats) -> Entry:
    """Mean and standard deviation over runs."""
    return mean_and_std(float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else None)


REPORTER = Reporter(
    tables=(collective_tables,),
    figures={
        "certified_together": FigureSpec(
            certified_together,
            "Test nodes that are correct and certified under a global budget of flips: together (one perturbation "
            "attacks all nodes) and one by one (each node withstands the whole budget). Lines are means over runs, "
            "bands one standard deviation.",
        )
    },
    export=collective_curves,
    order=11,
)
