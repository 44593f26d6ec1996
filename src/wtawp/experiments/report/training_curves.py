"""What was watched while models trained, over the epochs: logits, saturation, gradients, sharpness."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wtawp.experiments.report.drawing import drawing, method_style, nice_ticks, use_log_scale
from wtawp.experiments.results.summary import PlanReport

SHARPNESS_EVERY = 10  # epochs, as `analysis.SharpnessMonitor` looks
SATURATION = {  # what is drawn of it, and what it is called
    "logit_scale": "logit scale",
    "perturbed_logit_scale": "logit scale, perturbed",
    "perturbed_saturation": "p of the likeliest, perturbed",
    "gradient_norm": "gradient norm",
    "perturbed_norm": "gradient norm, perturbed",
}
WINDOW = 9  # epochs over which curves are smoothed


def saturation_curves(report: PlanReport, png: Path | None = None) -> str:
    """Logit scale, saturation and gradient norms, a row of panels for each column, without and with `balance`."""
    panels = []
    for column in report.columns:
        cells = [c for c in report.column(column) if c.histories("perturbed_saturation")]
        kinds = [[c for c in cells if ("balance" in c.cell.row) == balanced] for balanced in (False, True)]
        panels += [(f"{column}{told}", kind) for told, kind in zip(("", ", balance=1"), kinds, strict=True) if kind]
    if not panels:
        return ""
    size = len(SATURATION)
    with drawing(len(panels), size, 2.7 * size + 1.2, 2.2 * len(panels), png=png) as (axes, out):
        for i, (title, cells) in enumerate(panels):
            for ax, (name, told) in zip(axes[i * size : (i + 1) * size], SATURATION.items(), strict=True):
                for cell in cells:
                    curve = _smoothed(np.median(cell.histories(name), axis=0))
                    ax.plot(curve, linewidth=1.3, label=cell.cell.row, color=method_style(cell.cell.row)["color"])
                if "saturation" not in name:
                    use_log_scale(ax, "y")
                    ax.set_yticks(nice_ticks(*ax.get_ylim(), few=True))
                ax.set(ylabel=told, xmargin=0, xlabel="epoch" if i + 1 == len(panels) else "")
            axes[i * size].set_title(title, loc="left")
            axes[(i + 1) * size - 1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8)
    return out[0]


def _smoothed(curve: NDArray[np.float64]) -> NDArray[np.float64]:
    """The running median."""
    half = WINDOW // 2
    return np.array([np.median(curve[max(0, i - half) : i + half + 1]) for i in range(len(curve))])


def sharpness_curves(report: PlanReport, png: Path | None = None) -> str:
    """The sharpness of each method while it trains, with one radius for all: a panel for each kind of ball."""
    columns = {c.removeprefix("sharpness_") for cell in report.cells for r in cell.records
               for c in r.history or {} if c.startswith("sharpness_")}  # fmt: skip
    if not columns:
        return ""
    with drawing(1, len(columns), 4.2 * len(columns) + 1.6, 3.2, png=png) as (axes, out):
        for ax, radius in zip(axes, sorted(columns, reverse=True), strict=True):
            for cell in report.cells:
                if curves := cell.histories(f"sharpness_{radius}"):
                    table, look = np.array(curves), method_style(cell.cell.row)
                    epochs = SHARPNESS_EVERY * np.arange(table.shape[1])
                    ax.plot(epochs, table.T, linewidth=0.5, alpha=0.35, color=look["color"])
                    ax.plot(epochs, np.median(table, axis=0), linewidth=1.6, label=cell.cell.row, **look)
            use_log_scale(ax, "y")
            ax.set_yticks(nice_ticks(*ax.get_ylim()))
            ax.set(title=f"{radius} radius", xlabel="epoch", xmargin=0)
        axes[0].set_ylabel("rise of the training loss in the ball")
        axes[-1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return out[0]
