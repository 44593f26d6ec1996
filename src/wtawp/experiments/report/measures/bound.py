"""The report of the measure "bound": a table and a figure of the generalisation bounds."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from wtawp.experiments.report.drawing import GREY, drawing, legend_beside, method_style, use_log_scale
from wtawp.experiments.report.reporters import FigureSpec, Reporter
from wtawp.experiments.report.tables import Entry, Table
from wtawp.experiments.results.geometry import BOUND_TERMS, bounds_of
from wtawp.experiments.results.summary import PlanReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def bound_curves(report: PlanReport) -> str:
    """Draw the bound on the loss on all nodes or graphs over the radius, and that loss; a panel for each column.

    Args:
        report: A plan whose settings measure bounds.

    Returns:
        The figure as SVG text; "" where no run is finished.
    """
    columns = [c for c in report.columns if any(bounds_of(cell) for cell in report.column(c))]
    if not columns:
        return ""
    with drawing(1, len(columns), 2.6 * len(columns) + 1.4, 3.2) as (axes, out):
        for ax, column in zip(axes, columns, strict=True):
            for cell in report.column(column):
                if results := list(bounds_of(cell).values()):
                    totals = np.mean([r["total"] for r in results], axis=0)
                    losses = [float(np.mean([r[name] for r in results])) for name in ("all_loss", "train_loss")]
                    colour = method_style(cell.cell.setting.awp)["color"]
                    draw_bound(ax, cell.cell.row, results[0]["rhos"], totals, *losses, colour=colour)
            finish_bound(ax)
            ax.set_title(column)
        axes[0].set_ylabel("1 - p(right class), mean")
        legend_beside(axes[-1])
    return out[0]


def draw_bound(
    ax: "Axes",
    label: str,
    rhos: Sequence[float],
    totals: ArrayLike,
    all_loss: float,
    train_loss: float,
    *,
    colour: str,
) -> None:
    """Draw the bound over the radius, the loss that it bounds, and that in training.

    Args:
        ax: The axes to draw on.
        label: The name of the model in the legend.
        rhos: The radii.
        totals: The bound at each radius.
        all_loss: The loss on all nodes or graphs.
        train_loss: The loss on those of the training set.
        colour: The colour of all three lines.
    """
    ax.plot(rhos, np.asarray(totals), color=colour, label=f"{label}, bound")
    ax.plot(rhos, [all_loss] * len(rhos), "--", color=colour, label=f"{label}, on all")
    ax.plot(rhos, [train_loss] * len(rhos), "-.", color=colour, linewidth=0.9, label=f"{label}, in training")


def finish_bound(ax: "Axes") -> None:
    """Add what all panels of bounds share: the line above which a bound says nothing, and the axes.

    Args:
        ax: The axes with the bounds.
    """
    ax.axhline(1, color=GREY, linewidth=0.8, linestyle=":", label="above: vacuous")
    use_log_scale(ax, "x")
    use_log_scale(ax, "y")
    ax.set_xlabel("rho, relative to each layer")


def bound_tables(report: PlanReport) -> list[Table]:
    """The terms of each bound at the radius where it is smallest, beside the true gap.

    Args:
        report: A plan with its measurements.

    Returns:
        One table; none where no bound was measured.
    """
    rows = []
    for column in report.columns:
        for cell in report.column(column):
            results = list(bounds_of(cell).values())
            if not results:
                continue
            mean = {
                name: np.mean([r[name] for r in results], axis=0) for name in (*BOUND_TERMS, "train_loss", "all_loss")
            }
            best = int(np.argmin(mean["total"]))
            num_vacuous = sum(min(r["total"]) >= 1 for r in results)
            rows.append((
                Entry(column), Entry(cell.cell.row), Entry(f"{results[0]['rhos'][best]:.3g}"),
                *(Entry(f"{mean[name][best]:.4g}", float(mean[name][best])) for name in BOUND_TERMS),
                Entry(f"{mean['total'][best] - mean['train_loss']:.4g}"),
                Entry(f"{mean['all_loss'] - mean['train_loss']:+.4f}"),
                Entry(f"{num_vacuous} of {len(results)}"),
            ))  # fmt: skip
    if not rows:
        return []
    measures = [m for cell in report.cells for m in cell.cell.setting.measures if m.name == "bound"]
    options: dict[str, Any] = dict(measures[0].options)
    confidence, constant = 1 - options.get("delta", 0.05), options.get("constant", 1.0)
    caption = (
        "Theorem 1 (nodes) and the graph-level bound (graphs) for the loss 1 - p(right class), with probability "
        f"{confidence:g}, unnamed constants {constant:g}, at that radius of those tried where the bound is least; "
        "means over splits. The perturbed loss is found by climbing. A bound of 1 or more is vacuous: in how many "
        "splits it is at every radius."
    )
    headers = ("data", "model", "rho", "perturbed loss", "tail", "complexity", "remainder", "bound",
               "bound on the gap", "true gap", "vacuous")  # fmt: skip
    return [Table(caption, headers, tuple(rows))]


REPORTER = Reporter(
    tables=(bound_tables,),
    figures={
        "bound_curves": FigureSpec(
            bound_curves,
            "The bound on the loss 1 - p(right class) on all nodes or graphs, over the radius; that loss itself "
            "(dashed), and that in training; means over splits. Above the dotted line, at 1, the bound says nothing.",
        )
    },
    order=40,
)
