"""Figures of test accuracy: over the radius, over the attacker's budget, and the gains of pairs."""

from statistics import fmean, stdev
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
from wtawp.experiments.results.drops import compare_drops, split_drops
from wtawp.experiments.results.statistics import PairedDifference
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


def gains(report: PlanReport) -> str:
    """Draw the paired difference of each split, with their mean and its 95 % interval; under attack also of the drops.

    Args:
        report: A plan with pairs.

    Returns:
        The figure as SVG text; "" where no pair has two splits.
    """
    cells = {(c.cell.row, c.cell.column): c for c in report.cells}
    pairs = [pair for pair in report.pairs if pair.gain is not None]
    if not pairs:
        return ""
    drops = {(d.before, d.after, d.column): d.change for d in compare_drops(report)}
    panels = 2 if drops else 1
    with drawing(1, panels, 3.5 + 4.0 * panels, 0.9 + 0.42 * len(pairs)) as (axes, out):
        for ax in axes:
            ax.axvline(0, color=GREY, linewidth=0.8)
            ax.set(ylim=(len(pairs) - 0.5, -0.5))
        for i, pair in enumerate(pairs):
            both = cells[pair.before, pair.column], cells[pair.after, pair.column]
            assert pair.gain is not None
            _draw_differences(axes[0], i, split_means(*both), pair.gain)
            if change := drops.get((pair.before, pair.after, pair.column)):
                _draw_differences(axes[1], i, split_drops(*both), change)
        axes[0].set_yticks(range(len(pairs)), [f"{p.after}, {p.column}" for p in pairs])
        axes[0].set(xlabel="gain in test accuracy, points")
        if drops:
            axes[1].set_yticks(range(len(pairs)), [""] * len(pairs))
            axes[1].set(xlabel="change of the drop under attack, points\n(below 0: the attack takes less)")
    return out[0]


def gains_by_column(report: PlanReport) -> str:
    """Draw the gains of several methods over several models: columns side by side, and the models within each.

    The scale is linear between -1 and 1 and logarithmic outside, so that a collapse and a small gain can both be seen.

    Args:
        report: A plan with pairs; the name of the second row of each begins with that of the first.

    Returns:
        The figure as SVG text; "" where no pair has two splits.
    """
    pairs = [pair for pair in report.pairs if pair.gain is not None]
    if not pairs:
        return ""
    columns, models, methods = (
        list(dict.fromkeys(names))
        for names in zip(*((p.column, p.before, p.after.removeprefix(p.before + "+")) for p in pairs), strict=True)
    )
    shades, markers = [COLOURS[i % len(COLOURS)] for i in (1, 0, *range(2, len(methods)))], "oDs^vPX*" * len(methods)
    with drawing(1, 1, max(6.0, 2.2 + 0.75 * len(columns)), 3.6) as (axes, out):
        ax = axes[0]
        ax.axhline(0, color=GREY, linewidth=0.8)
        for pair in pairs:
            assert pair.gain is not None
            method = methods.index(pair.after.removeprefix(pair.before + "+"))
            offset = (models.index(pair.before) + 0.5) / len(models) - 0.5
            x, colour = columns.index(pair.column) + 0.8 * offset, shades[method]
            if pair.gain.low is not None and pair.gain.high is not None:
                ax.plot([x, x], [pair.gain.low, pair.gain.high], color=colour, linewidth=1.2)
            ax.plot([x], [pair.gain.mean], color=colour, marker=markers[method], markersize=4)
        for method, name in enumerate(methods):
            ax.plot([], [], color=shades[method], marker=markers[method], linestyle="", label=name)
        for border in range(1, len(columns)):
            ax.axvline(border - 0.5, color=GREY, linewidth=0.3)
        ax.set_yscale("symlog", linthresh=1.0)
        low, high = ax.get_ylim()
        ax.set_ylim(low * 1.4 if low < -1 else low - 0.1, high * 1.4 if high > 1 else high + 0.1)
        ticks = [t for t in (-50, -10, -5, -1, -0.5, 0, 0.5, 1, 2, 5, 10) if ax.get_ylim()[0] <= t <= ax.get_ylim()[1]]
        ax.set_yticks(ticks, [f"{t:+g}" if t else "0" for t in ticks])
        ax.set_yticks([], minor=True)
        ax.set_xticks(range(len(columns)), columns, rotation=20, ha="right")
        ax.set(ylabel="gain in test accuracy, points", xlim=(-0.5, len(columns) - 0.5))
        ax.set_title(f"from left to right in each column: {', '.join(models)}", fontsize=9)
        legend_beside(ax)
    return out[0]


def _draw_differences(
    ax: "Axes", height: int, values: tuple[list[float], list[float]], difference: PairedDifference
) -> None:
    """Draw a dot for the difference of each split, a diamond for their mean, a bar for its 95 % interval."""
    differences = np.subtract(values[1], values[0])
    heights = height + np.linspace(-0.22, 0.22, len(differences))  # in the order of the splits
    ax.scatter(differences, heights, s=9, color=COLOURS[5], linewidths=0)
    if difference.low is not None and difference.high is not None:
        bar = [difference.low, difference.high]
        ax.plot(bar, [height, height], color=COLOURS[0], linewidth=2.2, solid_capstyle="butt")
    ax.plot([difference.mean], [height], color=COLOURS[0], marker="D", markersize=5)
