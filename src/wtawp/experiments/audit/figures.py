"""The figures of an audit: small panels that a phone shows one below the other."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean, geometric_mean, stdev
from typing import TYPE_CHECKING

import numpy as np

from wtawp.experiments.audit.comparisons import certified_at, geometry_values
from wtawp.experiments.audit.findings import AuditSection
from wtawp.experiments.audit.sections import ACCURACY, CERTIFICATE, EVASION, FLAT, POISONING
from wtawp.experiments.report.drawing import LineStyle, drawing, row_styles
from wtawp.experiments.report.measures.landscape import distance_label, draw_lines
from wtawp.experiments.results.geometry import results_of
from wtawp.experiments.results.summary import CellReport, PlanReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 4.4, 3.2  # inches
RADII = range(9)  # of certificates


@dataclass(frozen=True)
class Panel:
    """A drawing of one thing.

    Attributes:
        svg: The drawing.
        caption: What it shows.
        alt: The same for those who cannot see it, with its numbers.
    """

    svg: str
    caption: str
    alt: str


def panels_of(section: AuditSection) -> Iterator[Panel]:
    """Draw the figures of a section.

    Args:
        section: The section with its measurements.

    Yields:
        The panels; none where nothing was measured.
    """
    report, kind = section.report, section.section.kind
    if not report.records:
        return
    if kind in (ACCURACY, POISONING):
        yield _dots(report)
    elif kind == EVASION:
        yield _curve(report, section.section.title)
    elif kind == CERTIFICATE:
        yield from _certified(report)
    elif kind == FLAT:
        yield from _landscape(report)
        yield _ratios(report)


def _styles(report: PlanReport) -> dict[str, LineStyle]:
    """Colour and dashes of each row."""
    return row_styles({c.cell.row: c.cell.setting.awp for c in report.cells})


def _markers(report: PlanReport) -> dict[str, str]:
    """The marker of each row: rows of one method share its colour."""
    return dict(zip(dict.fromkeys(c.cell.row for c in report.cells), "osD^v", strict=False))


def _draw_legend(ax: "Axes") -> None:
    """Explain the lines below the axes, where they cover nothing."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)


def _dots(report: PlanReport) -> Panel:
    """Accuracy of every split as a dot, joined over the rows."""
    columns, styles = report.columns, _styles(report)
    with drawing(1, len(columns), WIDTH * (1 if len(columns) == 1 else 1.35), HEIGHT) as (axes, out):
        for ax, column in zip(axes, columns, strict=True):
            cells = [c for c in report.column(column) if c.records]
            for run in sorted({run for c in cells for run in c.accuracies}):
                values = [c.accuracies.get(run, np.nan) for c in cells]
                ax.plot(range(len(cells)), values, color="#bbbbbb", linewidth=0.8, zorder=1)
            for i, c in enumerate(cells):
                values = list(c.accuracies.values())
                ax.plot(
                    [i] * len(values),
                    values,
                    _markers(report)[c.cell.row],
                    color=styles[c.cell.row]["color"],
                    markersize=4,
                )
                ax.plot([i - 0.2, i + 0.2], [fmean(values)] * 2, color=styles[c.cell.row]["color"], linewidth=2.2)
            ax.set_xticks(range(len(cells)), [_short(c.cell.row) for c in cells], fontsize=8)
            ax.set(title=column, xlim=(-0.5, len(cells) - 0.5))
        limits = [ax.get_ylim() for ax in axes]
        for ax in axes:
            ax.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        axes[0].set_ylabel("test accuracy, %")
    numbers = "; ".join(f"{c.cell.row}, {c.cell.column}: {c.mean:.1f} %" for c in report.cells if c.mean is not None)
    caption = "A dot for each split, a line that joins the rows of a split, and a bar for the mean of a row."
    return Panel(out[0], caption, f"Test accuracy of each split. Means: {numbers}.")


def _short(row: str) -> str:
    """The label of a row for an axis: what follows the name of the model, on lines of their own."""
    name, plus, method = row.partition("+")
    return method.replace("WT-AWP auto", "WT-AWP\nauto") if plus else name[:14]


def _curve(report: PlanReport, title: str) -> Panel:
    """Accuracy over budget, with a band of one standard deviation."""
    from matplotlib.ticker import FuncFormatter

    styles = _styles(report)
    rows: dict[str, list[tuple[float, list[float]]]] = {}
    for c in report.cells:
        if c.records:
            rows.setdefault(c.cell.row, []).append((_budget(c), list(c.accuracies.values())))
    with drawing(1, 1, WIDTH, HEIGHT) as ((ax,), out):
        for row, points in rows.items():
            points.sort(key=lambda point: point[0])
            budgets, means = [100 * b for b, _ in points], np.array([fmean(values) for _, values in points])
            spread = np.array([stdev(values) if len(values) > 1 else 0.0 for _, values in points])
            ax.fill_between(budgets, means - spread, means + spread, color=styles[row]["color"], alpha=0.15, lw=0)
            ax.plot(budgets, means, marker=_markers(report)[row], markersize=4, linewidth=1.5, label=row, **styles[row])
        ax.set(xlabel="changed edges, %", ylabel="test accuracy, %")
        ax.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:g}"))
        _draw_legend(ax)
    numbers = "; ".join(
        f"{row}: " + ", ".join(f"{fmean(values):.1f} % at {100 * budget:g} %" for budget, values in points)
        for row, points in rows.items()
    )
    caption = "Mean test accuracy over the share of changed edges, with bands of one standard deviation over splits."
    return Panel(out[0], caption, f"{title}. Test accuracy over the share of changed edges. {numbers}.")


