"""Curves over the epochs of training: losses, gradient norms, logits, saturation and sharpness."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wtawp.experiments.report.drawing import drawing, legend_beside, log_ticks, method_style, row_styles, use_log_scale
from wtawp.experiments.results.summary import CellReport, PlanReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHARPNESS_EVERY = 10  # epochs between two measurements of `analysis.SharpnessMonitor`
SHARPNESS_COLUMNS = {radius: f"sharpness_{radius}" for radius in ("layer", "global", "adaptive")}  # of the history
WINDOW = 9  # epochs over which curves are smoothed
Curves = Callable[[CellReport], list[list[float]]]


@dataclass(frozen=True)
class HistoryColumn:
    """A column of the history as a panel shows it.

    Attributes:
        column: The name of the column.
        label: The label of the axis.
        is_log: Whether the axis is logarithmic.
    """

    column: str
    label: str
    is_log: bool = True


SATURATION = (
    HistoryColumn("logit_scale", "logit scale"),
    HistoryColumn("perturbed_logit_scale", "logit scale, perturbed"),
    HistoryColumn("perturbed_saturation", "p of the likeliest, perturbed", is_log=False),
    HistoryColumn("gradient_norm", "gradient norm"),
    HistoryColumn("perturbed_norm", "gradient norm, perturbed"),
)


@dataclass(frozen=True)
class CurvePanel:
    """A quantity over the epochs.

    Attributes:
        title: Its name.
        curves: Takes a cell and returns a curve for each run that has it.
        is_log: Whether the axis is logarithmic.
    """

    title: str
    curves: Curves
    is_log: bool = True


def gradient_norms(report: PlanReport) -> str:
    """Draw the norm of the gradient at the perturbed weights over the epochs, a panel for each column.

    Args:
        report: A plan whose cells keep history.

    Returns:
        The figure as SVG text; "" where no run has a history.
    """
    norms = partial(CellReport.histories, column="perturbed_norm")
    columns = [c for c in report.columns if any(norms(cell) for cell in report.column(c))]
    if not columns:
        return ""
    with drawing(1, len(columns), 3.5 * len(columns), 3.0) as (axes, out):
        for ax, column in zip(axes, columns, strict=True):
            _draw_curves(ax, report.column(column), norms)
            use_log_scale(ax, "y")
            ax.set(title=column, xlabel="epoch")
        axes[0].set_ylabel("norm of the perturbed gradient")
        axes[0].legend()
    return out[0]


def losses_and_gap(report: PlanReport) -> str:
    """Draw the training loss, and what the perturbation adds to it, over the epochs.

    Args:
        report: A plan whose cells keep history.

    Returns:
        The figure as SVG text; "" where no run has a history.
    """
    loss, gap = (partial(CellReport.histories, column=column) for column in ("train_loss", "gap"))
    return _panels(
        report, [CurvePanel("training loss", loss), CurvePanel("rise of the loss by the perturbation", gap, False)]
    )


def relative_gradient_norms(report: PlanReport) -> str:
    """Draw the norm of the gradient over that of the weights.

    Args:
        report: A plan whose cells keep history.

    Returns:
        The figure as SVG text; "" where no run has a history.
    """

    def ratio(cell: CellReport) -> list[list[float]]:
        both = zip(cell.histories("gradient_norm"), cell.histories("weight_norm"), strict=False)
        return [(np.asarray(gradient) / np.asarray(weight)).tolist() for gradient, weight in both]

    return _panels(report, [CurvePanel("gradient norm / weight norm", ratio)])


def _panels(report: PlanReport, panels: Sequence[CurvePanel]) -> str:
    """Draw a row of panels for each column of the plan."""
    columns = [name for name in report.columns if any(p.curves(c) for p in panels for c in report.column(name))]
    if not columns:
        return ""
    with drawing(len(columns), len(panels), 2.0 + 4.2 * len(panels), 3.0 * len(columns)) as (axes, out):
        for ax, (column, panel) in zip(axes, ((c, p) for c in columns for p in panels), strict=True):
            _draw_curves(ax, report.column(column), panel.curves)
            if panel.is_log:
                use_log_scale(ax, "y")
            ax.set(title=f"{panel.title}, {column}", xlabel="epoch")
        legend_beside(axes[len(panels) - 1])
    return out[0]


def _draw_curves(ax: "Axes", cells: Sequence[CellReport], curves_of: Curves) -> None:
    """Draw a thin line for each run, and a thick one for their median."""
    styles = row_styles({c.cell.row: c.cell.setting.awp for c in cells})
    for cell in cells:
        if curves := curves_of(cell):
            table, style = np.array(curves), styles[cell.cell.row]
            ax.plot(table.T, linewidth=0.5, alpha=0.35, color=style["color"])
            ax.plot(np.median(table, axis=0), linewidth=1.6, label=cell.cell.row, **style)
    ax.margins(x=0)


def saturation_curves(report: PlanReport) -> str:
    """Draw logit scale, saturation and gradient norms: a row of panels for each column, without and with `balance`.

    Args:
        report: A plan whose cells keep saturation.

    Returns:
        The figure as SVG text; "" where no run has recorded it.
    """
    panels = []
    for column in report.columns:
        cells = [c for c in report.column(column) if c.histories("perturbed_saturation")]
        plain = [c for c in cells if not _is_balanced(c)]
        balanced = [c for c in cells if _is_balanced(c)]
        panels += [(title, some) for title, some in ((column, plain), (f"{column}, balance=1", balanced)) if some]
    if not panels:
        return ""
    size = len(SATURATION)
    with drawing(len(panels), size, 2.7 * size + 1.2, 2.2 * len(panels)) as (axes, out):
        for i, (title, cells) in enumerate(panels):
            for ax, shown in zip(axes[i * size : (i + 1) * size], SATURATION, strict=True):
                for cell in cells:
                    curve = _running_median(np.median(cell.histories(shown.column), axis=0))
                    colour = method_style(cell.cell.setting.awp)["color"]
                    ax.plot(curve, linewidth=1.3, label=cell.cell.row, color=colour)
                if shown.is_log:
                    use_log_scale(ax, "y")
                    ax.set_yticks(log_ticks(*ax.get_ylim(), few=True))
                ax.set(ylabel=shown.label, xmargin=0, xlabel="epoch" if i + 1 == len(panels) else "")
            axes[i * size].set_title(title, loc="left")
            legend_beside(axes[(i + 1) * size - 1], fontsize=8)
    return out[0]


def _is_balanced(cell: CellReport) -> bool:
    """Whether the perturbed gradient was limited in length."""
    awp = cell.cell.setting.awp
    return awp is not None and awp.balance is not None


def _running_median(curve: NDArray[np.float64]) -> NDArray[np.float64]:
    """The median over a window around each epoch."""
    half = WINDOW // 2
    return np.array([np.median(curve[max(0, i - half) : i + half + 1]) for i in range(len(curve))])


def sharpness_curves(report: PlanReport) -> str:
    """Draw the sharpness of each method during training, with one radius for all: a panel for each kind of ball.

    Args:
        report: A plan whose cells keep sharpness.

    Returns:
        The figure as SVG text; "" where no run has recorded it.
    """
    shown = {r: name for r, name in SHARPNESS_COLUMNS.items() if any(cell.histories(name) for cell in report.cells)}
    if not shown:
        return ""
    with drawing(1, len(shown), 4.2 * len(shown) + 1.6, 3.2) as (axes, out):
        for ax, (radius, column) in zip(axes, shown.items(), strict=True):
            for cell in report.cells:
                if curves := cell.histories(column):
                    table, style = np.array(curves), method_style(cell.cell.setting.awp)
                    epochs = SHARPNESS_EVERY * np.arange(table.shape[1])
                    ax.plot(epochs, table.T, linewidth=0.5, alpha=0.35, color=style["color"])
                    ax.plot(epochs, np.median(table, axis=0), linewidth=1.6, label=cell.cell.row, **style)
            use_log_scale(ax, "y")
            ax.set_yticks(log_ticks(*ax.get_ylim()))
            ax.set(title=f"{radius} radius", xlabel="epoch", xmargin=0)
        axes[0].set_ylabel("rise of the training loss in the ball")
        legend_beside(axes[-1])
    return out[0]
