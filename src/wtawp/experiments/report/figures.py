"""The figures of the report, drawn from plans and records alone, as SVG text; "" where there is nothing to draw yet."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.ticker import FuncFormatter

from wtawp.experiments.report.bound_figures import bound_curves
from wtawp.experiments.report.certificate_figures import certified_accuracy
from wtawp.experiments.report.drawing import COLOURS, GREY, drawing, looks, use_log_scale
from wtawp.experiments.report.geometry_figures import flatness_ratios, landscape_lines, smoothness_arrows
from wtawp.experiments.report.training_curves import saturation_curves, sharpness_curves
from wtawp.experiments.results.summary import CellReport, PlanReport, split_means
from wtawp.experiments.spec import Plan

ONE_RUN = "one run"  # the column whose cells are looked at, not averaged


def decisions(report: PlanReport) -> str:
    """Nodes at their positions, filled by prediction score and outlined by label, with the graph behind them."""
    cells = [c for c in report.column(ONE_RUN) if c.records and c.records[0].scores is not None]
    if not cells:
        return ""
    columns = min(len(cells), 5)
    rows = math.ceil(len(cells) / columns)
    width, height = np.ptp(_points(cells[0])[0], axis=0)
    with drawing(rows, columns, 2.3 * columns, (0.75 + 2.1 * height / width) * rows) as (axes, out):
        for ax, cell in zip(axes, cells, strict=False):
            _decision(ax, cell)
        for ax in axes[len(cells) :]:
            ax.set_axis_off()
    return out[0]


def _points(cell: CellReport) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions [n, 2], edges [e, 2] and labels [n], drawn again: they follow from name and split."""
    from wtawp.graphs import load  # here, because it takes seconds to import and most reports need no points

    data = load(cell.cell.setting.dataset, seed=cell.records[0].split)
    return data.pos.numpy(), data.edge_index.T.numpy(), data.y.numpy()


def _decision(ax: Axes, cell: CellReport) -> None:
    record, setting = cell.records[0], cell.cell.setting
    pos, edges, y = _points(cell)
    if setting.model != "MLP":  # which does not see the edges
        ax.add_collection(LineCollection(pos[edges[edges[:, 0] < edges[:, 1]]], colors="#b8b8b8", linewidths=0.4,
                                         zorder=0))  # fmt: skip
    outline = ["#08306b" if label else "#7f0000" for label in y]
    look: dict[str, Any] = {"cmap": "RdBu", "vmin": -1, "vmax": 1, "s": 22, "linewidths": 0.9}
    ax.scatter(pos[:, 0], pos[:, 1], c=record.scores, edgecolors=outline, **look)
    ax.set_title(f"{cell.cell.row}\ntest accuracy {cell.mean:.1f} %")
    ax.set(xticks=[], yticks=[], aspect="equal")


def toy_losses(report: PlanReport, top: float = 2.0) -> str:
    """The natural training loss of the runs that are looked at; a loss of ln 2 is that of knowing nothing."""
    curves = {c.cell.row: c.histories("train_loss")[0] for c in report.column(ONE_RUN) if c.histories("train_loss")}
    if not curves:
        return ""
    with drawing(1, 1, 7.5, 3.2) as ((ax,), out):
        look = looks(curves)
        for row, curve in curves.items():
            ax.plot(curve, linewidth=1.3, label=row, **look[row])
        ax.axhline(math.log(2), color=GREY, linewidth=0.8, linestyle=":", label="ln 2: nothing learned")
        highest = max(max(curve) for curve in curves.values())
        cut = not highest <= top
        ax.set(xlabel="epoch", ylabel=f"training loss{f' (cut at {top:g})' if cut else ''}", xmargin=0)
        ax.set_ylim(0, top if cut else 1.05 * max(highest, math.log(2)))
        _legend_beside(ax)
    return out[0]


