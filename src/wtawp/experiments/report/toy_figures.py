"""Figures of the toy problems: decisions of single runs and their training losses.

They show the cells whose settings keep prediction scores: those that are shown run by run, not averaged.
"""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from wtawp.experiments.report.drawing import GREY, drawing, legend_beside, row_styles
from wtawp.experiments.results.summary import CellReport, PlanReport
from wtawp.experiments.spec import Setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_LOSS = 2.0  # where the axis of the losses is cut


def decisions(report: PlanReport) -> str:
    """Draw nodes at their positions, filled by prediction score and outlined by label, with the graph behind them.

    Args:
        report: A plan whose cells keep scores.

    Returns:
        The figure as SVG text; "" where no run is finished.
    """
    cells = [c for c in _single_runs(report) if c.records and c.records[0].scores is not None]
    if not cells:
        return ""
    columns = min(len(cells), 5)
    rows = math.ceil(len(cells) / columns)
    width, height = np.ptp(_points(cells[0])[0], axis=0)
    with drawing(rows, columns, 2.3 * columns, (0.75 + 2.1 * height / width) * rows) as (axes, out):
        for ax, cell in zip(axes, cells, strict=False):
            pos, edges, y = _points(cell)
            draw_decision(ax, pos, edges if _uses_edges(cell.cell.setting) else None, y, cell.records[0].scores)
            ax.set_title(f"{cell.cell.row}\ntest accuracy {cell.mean:.1f} %")
            ax.set(xticks=[], yticks=[], aspect="equal")
        for ax in axes[len(cells) :]:
            ax.set_axis_off()
    return out[0]


def _single_runs(report: PlanReport) -> list[CellReport]:
    """The cells that are shown run by run."""
    return [c for c in report.cells if "scores" in c.cell.setting.keep]


def _uses_edges(setting: Setting) -> bool:
    """Whether the model sees the graph."""
    return setting.model != "MLP"


def _points(cell: CellReport) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions [n, 2], edges [e, 2], each once, and labels [n]: generated again from name and split."""
    from wtawp.graphs import load  # here, because it takes seconds to import and most reports need no points

    data = load(cell.cell.setting.dataset, seed=cell.records[0].split)
    edges = data.edge_index.T.numpy()
    return data.pos.numpy(), edges[edges[:, 0] < edges[:, 1]], data.y.numpy()


def draw_decision(ax: "Axes", pos: np.ndarray, edges: np.ndarray | None, y: np.ndarray, scores: Any) -> None:
    """Draw the nodes of a graph with two classes, filled by prediction score and outlined by label.

    Args:
        ax: The axes to draw on.
        pos: Positions, [n, 2].
        edges: Pairs of nodes, [e, 2]; None to draw no edges.
        y: Labels, 0 or 1, [n].
        scores: Prediction scores from -1 (class 0) to 1 (class 1), [n].
    """
    from matplotlib.collections import LineCollection

    if edges is not None:
        ax.add_collection(LineCollection(pos[edges], colors="#b8b8b8", linewidths=0.4, zorder=0))
    outline = ["#08306b" if label else "#7f0000" for label in y]
    style: dict[str, Any] = {"cmap": "RdBu", "vmin": -1, "vmax": 1, "s": 22, "linewidths": 0.9}
    ax.scatter(pos[:, 0], pos[:, 1], c=scores, edgecolors=outline, **style)


def toy_losses(report: PlanReport) -> str:
    """Draw the natural training loss of single runs; a loss of ln 2 is that of a model that has learned nothing.

    Args:
        report: A plan whose cells keep scores and history.

    Returns:
        The figure as SVG text; "" where no run is finished.
    """
    cells = {c.cell.row: c for c in _single_runs(report) if c.histories("train_loss")}
    if not cells:
        return ""
    curves = {row: c.histories("train_loss")[0] for row, c in cells.items()}
    with drawing(1, 1, 7.5, 3.2) as ((ax,), out):
        styles = row_styles({row: c.cell.setting.awp for row, c in cells.items()})
        for row, curve in curves.items():
            ax.plot(curve, linewidth=1.3, label=row, **styles[row])
        ax.axhline(math.log(2), color=GREY, linewidth=0.8, linestyle=":", label="ln 2: nothing learned")
        highest = max(max(curve) for curve in curves.values())
        is_cut = not highest <= MAX_LOSS
        ax.set(xlabel="epoch", ylabel=f"training loss{f' (cut at {MAX_LOSS:g})' if is_cut else ''}", xmargin=0)
        ax.set_ylim(0, MAX_LOSS if is_cut else 1.05 * max(highest, math.log(2)))
        legend_beside(ax)
    return out[0]
