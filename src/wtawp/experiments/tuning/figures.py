"""The response of the validation accuracy to lam and rho, as the trials of a search saw it."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wtawp.experiments.report.drawing import drawing, log_ticks, use_log_scale
from wtawp.experiments.tuning.dimensions import Range
from wtawp.experiments.tuning.space import Space
from wtawp.experiments.tuning.study import Trial

CELLS = 6  # of the map along each axis
CAPTION = (
    "Mean validation accuracy over lam and rho, in the first stage of the trials, which pruned ones have too. A cell "
    "is coloured by the mean of its trials, which differ in the other hyper-parameters as well; empty cells were not "
    "tried. Dots are trials that were trained to the end, crosses were pruned, the star is the best."
)


def response_map(trials: Sequence[Trial], space: Space) -> str:
    """Draw a heat map of the validation accuracy over lam and rho.

    Args:
        trials: The finished trials of WT-AWP.
        space: What was varied.

    Returns:
        The figure as SVG text; "" if lam or rho was not varied, or nothing was tried.
    """
    rho, lam = space.dimensions.get("rho"), space.dimensions.get("lam")
    if not isinstance(rho, Range) or not isinstance(lam, Range) or not trials:
        return ""
    x, y = (np.array([float(t.parameters[name] or 0.0) for t in trials]) for name in ("rho", "lam"))
    values = np.array([100 * t.first_accuracy for t in trials])
    edges = np.geomspace(rho.low, rho.high, CELLS + 1), np.linspace(lam.low, lam.high, CELLS + 1)
    is_complete = np.array([t.accuracy is not None for t in trials])
    best = max(range(len(trials)), key=lambda i: trials[i].accuracy or -math.inf)
    with drawing(1, 1, 6.0, 4.0) as ((ax,), out):
        means = cell_means(x, y, values, edges)
        mesh = ax.pcolormesh(*edges, means.T, cmap="cividis", edgecolors="white", linewidth=0.5)
        ax.figure.colorbar(mesh, ax=ax, label="validation accuracy, %")
        points: dict[str, Any] = {"edgecolors": "white", "linewidths": 0.6, "zorder": 3}
        ax.scatter(x[is_complete], y[is_complete], s=16, c="black", label="trial", **points)
        ax.scatter(x[~is_complete], y[~is_complete], s=16, c="black", marker="x", linewidths=0.8, label="pruned")
        ax.scatter(x[[best]], y[[best]], s=110, c="#d55e00", marker="*", label="best", **points)
        use_log_scale(ax, "x")
        ax.set(xlabel="rho", ylabel="lam", xlim=(rho.low, rho.high), ylim=(lam.low, lam.high))
        ax.set_xticks(log_ticks(rho.low, rho.high))
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, 1.13), ncol=3)
    return out[0]


def cell_means(
    x: np.ndarray, y: np.ndarray, values: np.ndarray, edges: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:  # [k], [k], [k] -> [a, b]
    """Average values over the cells of a grid.

    Args:
        x: The first coordinate of each value.
        y: The second coordinate.
        values: The values.
        edges: The borders of the cells along both axes.

    Returns:
        The mean of each cell; NaN where there is no value.

    Example:
        >>> grid = np.array([0.0, 1.0, 2.0])
        >>> cell_means(np.array([0.5, 0.6]), np.array([1.5, 1.6]), np.array([1.0, 3.0]), (grid, grid))
        array([[nan,  2.],
               [nan, nan]])
    """
    counts, _, _ = np.histogram2d(x, y, bins=edges)
    sums, _, _ = np.histogram2d(x, y, bins=edges, weights=values)
    means: np.ndarray = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
    return means