def accuracy_over_rho(report: PlanReport, trains: float = 80.0) -> str:
    """Test accuracy over rho, a line for each row; once as a whole, and once where the models train."""
    rows: dict[str, list[CellReport]] = {}
    for cell in report.cells:
        if cell.mean is not None and cell.cell.setting.awp is not None:
            rows.setdefault(cell.cell.row, []).append(cell)
    if not rows:
        return ""
    with drawing(1, 2, 10.5, 3.8) as (axes, out):
        look = looks(rows)
        for row, cells in rows.items():
            _over_rho(axes[0], row, cells, look[row], band=True)
            _over_rho(axes[1], row, cells, look[row], band=False)  # at that scale bands would cover everything
        shown = [c.mean for cells in rows.values() for c in cells if c.mean is not None]
        shown += [c.cell.printed[0] for cells in rows.values() for c in cells if c.cell.printed is not None]
        high = [value for value in shown if value >= trains] or shown
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
        _legend_beside(axes[1])
    return out[0]


def _over_rho(ax: Axes, row: str, cells: list[CellReport], look: dict[str, Any], *, band: bool) -> None:
    cells = sorted(cells, key=_rho)
    rhos, means = [_rho(c) for c in cells], np.array([c.mean for c in cells])
    if band:
        spread = np.array([c.std or 0.0 for c in cells])
        ax.fill_between(rhos, means - spread, means + spread, color=look["color"], alpha=0.15, linewidth=0)
    ax.plot(rhos, means, linewidth=1.5, label=row, **look)
    told = [(_rho(c), c.cell.printed[0]) for c in cells if c.cell.printed is not None]
    if told:
        ax.plot(*zip(*told, strict=True), color=look["color"], linewidth=0.9, linestyle="--", marker="o", markersize=4)


def accuracy_over_budget(report: PlanReport) -> str:
    """Test accuracy over the attacker's budget, a line for each row."""
    rows: dict[str, list[CellReport]] = {}
    for cell in report.cells:
        if cell.mean is not None:
            rows.setdefault(cell.cell.row, []).append(cell)
    if not rows:
        return ""
    with drawing(1, 1, 6.5, 3.8) as (axes, out):
        for (row, cells), look in zip(rows.items(), looks(rows).values(), strict=True):
            cells.sort(key=_budget)
            budgets, means = [_budget(c) for c in cells], np.array([c.mean for c in cells])
            spread = np.array([c.std or 0.0 for c in cells])
            axes[0].fill_between(budgets, means - spread, means + spread, color=look["color"], alpha=0.15, linewidth=0)
            axes[0].plot(budgets, means, linewidth=1.5, marker="o", markersize=4, label=row, **look)
        are_shares = any(isinstance(budget, float) for c in rows.values() for budget in map(_budget, c))
        axes[0].set(xlabel="budget, % of the edges" if are_shares else "budget, edges", ylabel="test accuracy, %")
        if are_shares:
            axes[0].xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}"))
        _legend_beside(axes[0])
    return out[0]


def _budget(cell: CellReport) -> float | int:
    """Of the attack whose accuracy the cell shows, a share as a float; 0 where there is none."""
    setting, place = cell.cell.setting, cell.cell.measure
    attack = setting.poison if place is None else setting.measures[place]
    budget = 0 if attack is None else dict(attack.options)["budget"]
    assert isinstance(budget, int | float)
    return budget


def _rho(cell: CellReport) -> float:
    assert cell.cell.setting.awp is not None
    return cell.cell.setting.awp.rho


def gradient_norms(report: PlanReport) -> str:
    """The length of the gradient at the perturbed weights over the epochs, a panel for each column."""
    columns = [c for c in report.columns if any(cell.histories("perturbed_norm") for cell in report.column(c))]
    if not columns:
        return ""
    with drawing(1, len(columns), 3.5 * len(columns), 3.0) as (axes, out):
        for ax, column in zip(axes, columns, strict=True):
            _curves(ax, {c.cell.row: c.histories("perturbed_norm") for c in report.column(column)})
            use_log_scale(ax, "y")
            ax.set(title=column, xlabel="epoch")
        axes[0].set_ylabel("norm of the perturbed gradient")
        axes[0].legend()
    return out[0]


