"""Figures of test accuracy: over the radius, over the attacker's budget, and the gains of pairs."""

from typing import TYPE_CHECKING

import numpy as np

from wtawp.experiments.report.drawing import (
    COLOURS,
    GREY,
    LineStyle,
    drawing,
    legend_beside,
    row_styles,
    use_log_scale,
)
from wtawp.experiments.results.summary import CellReport, PlanReport, split_means

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
            _draw_over_rho(axes[0], row, cells, styles[row], band=True)
            _draw_over_rho(axes[1], row, cells, styles[row], band=False)  # at that scale bands would cover everything
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


def _draw_over_rho(ax: "Axes", row: str, cells: list[CellReport], style: LineStyle, *, band: bool) -> None:
    """Draw our means of a row and, dashed, the printed ones."""
    cells = sorted(cells, key=_rho)
    rhos, means = [_rho(c) for c in cells], np.array([c.mean for c in cells])
    if band:
        spread = np.array([c.std or 0.0 for c in cells])
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
    """Draw test accuracy over the attacker's budget, a line for each row.

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
    with drawing(1, 1, 6.5, 3.8) as ((ax,), out):
        styles = row_styles({row: cells[0].cell.setting.awp for row, cells in rows.items()})
        for row, cells in rows.items():
            cells.sort(key=_budget)
            budgets, means = [_budget(c) for c in cells], np.array([c.mean for c in cells])
            spread = np.array([c.std or 0.0 for c in cells])
            colour = styles[row]["color"]
            ax.fill_between(budgets, means - spread, means + spread, color=colour, alpha=0.15, linewidth=0)
            ax.plot(budgets, means, linewidth=1.5, marker="o", markersize=4, label=row, **styles[row])
        are_shares = any(isinstance(budget, float) for cells in rows.values() for budget in map(_budget, cells))
        ax.set(xlabel="budget, % of the edges" if are_shares else "budget, edges", ylabel="test accuracy, %")
        if are_shares:
            ax.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}"))
        legend_beside(ax)
    return out[0]


def _budget(cell: CellReport) -> float | int:
    """The budget of the attack whose accuracy the cell shows, a share as a float; 0 where there is no attack."""
    setting, index = cell.cell.setting, cell.cell.measure
    attack = setting.poison if index is None else setting.measures[index]
    budget = 0 if attack is None else dict(attack.options)["budget"]
    assert isinstance(budget, int | float)
    return budget


def gains(report: PlanReport) -> str:
    """Draw the paired difference of each split, with their mean and its 95 % interval.

    Args:
        report: A plan with pairs.

    Returns:
        The figure as SVG text; "" where no pair has two splits.
    """
    cells = {(c.cell.row, c.cell.column): c for c in report.cells}
    pairs = [pair for pair in report.pairs if pair.gain is not None]
    if not pairs:
        return ""
    with drawing(1, 1, 7.5, 0.9 + 0.42 * len(pairs)) as ((ax,), out):
        ax.axvline(0, color=GREY, linewidth=0.8)
        for i, pair in enumerate(pairs):
            before, after = split_means(cells[pair.before, pair.column], cells[pair.after, pair.column])
            differences = np.subtract(after, before)
            height = i + np.linspace(-0.22, 0.22, len(differences))  # in the order of the splits
            ax.scatter(differences, height, s=9, color=COLOURS[5], linewidths=0)
            gain = pair.gain
            assert gain is not None
            if gain.low is not None and gain.high is not None:
                ax.plot([gain.low, gain.high], [i, i], color=COLOURS[0], linewidth=2.2, solid_capstyle="butt")
            ax.plot([gain.mean], [i], color=COLOURS[0], marker="D", markersize=5)
        ax.set_yticks(range(len(pairs)), [f"{p.after}, {p.column}" for p in pairs])
        ax.set(ylim=(len(pairs) - 0.5, -0.5), xlabel="gain in test accuracy, points")
    return out[0]
