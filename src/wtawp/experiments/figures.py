"""Figures as SVG text, drawn from results alone. The same results give the same bytes."""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from wtawp.experiments.demo import DISTANCES, PAIR, Demo, ToyPanel

COLOURS = ("#3b6fb6", "#c8453b", "#e0a030", "#7a5aa6", "#2f8f5b")
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: small, selectable, set in the page's own font
    "svg.hashsalt": "wtawp",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "legend.frameon": False,
}


@contextmanager
def _drawing(rows: int, columns: int, width: float, height: float) -> Iterator[tuple[list[Axes], list[str]]]:
    """Axes to draw on; the SVG is appended to the list when the block ends."""
    out: list[str] = []
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield list(figure.subplots(rows, columns, squeeze=False).flat), out
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
        out.append(text.getvalue()[text.getvalue().index("<svg") :])


def toy_panels(panels: Sequence[ToyPanel]) -> str:
    """Figure 2 of the paper: nodes filled by prediction score, outlined by label, with the graph behind them."""
    with _drawing(1, len(panels), 2.3 * len(panels), 2.6) as (axes, out):
        for ax, panel in zip(axes, panels, strict=True):
            pos, edges, y = panel.data.pos.numpy(), panel.data.edge_index.T.numpy(), panel.data.y.numpy()
            ax.add_collection(LineCollection(pos[edges], colors="#b8b8b8", linewidths=0.4, zorder=0))
            outline = ["#08306b" if label else "#7f0000" for label in y]
            look: dict[str, Any] = {"cmap": "RdBu", "vmin": -1, "vmax": 1, "s": 22, "linewidths": 0.9}
            ax.scatter(pos[:, 0], pos[:, 1], c=panel.scores.numpy(), edgecolors=outline, **look)
            ax.set_title(f"{panel.name}: accuracy {panel.fit.accuracy['test']:.2f}")
            ax.set(xticks=[], yticks=[], aspect="equal")
    return out[0]


def toy_curves(panels: Sequence[ToyPanel]) -> str:
    """Figure 3 of the paper (fig:awpknnloss): the natural training loss of each variant."""
    with _drawing(1, 1, 6.0, 2.8) as ((ax,), out):
        for panel, colour in zip(panels, COLOURS, strict=True):
            ax.plot(panel.fit.history["train_loss"], color=colour, linewidth=1.3, label=panel.name)
        ax.axhline(np.log(2), color="#888888", linewidth=0.8, linestyle=":")
        ax.set(xlabel="epoch", ylabel="training loss", ylim=(0, 1.2))
        ax.text(0, np.log(2) + 0.02, "ln 2: nothing learned", color="#666666", fontsize=8)
        ax.legend(ncol=5, loc="upper center")
    return out[0]


def learning_curves(demo: Demo) -> str:
    """Training loss, validation loss and accuracy; a thin line a split, a thick one for their mean."""
    titles = {"train_loss": "training loss", "val_loss": "validation loss", "val_accuracy": "validation accuracy"}
    with _drawing(1, 3, 10.5, 2.9) as (axes, out):
        for ax, (key, title) in zip(axes, titles.items(), strict=True):
            for name, colour in zip(PAIR, COLOURS, strict=False):
                curves = np.array([t.fit.history[key] for t in demo.of(name)])
                ax.plot(curves.T, color=colour, linewidth=0.5, alpha=0.35)
                ax.plot(curves.mean(0), color=colour, linewidth=1.5, label=name)
            ax.set(title=title, xlabel="epoch")
        axes[0].set_yscale("log")
        axes[0].legend()
    return out[0]


def landscape(demo: Demo) -> str:
    """The rise of the training loss along random directions, mean and quartiles over directions and splits."""
    curves = {name: np.concatenate([t.landscape.numpy() for t in demo.of(name)]) for name in PAIR}
    return _bands(DISTANCES, curves, "distance, in lengths of each layer's weights", "rise of the training loss")


def _bands(x: Sequence[float], curves: Mapping[str, np.ndarray], xlabel: str, ylabel: str) -> str:
    with _drawing(1, 1, 6.0, 3.0) as ((ax,), out):
        for (name, rows), colour in zip(curves.items(), COLOURS, strict=False):
            low, high = np.quantile(rows, [0.25, 0.75], axis=0)
            ax.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
            ax.plot(x, rows.mean(0), color=colour, linewidth=1.5, label=name)
        ax.set(xlabel=xlabel, ylabel=ylabel)
        ax.legend()
    return out[0]