def losses_and_gap(report: PlanReport) -> str:
    """Training loss, and what the perturbation adds to it, over the epochs."""
    loss, gap = (partial(CellReport.histories, column=column) for column in ("train_loss", "gap"))
    return _panels(report, {"training loss": loss, "rise of the loss by the perturbation": gap}, ("y", ""))


def relative_gradient_norms(report: PlanReport) -> str:
    """The length of the gradient over that of the weights."""

    def ratio(cell: CellReport) -> list[list[float]]:
        both = zip(cell.histories("gradient_norm"), cell.histories("weight_norm"), strict=False)
        return [(np.asarray(gradient) / np.asarray(weight)).tolist() for gradient, weight in both]

    return _panels(report, {"gradient norm / weight norm": ratio}, ("y",))


Curves = Callable[[CellReport], list[list[float]]]


def _panels(report: PlanReport, quantities: dict[str, Curves], log: Sequence[str]) -> str:
    """A row of panels for each column of the plan, a panel for each quantity."""
    columns = [name for name in report.columns if any(q(c) for q in quantities.values() for c in report.column(name))]
    if not columns:
        return ""
    with drawing(len(columns), len(quantities), 2.0 + 4.2 * len(quantities), 3.0 * len(columns)) as (axes, out):
        places = ((column, title) for column in columns for title in quantities)
        for i, (ax, (column, title)) in enumerate(zip(axes, places, strict=True)):
            _curves(ax, {c.cell.row: quantities[title](c) for c in report.column(column)})
            if log[i % len(quantities)]:
                use_log_scale(ax, "y")
            ax.set(title=f"{title}, {column}", xlabel="epoch")
        _legend_beside(axes[len(quantities) - 1])
    return out[0]


def _curves(ax: Axes, rows: dict[str, list[list[float]]]) -> None:
    """A thin line a run, and a thick one for their median."""
    for (row, curves), look in zip(rows.items(), looks(rows).values(), strict=True):
        if curves:
            table = np.array(curves)
            ax.plot(table.T, linewidth=0.5, alpha=0.35, color=look["color"])
            ax.plot(np.median(table, axis=0), linewidth=1.6, label=row, **look)
    ax.margins(x=0)


def gains(report: PlanReport) -> str:
    """The paired difference of each split, with their mean and its 95 % interval."""
    places = {(c.cell.row, c.cell.column): c for c in report.cells}
    drawn = [pair for pair in report.pairs if pair.gain is not None]
    if not drawn:
        return ""
    with drawing(1, 1, 7.5, 0.9 + 0.42 * len(drawn)) as ((ax,), out):
        ax.axvline(0, color=GREY, linewidth=0.8)
        for i, pair in enumerate(drawn):
            before, after = split_means(places[pair.before, pair.column], places[pair.after, pair.column])
            differences = np.subtract(after, before)
            height = i + np.linspace(-0.22, 0.22, len(differences))  # in the order of the splits
            ax.scatter(differences, height, s=9, color=COLOURS[5], linewidths=0)
            gain = pair.gain
            assert gain is not None
            ax.plot([gain.low, gain.high], [i, i], color=COLOURS[0], linewidth=2.2, solid_capstyle="butt")
            ax.plot([gain.mean], [i], color=COLOURS[0], marker="D", markersize=5)
        ax.set_yticks(range(len(drawn)), [f"{p.after}, {p.column}" for p in drawn])
        ax.set(ylim=(len(drawn) - 0.5, -0.5), xlabel="gain in test accuracy, points")
    return out[0]


def _legend_beside(ax: Axes) -> None:
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))


