"""Figures of one inspected model, or of two side by side."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from wtawp.analysis import SpectralDensity
from wtawp.core import AwpConfig, Radius
from wtawp.experiments.report.drawing import GREY, drawing, method_style, use_log_scale
from wtawp.experiments.report.measures.landscape import draw_lines

Array = NDArray[np.float64]
Methods = Mapping[str, AwpConfig | None]  # how each model was trained, for its colour
NOT_KNOWN: Methods = {}  # models without an entry are drawn as plain training is
RHO_OF: dict[Radius, str] = {  # the unit of a radius of each kind
    "layer": "rho, relative to each layer",
    "adaptive": "rho, in sizes of each weight",
    "global": "rho, distance between weights",
}
PLAIN = FuncFormatter(
    lambda value, _: f"{value:g}"
)  # no factor such as 1e18 at the end of an axis, which would cover labels


def line_figure(
    distances: Sequence[float],
    losses: Mapping[str, Array],
    loss_at_model: Mapping[str, float],
    unit: str,
    png: Path | None,
    methods: Methods = NOT_KNOWN,
) -> str:
    """Draw the rise of the loss of each model along lines through it.

    Args:
        distances: The distances from the model along a line.
        losses: The losses of each model by its name, [lines, distances].
        loss_at_model: The loss of each model itself, from which the rise is measured.
        unit: The label of the distances.
        png: A file for the figure as PNG beside the SVG; None writes none.
        methods: How each model was trained, for its colour; a model without an entry is drawn as plain training is.

    Returns:
        The figure as SVG.
    """
    with drawing(1, 1, 6.0, 3.4, png=png) as ((ax,), out):
        for name, values in losses.items():
            at_model, style = loss_at_model[name], method_style(methods.get(name))
            draw_lines(ax, distances, values - at_model, name, [at_model], style=style)
        if any(len(values) > 1 for values in losses.values()):
            ax.set_title("mean over the lines, band between their quartiles", fontsize=9)
        ax.set(xlabel=unit, ylabel="rise of the training loss")
        ax.legend()
    return out[0]


def between_figure(
    distances: Sequence[float],
    losses: Array,
    ends: Mapping[str, float],
    png: Path | None,
    methods: Methods = NOT_KNOWN,
) -> str:
    """Draw the loss on the line from one solution to another; losses that are not finite are gaps.

    Args:
        distances: The share of the way from the first solution (0) to the second (1).
        losses: The losses at these distances, [distances].
        ends: The losses of the two solutions by their names.
        png: A file for the figure as PNG beside the SVG; None writes none.
        methods: How each model was trained, for its colour; a model without an entry is drawn as plain training is.

    Returns:
        The figure as SVG.
    """
    first, second = ends
    with drawing(1, 1, 6.0, 3.4, png=png) as ((ax,), out):
        ax.plot(distances, np.where(np.isfinite(losses), losses, np.nan), color=GREY)
        for position, (name, loss) in enumerate(ends.items()):
            style = {"color": method_style(methods.get(name))["color"], "marker": "os"[position], "linestyle": ""}
            ax.plot([position], [loss], label=f"{name}, loss {loss:.3f}", **style)
        ax.set(xlabel=f"share of the way from {first} (0) to {second} (1)", ylabel="training loss")
        ax.legend()
    return out[0]


def plane_figure(
    distances: Sequence[float],
    losses: Mapping[str, Array],
    loss_at_model: Mapping[str, float],
    unit: str,
    png: Path | None,
) -> str:
    """Draw a map with contours and a surface of each model, with the same colours; losses that are not finite are gaps.

    Args:
        distances: The distances from the model along both directions.
        losses: The losses of each model by its name, [distances, distances].
        loss_at_model: The loss of each model itself, from which the rise is measured.
        unit: The label of the distances.
        png: A file for the figure as PNG beside the SVG; None writes none.

    Returns:
        The figure as SVG.
    """
    rises = {name: np.where(np.isfinite(v), v - loss_at_model[name], np.nan) for name, v in losses.items()}
    finite = np.concatenate([rise[np.isfinite(rise)] for rise in rises.values()])
    levels = MaxNLocator(12).tick_values(*((finite.min(), finite.max()) if len(finite) else (0.0, 1.0)))
    width = len(rises)
    with drawing(2, width, 4.3 * width + 0.8, 8.0, png=png) as (axes, out):
        figure = axes[0].get_figure(root=True)
        assert figure is not None
        for i, (ax, (name, rise)) in enumerate(zip(axes, rises.items(), strict=False)):
            gaps = int(np.isnan(rise).sum())
            ax.set_title(f"{name}, loss {loss_at_model[name]:.4g}" + (f", {gaps} gaps" if gaps else ""))
            axes[width + i].remove()
            solid: Any = figure.add_subplot(2, width, width + i + 1, projection="3d")
            if gaps == rise.size:
                ax.text(0.5, 0.5, "no finite loss", transform=ax.transAxes, ha="center", va="center")
                solid.set_axis_off()
            else:
                contours = _map(ax, distances, rise, levels)
                _surface(solid, distances, rise, levels)
            _label_axes(ax, solid, distances, unit)
        if len(finite):
            figure.colorbar(contours, ax=axes[:width], label="rise of the training loss", format=PLAIN)
    return out[0]


def _map(ax: Axes, distances: Sequence[float], rise: Array, levels: Sequence[float]) -> Any:
    """Draw the rise on a plane as a map with contours."""
    first, second = np.meshgrid(distances, distances, indexing="ij")
    contours = ax.contourf(first, second, rise, levels=levels, cmap="viridis", vmin=levels[0], vmax=levels[-1])
    inner = [level for level in levels[1::2] if np.nanmin(rise) < level < np.nanmax(rise)]  # others cause a warning
    if inner:
        ax.contour(first, second, rise, levels=inner, colors="white", linewidths=0.5)
    ax.plot([0], [0], "+", color="white")
    return contours


def _surface(solid: Any, distances: Sequence[float], rise: Array, levels: Sequence[float]) -> None:
    """Draw the rise on a plane as a surface."""
    first, second = np.meshgrid(distances, distances, indexing="ij")
    solid.plot_surface(first, second, rise, rcount=26, ccount=26, cmap="viridis", vmin=levels[0], vmax=levels[-1])
    solid.set_zlim(levels[0], levels[-1])


def _label_axes(ax: Axes, solid: Any, distances: Sequence[float], unit: str) -> None:
    """Label the axes of the map and of the surface below it; both directions have the same unit."""
    names = [f"{which} direction\n{unit.removeprefix('distance, ')}" for which in ("first", "second")]
    ends = distances[0], distances[-1]
    ax.set(xlabel=names[0], ylabel=names[1], xlim=ends, ylim=ends, aspect="equal")
    solid.set(xlim=ends, ylim=ends)
    solid.set_xlabel(names[0], fontsize=8, labelpad=10)
    solid.set_ylabel(names[1], fontsize=8, labelpad=10)
    solid.set_zlabel("rise of the training loss", fontsize=8, labelpad=14)
    solid.set_box_aspect(None, zoom=0.8)
    for axis in (ax.xaxis, ax.yaxis, solid.xaxis, solid.yaxis, solid.zaxis):
        axis.set_major_formatter(PLAIN)
    for axis in (solid.xaxis, solid.yaxis, solid.zaxis):
        axis.set_major_locator(MaxNLocator(5))
    solid.tick_params(labelsize=8)
    solid.tick_params(axis="z", pad=7)


def smoothness_figure(
    norms: Mapping[str, Mapping[str, list[float] | str]], png: Path | None, methods: Methods = NOT_KNOWN
) -> str:
    """Draw a panel for each matrix and definition: means with deviations over noisy inputs.

    Args:
        norms: The gradient norms by panel and model, or the reason why there are none.
        png: A file for the figure as PNG beside the SVG; None writes none.
        methods: How each model was trained, for its colour; a model without an entry is drawn as plain training is.

    Returns:
        The figure as SVG.
    """
    with drawing(1, len(norms), 2.4 * len(norms), 2.8, png=png) as (axes, out):
        for ax, (panel, by_model) in zip(axes, norms.items(), strict=True):
            measured = {name: values for name, values in by_model.items() if not isinstance(values, str)}
            for i, (name, values) in enumerate(measured.items()):
                ax.bar(
                    [i],
                    [np.mean(values)],
                    yerr=[np.std(values)],
                    color=method_style(methods.get(name))["color"],
                    width=0.6,
                )
            ax.set_xticks(range(len(measured)), [name.replace("+", "\n+") for name in measured])
            if not measured:
                ax.text(0.5, 0.5, "not measured", transform=ax.transAxes, ha="center", va="center")
                ax.set_yticks([])
            ax.set(title=panel)
        axes[0].set_ylabel("norm of the loss gradient")
    return out[0]


def sharpness_figure(
    rhos: Mapping[Radius, Sequence[float]],
    rises: Mapping[Radius, Mapping[str, Sequence[float]]],
    density: Mapping[str, tuple[SpectralDensity, int]],
    png: Path | None,
    methods: Methods = NOT_KNOWN,
) -> str:
    """Draw a panel for each kind of radius, and the spectrum of the Hessian; infinite rises are gaps.

    Args:
        rhos: The radii of each kind.
        rises: The rise of the loss of each model at these radii.
        density: The spectrum of the Hessian of each model, and the number of its eigenvalues.
        png: A file for the figure as PNG beside the SVG; None writes none.
        methods: How each model was trained, for its colour; a model without an entry is drawn as plain training is.

    Returns:
        The figure as SVG.
    """
    with drawing(1, len(rises) + 1, 3.3 * (len(rises) + 1), 3.0, png=png) as (axes, out):
        for ax, (radius, by_model) in zip(axes, rises.items(), strict=False):
            for name, rise in by_model.items():
                finite = [r if math.isfinite(r) else math.nan for r in rise]
                ax.plot(
                    [0, *rhos[radius]],
                    [0, *finite],
                    marker="o",
                    markersize=3,
                    label=name,
                    **method_style(methods.get(name)),
                )
            ax.set(title=f"{radius} radius", xlabel=RHO_OF[radius])
        draw_densities(axes[-1], density, methods)
        if rises:
            axes[0].set_ylabel("rise of the training loss")
        axes[0].legend(fontsize=8)
    return out[0]


def draw_densities(ax: Axes, density: Mapping[str, tuple[SpectralDensity, int]], methods: Methods = NOT_KNOWN) -> None:
    """Draw the spectra of Hessians; a curve is left out where it stands for far less than one eigenvalue.

    Args:
        ax: The axes.
        density: The spectrum of the Hessian of each model, and the number of its eigenvalues.
        methods: How each model was trained, for its colour; a model without an entry is drawn as plain training is.
    """
    low = min(float(d.nodes.min()) for d, _ in density.values())
    high = max(float(d.nodes.max()) for d, _ in density.values())
    width = max(high - low, 1e-6) / 80
    grid = np.linspace(low - 4 * width, high + 4 * width, 600)
    for name, (spectrum, size) in density.items():
        curve = spectrum.at(grid, width)
        # The peak of a single eigenvalue is 0.4 / (size * width).
        visible = np.where(curve < 0.05 / (size * width), np.nan, curve)
        ax.plot(grid, visible, linewidth=1.3, label=name, **method_style(methods.get(name)))
    use_log_scale(ax, "y")
    ax.set(title="spectrum of the Hessian", xlabel="eigenvalue", ylabel="density (share per unit)")