def _budget(cell: CellReport) -> float:
    """The share of the edges that the attack of a cell may change."""
    attack = None if cell.cell.measure is None else cell.cell.setting.measures[cell.cell.measure]
    return 0.0 if attack is None else float(dict(attack.options)["budget"])  # type: ignore[arg-type]


def _certified(report: PlanReport) -> Iterator[Panel]:
    """Certified accuracy over the numbers of deletions, and of additions."""
    from matplotlib.ticker import MaxNLocator

    cells = [c for c in report.column("smoothed") if c.records]
    styles = _styles(report)
    for what, (adds, deletes) in {"deleted": (0, 1), "added": (1, 0)}.items():
        curves = {c.cell.row: [list(certified_at(c, adds * r, deletes * r).values()) for r in RADII] for c in cells}
        with drawing(1, 1, WIDTH, HEIGHT) as ((ax,), out):
            for row, runs in curves.items():
                mean = np.array([fmean(values) for values in runs])
                spread = np.array([stdev(values) if len(values) > 1 else 0.0 for values in runs])
                ax.fill_between(RADII, mean - spread, mean + spread, color=styles[row]["color"], alpha=0.15, lw=0)
                ax.plot(RADII, mean, marker=_markers(report)[row], markersize=3, label=row, **styles[row])
            ax.set(xlabel=f"entries {what}, anywhere", ylabel="certified accuracy, %", ylim=(0, 100))
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
            _draw_legend(ax)
        numbers = "; ".join(
            f"{row}: " + ", ".join(f"{fmean(v):.0f} % at {r}" for r, v in enumerate(runs))
            for row, runs in curves.items()
        )
        caption = f"Test nodes that are right, and certainly so, if this many entries are {what}."
        yield Panel(out[0], caption, f"Certified accuracy over the number of {what} entries. {numbers}.")


def _landscape(report: PlanReport) -> Iterator[Panel]:
    """The rise of the training loss along random lines."""
    cells, styles = [c for c in report.cells if c.records], _styles(report)
    indices = [
        i for i, m in enumerate(cells[0].cell.setting.measures) if "directions" in dict(m.options) or _is_line(m)
    ]
    for index in indices:
        with drawing(1, 1, WIDTH, HEIGHT) as ((ax,), out):
            for c in cells:
                results = list(results_of(c, index).values())
                lines = np.array([np.subtract(r["mean"], r["loss"]) for r in results])
                draw_lines(ax, results[0]["distances"], lines, c.cell.row, [r["loss"] for r in results],
                           style=styles[c.cell.row], gaps=sum(r["gaps"] for r in results))  # fmt: skip
            scale = str(dict(cells[0].cell.setting.measures[index].options).get("scale", "layer"))
            ax.set(xlabel=distance_label(scale), ylabel="rise of the training loss")
            _draw_legend(ax)
        rises = _means(report)
        numbers = "; ".join(
            f"{row}: {value:.3g}" for row, value in rises.get("rise along random lines, layer", {}).items()
        )
        caption = "Rise of the training loss along random directions through the weights; a flatter curve is flatter."
        yield Panel(out[0], caption, f"Loss landscape. Mean rise at the ends of the lines: {numbers}.")


def _is_line(measure: object) -> bool:
    """Whether a measure is a landscape, by its options."""
    return "reach" in dict(getattr(measure, "options", ()))


def _means(report: PlanReport) -> dict[str, dict[str, float]]:
    """The mean of every quantity, by row."""
    means: dict[str, dict[str, float]] = {}
    for c in report.cells:
        for name, values in geometry_values(c).items():
            if values:
                means.setdefault(name, {})[c.cell.row] = fmean(values.values())
    return means


def _geometric_means(report: PlanReport) -> dict[str, dict[str, float]]:
    """The geometric mean of every quantity, by row; rows with a value that is not positive are left out."""
    means: dict[str, dict[str, float]] = {}
    for c in report.cells:
        for name, values in geometry_values(c).items():
            if values and min(values.values()) > 0:
                means.setdefault(name, {})[c.cell.row] = geometric_mean(values.values())
    return means


def _ratios(report: PlanReport) -> Panel:
    """Every quantity of every row, relative to the first row."""
    means, styles = _geometric_means(report), _styles(report)
    first = report.cells[0].cell.row
    shown: Mapping[str, dict[str, float]] = {
        name: {row: value / values[first] for row, value in values.items()}
        for name, values in means.items()
        if values.get(first, 0.0) > 0
    }
    with drawing(1, 1, WIDTH, 1.5 + 0.36 * max(len(shown), 2)) as ((ax,), out):
        for i, ratios in enumerate(shown.values()):
            for row, ratio in ratios.items():
                ax.plot([ratio], [i], _markers(report)[row], color=styles[row]["color"], markersize=6, alpha=0.8,
                        label=row if i == 0 else None)  # fmt: skip
        ax.axvline(1.0, color="#767676", linewidth=0.8)
        ax.set_yticks(range(len(shown)), list(shown), fontsize=8)
        ax.set(xlabel=f"relative to {first}", ylim=(len(shown) - 0.5, -0.5), xlim=(0, None))
        _draw_legend(ax)
    numbers = "; ".join(
        f"{name}: " + ", ".join(f"{row} {ratio:.2f}" for row, ratio in ratios.items()) for name, ratios in shown.items()
    )
    return Panel(
        out[0], "Geometric means relative to the first row; left of 1 is flatter, or smoother.", f"Ratios. {numbers}."
    )