DRAWN: dict[str, tuple[Callable[[PlanReport], str], str]] = {  # name in a plan -> function and caption
    "accuracy_over_budget": (
        accuracy_over_budget,
        "Test accuracy over the number of flipped edges, with bands of one standard deviation over runs.",
    ),
    "accuracy_over_rho": (
        accuracy_over_rho,
        "Test accuracy over the radius: ours as lines with bands of one standard deviation over runs, the paper's as "
        "dashed lines with dots. The right panel shows the means again, where the models train.",
    ),
    "bound_curves": (
        bound_curves,
        "The bound on the loss 1 - p(right class) on all nodes or graphs, over the radius; that loss itself (dashed), "
        "and that in training; means over splits. Above the dotted line, at 1, the bound says nothing.",
    ),
    "certified_accuracy": (
        certified_accuracy,
        "Certified accuracy: test nodes that are right, and certainly so within that many additions and deletions. "
        "Heat maps and lines are means over runs, bands one standard deviation.",
    ),
    "decisions": (
        decisions,
        "One run of each method: nodes filled by prediction score (blue for one class, red for the other, pale for "
        "undecided) and outlined by label; lines are the edges that the model sees.",
    ),
    "flatness_ratios": (
        flatness_ratios,
        "Each measure of flatness (light blue) and the final losses (black) with the method over the same without it: "
        "a dot for each split, a diamond for their geometric mean. Below 1 is flatter.",
    ),
    "gains": (
        gains,
        "What the method adds: a dot for each split (its initialisations averaged, the first split on top), a diamond "
        "for their mean, a bar for its 95 % interval.",
    ),
    "gradient_norms": (
        gradient_norms,
        "Norm of the gradient at the perturbed weights; a thin line for each run, a thick one for their median.",
    ),
    "landscape_lines": (
        landscape_lines,
        "Rise of the training loss along ten random directions, averaged, all methods aligned at distance 0: the mean "
        "over runs, with a band between the quartiles of the runs. The legend tells the mean loss where they start.",
    ),
    "losses_and_gap": (
        losses_and_gap,
        "Training loss, and the rise that the perturbation causes; a thin line for each run, a thick one for their "
        "median. Plain training has no perturbation, so its rise is 0.",
    ),
    "relative_gradient_norms": (
        relative_gradient_norms,
        "Gradient norm relative to that of the weights; a thin line for each run, a thick one for their median.",
    ),
    "saturation_curves": (
        saturation_curves,
        "What the perturbation does in training, medians over runs and over nine epochs: the mean distance between a "
        "node's largest and smallest logit, the mean probability of its likeliest class and the norm of the gradient, "
        "at the perturbed weights or as they are. Plain training has no perturbation.",
    ),
    "sharpness_curves": (
        sharpness_curves,
        "The largest rise of the training loss inside a ball around the weights, found by climbing, every tenth epoch "
        "and with one radius for all methods; a thin line for each run, a thick one for their median.",
    ),
    "smoothness_arrows": (
        smoothness_arrows,
        "Test accuracy over the mean norm of the loss gradient by the adjacency matrix A or the features X at noisy "
        "inputs: an arrow for each initialisation, from the model without the method to the model with it. Up and to "
        "the left is more accurate and smoother.",
    ),
    "toy_losses": (toy_losses, "Natural training loss of one run of each method."),
}


def figures_of(report: PlanReport) -> list[tuple[str, str, str]]:
    """Name, SVG and caption of everything the plan shows; where nothing was measured yet, the SVG is ""."""
    return [(name, DRAWN[name][0](report), caption) for name, caption in captions_of(report.plan)]


def captions_of(plan: Plan) -> list[tuple[str, str]]:
    """Name and caption of everything the plan shows, without drawing it."""
    names = [*plan.figures, *(["gains"] if plan.pairs else [])]
    return [(name, DRAWN[name][1]) for name in names]
