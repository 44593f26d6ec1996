"""Figures of test accuracy: over the radius, and over the attacker's budget."""

from statistics import fmean, stdev
from typing import TYPE_CHECKING

import numpy as np

from wtawp.experiments.report.drawing import GREY, LineStyle, drawing, legend_beside, row_styles, use_log_scale
from wtawp.experiments.results.summary import CellReport, PlanReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MIN_TRAINED = 80.0  # per cent: the right panel over rho shows means from here on


def accuracy_over_rho(report: PlanReport) -> str:
    """Draw test accuracy over rho, a line for each row: once as a whole, and once where the models train.

    Args:
        report: A plan whose rows have cells of several radii.

    Returns:
        The figure as SVG text; "" where no run is finished.
    """
    rows: dict[str, list[CellReport]] = {}
    for cell in report.cells:
        if cell.mean is not None and cell.cell.setting.awp is not None:
            rows.setdefault(cell.cell.row, []).append(cell)
    if not rows:
        return ""
    with drawing(1, 2, 10.5, 3.8) as (axes, out):
        styles = row_styles({row: cells[0].cell.setting.awp for row, cells in rows.items()})
        for row, cells in rows.items():
            cells.sort(key=_rho)
            _draw_over_rho(axes[0], row, cells, styles[row], [c.std or 0.0 for c in cells])
            # At that scale bands of a standard deviation would cover everything.
            _draw_over_rho(axes[1], row, cells, styles[row], [c.standard_error or 0.0 for c in cells])
        shown = [c.mean for cells in rows.values() for c in cells if c.mean is not None]
        shown += [c.cell.printed[0] for cells in rows.values() for c in cells if c.cell.printed is not None]
        high = [value for value in shown if value >= MIN_TRAINED] or shown
        axes[0].set(title="all", ylabel="test accuracy, %")
        axes[1].set(title="where it trains", ylim=(min(high) - 0.5, max(high) + 0.5))
        rhos = sorted({_rho(c) for cells in rows.values() for c in cells})
        for ax in axes:
            use_log_scale(ax, "x")
            ax.set_xticks(rhos, [f"{rho:g}" for rho in rhos])
            ax.set_xticks([], minor=True)
            ax.set(xlabel="rho")
        axes[1].plot([], [], color=GREY, linewidth=1.5, label="ours")
        axes[1].plot([], [], color=GREY, linewidth=0.9, linestyle="--", marker="o", markersize=4, label="paper")
        legend_beside(axes[1])
    return out[0]


def _draw_over_rho(ax: "Axes", row: str, cells: list[CellReport], style: LineStyle, spreads: list[float]) -> None:
    """Draw our means of a row with a band and, dashed, the printed ones; the cells are sorted by their radius."""
    rhos, means, spread = [_rho(c) for c in cells], np.array([c.mean for c in cells]), np.array(spreads)
    ax.fill_between(rhos, means - spread, means + spread, color=style["color"], alpha=0.15, linewidth=0)
    ax.plot(rhos, means, linewidth=1.5, label=row, **style)
    printed = [(_rho(c), c.cell.printed[0]) for c in cells if c.cell.printed is not None]
    if printed:
        marked: LineStyle = {"linewidth": 0.9, "linestyle": "--", "marker": "o", "markersize": 4}
        ax.plot(*zip(*printed, strict=True), color=style["color"], **marked)


def _rho(cell: CellReport) -> float:
    """The radius of the cell's perturbation."""
    assert cell.cell.setting.awp is not None
    return cell.cell.setting.awp.rho


def accuracy_over_budget(report: PlanReport) -> str:
    """Draw test accuracy, and the drop that the attack causes, over the attacker's budget, a line for each row.

    Args:
        report: A plan whose rows have cells of several budgets.

    Returns:
        The figure as SVG text; "" where no run is finished.
    """
    from matplotlib.ticker import FuncFormatter

    rows: dict[str, list[CellReport]] = {}
    for cell in report.cells:
        if cell.mean is not None:
            rows.setdefault(cell.cell.row, []).append(cell)
    if not rows:
        return ""
    with drawing(1, 2, 10.5, 3.8) as (axes, out):
        styles = row_styles({row: cells[0].cell.setting.awp for row, cells in rows.items()})
        for row, cells in rows.items():
            cells.sort(key=_budget)
            _draw_over_budget(axes[0], row, [(_budget(c), list(c.accuracies.values())) for c in cells], styles[row])
            attacked = [(_budget(c), list(c.drops.values())) for c in cells if c.mean_drop is not None]
            _draw_over_budget(axes[1], row, [(0, [0.0]), *attacked], styles[row])
        are_shares = any(isinstance(budget, float) for cells in rows.values() for budget in map(_budget, cells))
        axes[0].set(ylabel="test accuracy, %")
        axes[1].set(ylabel="drop from the clean graph, points")
        for ax in axes:
            ax.set(xlabel="budget, % of the edges" if are_shares else "budget, edges")
            if are_shares:
                ax.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}"))
        legend_beside(axes[1])
    return out[0]


def _draw_over_budget(ax: "Axes", row: str, points: list[tuple[float, list[float]]], style: LineStyle) -> None:
    """Draw the means of a row over budgets, with a band of one standard deviation over runs."""
    budgets, means = [budget for budget, _ in points], np.array([fmean(runs) for _, runs in points])
    spread = np.array([stdev(runs) if len(runs) > 1 else 0.0 for _, runs in points])
    ax.fill_between(budgets, means - spread, means + spread, color=style["color"], alpha=0.15, linewidth=0)
    ax.plot(budgets, means, linewidth=1.5, marker="o", markersize=4, label=row, **style)


def _budget(cell: CellReport) -> float | int:
    """The budget of the attack whose accuracy the cell shows, a share as a float; 0 where there is no attack."""
    attack = cell.cell.attack
    budget = 0 if attack is None else dict(attack.options)["budget"]
    assert isinstance(budget, int | float)
    return budget
