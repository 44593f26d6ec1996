"""Figures of gains: what a method adds to the accuracy of plain training, paired over splits."""

from typing import TYPE_CHECKING, Any

import numpy as np

from wtawp.experiments.report.drawing import COLOURS, GREY, drawing, legend_beside
from wtawp.experiments.results.drops import compare_drops, split_drops
from wtawp.experiments.results.overfitting import gains_and_overfitting, rank_correlation
from wtawp.experiments.results.statistics import PairedDifference
from wtawp.experiments.results.summary import PlanReport, split_means

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EXPLAINED = ("WT-AWP", "WT-AWP auto")  # the methods whose gain is drawn over overfitting
PRINTED: dict[str, Any] = {  # how the paper's gain is marked
    "color": COLOURS[1], "marker": "|", "markersize": 13, "markeredgewidth": 2.0, "linestyle": "", "zorder": 4,
}  # fmt: skip
MAX_NAMED = 20  # dots that are named
MAX_LINEAR = 5.0  # points of gain, above which the scale is logarithmic


def gains(report: PlanReport) -> str:
    """Draw the paired difference of each split, with their mean and its 95 % interval; under attack also of the drops.

    Where the paper prints both rows, its gain is marked.

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
            if pair.printed_gain is not None:
                axes[0].plot([pair.printed_gain], [i], **PRINTED)
            if change := drops.get((pair.before, pair.after, pair.column)):
                _draw_differences(axes[1], i, split_drops(*both), change)
        axes[0].set_yticks(range(len(pairs)), [f"{p.after}, {p.column}" for p in pairs])
        axes[0].set(xlabel="gain in test accuracy, points")
        if any(pair.printed_gain is not None for pair in pairs):
            axes[-1].plot([], [], color=COLOURS[0], marker="D", markersize=5, linewidth=2.2, label="ours")
            axes[-1].plot([], [], label="paper", **PRINTED)
            legend_beside(axes[-1])
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
    with drawing(1, 1, max(6.0, 2.2 + 0.85 * len(columns)), 3.6) as (axes, out):
        ax = axes[0]
        ax.axhline(0, color=GREY, linewidth=0.8)
        for pair in pairs:
            assert pair.gain is not None
            method = methods.index(pair.after.removeprefix(pair.before + "+"))
            place = models.index(pair.before) + 0.25 + 0.5 * (method + 0.5) / len(methods)
            x, colour = columns.index(pair.column) + 0.85 * (place / len(models) - 0.5), shades[method]
            if pair.gain.low is not None and pair.gain.high is not None:
                ax.plot([x, x], [pair.gain.low, pair.gain.high], color=colour, linewidth=1.2)
            ax.plot([x], [pair.gain.mean], color=colour, marker=markers[method], markersize=4)
        for method, name in enumerate(methods):
            ax.plot([], [], color=shades[method], marker=markers[method], linestyle="", label=name)
        for border in range(1, len(columns)):
            ax.axvline(border - 0.5, color=GREY, linewidth=0.3)
        _show_small_and_large(ax)
        ax.set_xticks(range(len(columns)), columns, rotation=20, ha="right")
        ax.set(ylabel="gain in test accuracy, points", xlim=(-0.5, len(columns) - 0.5))
        if len(models) > 1:
            ax.set_title(f"from left to right in each column: {', '.join(models)}", fontsize=9)
        legend_beside(ax)
    return out[0]


def gains_over_lam(report: PlanReport) -> str:
    """Draw the gain over a fixed lam, a line for each rho, beside that of lam="auto"; a panel for each column.

    Args:
        report: A plan whose pairs compare plain training with rows of several lam and rho, and with lam="auto".

    Returns:
        The figure as SVG text; "" where no pair has two splits.
    """
    settings = {(c.cell.row, c.cell.column): c.cell.setting.awp for c in report.cells}
    pairs = [pair for pair in report.pairs if pair.gain is not None]
    if not pairs:
        return ""
    columns = dict.fromkeys(pair.column for pair in pairs)
    with drawing(1, len(columns), 1.4 + 2.3 * len(columns), 3.2) as (axes, out):
        for ax, column in zip(axes, columns, strict=True):
            lines: dict[float, list[tuple[float, PairedDifference]]] = {}
            for pair in pairs:
                awp = settings[pair.after, column]
                if pair.column != column or awp is None or pair.gain is None:
                    continue
                if awp.is_auto:
                    ax.axhline(pair.gain.mean, color="black", linewidth=1.5, linestyle="--", label='lam="auto"')
                    if pair.gain.low is not None and pair.gain.high is not None:
                        ax.axhspan(pair.gain.low, pair.gain.high, color="black", alpha=0.1, linewidth=0)
                else:
                    lines.setdefault(awp.rho, []).append((awp.fixed_lam, pair.gain))
            for (rho, points), colour in zip(sorted(lines.items()), COLOURS, strict=False):
                points.sort(key=lambda point: point[0])
                lams, means = [lam for lam, _ in points], [gain.mean for _, gain in points]
                ax.plot(lams, means, color=colour, marker="o", markersize=4, linewidth=1.5, label=f"rho = {rho:g}")
            ax.axhline(0, color=GREY, linewidth=0.8)
            ax.set(title=column, xlabel="lam")
            low, high = ax.get_ylim()
            ax.set_ylim(max(low, -1.5), high)  # a collapse leaves the panel
        axes[0].set(ylabel="gain in test accuracy, points")
        legend_beside(axes[-1])
    return out[0]


def gains_over_overfitting(report: PlanReport) -> str:
    """Draw the gain of WT-AWP over how much plain training overfits, with fixed lam and with lam="auto".

    Args:
        report: A plan with a league, or with pairs.

    Returns:
        The figure as SVG text; "" where nothing is compared.
    """
    points = {name: found for name, found in gains_and_overfitting(report).items() if name in EXPLAINED}
    if not points:
        return ""
    with drawing(1, len(points), 1.0 + 4.2 * len(points), 3.6) as (axes, out):
        for ax, (name, found) in zip(axes, points.items(), strict=True):
            xs, ys, _ = zip(*found, strict=True)
            correlation, p_value = rank_correlation(xs, ys)
            ax.axhline(0, color=GREY, linewidth=0.8)
            ax.plot(xs, ys, color=COLOURS[0], marker="o", markersize=4, linestyle="")
            if len(found) <= MAX_NAMED:
                for x, y, place in found:
                    ax.annotate(place, (x, y), (5, 3), textcoords="offset points", fontsize=7)
                ax.margins(x=0.25)
            if max(map(abs, ys)) > MAX_LINEAR:
                _show_small_and_large(ax)
            ax.set(xlabel="overfitting of plain training")
            ax.set_title(f"{name}\nrank correlation {correlation:+.2f}, p = {p_value:.2g}", fontsize=9)
        axes[0].set(ylabel="gain in test accuracy, points")
    return out[0]


def _show_small_and_large(ax: "Axes") -> None:
    """Make the scale of gains linear between -1 and 1 and logarithmic outside, with ticks for people."""
    ax.set_yscale("symlog", linthresh=1.0)
    low, high = ax.get_ylim()
    ax.set_ylim(low * 1.4 if low < -1 else low - 0.1, high * 1.4 if high > 1 else high + 0.1)
    ticks = [t for t in (-50, -10, -5, -1, -0.5, 0, 0.5, 1, 2, 5, 10) if ax.get_ylim()[0] <= t <= ax.get_ylim()[1]]
    ax.set_yticks(ticks, [f"{t:+g}" if t else "0" for t in ticks])
    ax.set_yticks([], minor=True)


def _draw_differences(
    ax: "Axes", height: int, values: tuple[list[float], list[float]], difference: PairedDifference
) -> None:
    """Draw a dot for the difference of each split, a diamond for their mean, a bar for its 95 % interval."""
    differences = np.subtract(values[1], values[0])
    heights = height + np.linspace(-0.22, 0.22, len(differences))  # in the order of the splits
    if difference.low is not None and difference.high is not None:
        bar = [difference.low, difference.high]
        ax.plot(bar, [height, height], color=COLOURS[0], linewidth=2.2, solid_capstyle="butt", zorder=2)
    ax.plot([difference.mean], [height], color=COLOURS[0], marker="D", markersize=5, zorder=2)
    ax.scatter(differences, heights, s=9, color=COLOURS[5], linewidths=0, zorder=3)  # over the bar, which hid some
