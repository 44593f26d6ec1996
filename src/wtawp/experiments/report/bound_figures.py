"""The bounds as a figure and a table, from records alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from wtawp.experiments.report.drawing import GREY, drawing, method_style, use_log_scale
from wtawp.experiments.report.tables import Entry, Table
from wtawp.experiments.results.geometry import BOUND_TERMS, bounds_of
from wtawp.experiments.results.summary import PlanReport


def bound_curves(report: PlanReport, png: Path | None = None) -> str:
    """How high the loss on all nodes or graphs may be, by the bound, and how high it is; a panel a column."""
    columns = [c for c in report.columns if any(bounds_of(cell) for cell in report.column(c))]
    if not columns:
        return ""
    with drawing(1, len(columns), 2.6 * len(columns) + 1.4, 3.2, png=png) as (axes, out):
        for ax, column in zip(axes, columns, strict=True):
            for cell in report.column(column):
                if found := list(bounds_of(cell).values()):
                    totals = np.mean([r["total"] for r in found], axis=0)
                    losses = [float(np.mean([r[name] for r in found])) for name in ("all_loss", "train_loss")]
                    draw_bound(ax, cell.cell.row, found[0]["rhos"], totals, *losses)
            finish_bound(ax)
            ax.set_title(column)
        axes[0].set_ylabel("1 - p(right class), mean")
        axes[-1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return out[0]


def draw_bound(
    ax: Axes, row: str, rhos: Sequence[float], totals: ArrayLike, all_loss: float, train_loss: float
) -> None:
    """The bound over the radius, the loss that it bounds, and that in training."""
    color = method_style(row)["color"]
    ax.plot(rhos, np.asarray(totals), color=color, label=f"{row}, bound")
    ax.plot(rhos, [all_loss] * len(rhos), "--", color=color, label=f"{row}, on all")
    ax.plot(rhos, [train_loss] * len(rhos), "-.", color=color, linewidth=0.9, label=f"{row}, in training")


def finish_bound(ax: Axes) -> None:
    """What all panels of bounds have."""
    ax.axhline(1, color=GREY, linewidth=0.8, linestyle=":", label="above: vacuous")
    use_log_scale(ax, "x")
    use_log_scale(ax, "y")
    ax.set_xlabel("rho, relative to each layer")


def bound_table(report: PlanReport) -> Table:
    """The terms where the bound is least, beside the gap."""
    rows = []
    asked = [m for cell in report.cells for m in cell.cell.setting.measures if m.name == "bound"]
    told: dict[str, Any] = dict(asked[0].options) if asked else {}
    for column in report.columns:
        for cell in report.column(column):
            found = list(bounds_of(cell).values())
            if not found:
                continue
            mean = {
                name: np.mean([r[name] for r in found], axis=0) for name in (*BOUND_TERMS, "train_loss", "all_loss")
            }
            best = int(np.argmin(mean["total"]))
            vacuous = sum(min(r["total"]) >= 1 for r in found)
            rows.append((
                Entry(column), Entry(cell.cell.row), Entry(f"{found[0]['rhos'][best]:.3g}"),
                *(Entry(f"{mean[name][best]:.4g}", float(mean[name][best])) for name in BOUND_TERMS),
                Entry(f"{mean['total'][best] - mean['train_loss']:.4g}"),
                Entry(f"{mean['all_loss'] - mean['train_loss']:+.4f}"),
                Entry(f"{vacuous} of {len(found)}"),
            ))  # fmt: skip
    confidence, constant = 1 - told.get("delta", 0.05), told.get("constant", 1.0)
    return Table(
        "Theorem 1 (nodes) and the graph-level bound (graphs) for the loss 1 - p(right class), with probability "
        f"{confidence:g}, unnamed constants {constant:g}, at that radius of those tried where the bound is least; "
        "means over splits. The perturbed loss is found by climbing. A bound of 1 or more is vacuous: in how many "
        "splits it is at every radius.",
        ("data", "model", "rho", "perturbed loss", "tail", "complexity", "remainder", "bound", "bound on the gap",
         "true gap", "vacuous"),
        tuple(rows),
    )  # fmt: skip


def has_bounds(report: PlanReport) -> bool:
    """Whether there is anything for `bound_table`."""
    return any(bounds_of(cell) for cell in report.cells)
