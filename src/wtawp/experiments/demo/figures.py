"""The figures of the demonstration as SVG text, drawn from its results alone."""

from collections.abc import Sequence

import numpy as np

from wtawp.experiments.demo.runner import DISTANCES, PAIR, Demo, ToyPanel
from wtawp.experiments.report.drawing import drawing, method_style, use_log_scale
from wtawp.experiments.report.measures.landscape import distance_label
from wtawp.experiments.report.toy_figures import draw_decision


def toy_panels(panels: Sequence[ToyPanel]) -> str:
    """Draw Figure 2 of the paper: nodes filled by prediction score, outlined by label, with the graph behind them.

    Args:
        panels: The models of the toy problem.

    Returns:
        The figure as SVG text.
    """
    with drawing(1, len(panels), 2.3 * len(panels), 2.6) as (axes, out):
        for ax, panel in zip(axes, panels, strict=True):
            pos, edges, y = panel.data.pos.numpy(), panel.data.edge_index.T.numpy(), panel.data.y.numpy()
            draw_decision(ax, pos, edges, y, panel.scores.numpy())
            ax.set_title(f"{panel.name}: accuracy {panel.fit.accuracy['test']:.2f}")
            ax.set(xticks=[], yticks=[], aspect="equal")
    return out[0]


def toy_curves(panels: Sequence[ToyPanel]) -> str:
    """Draw Figure 3 of the paper (fig:awpknnloss): the natural training loss of each variant.

    Args:
        panels: The models of the toy problem.

    Returns:
        The figure as SVG text.
    """
    with drawing(1, 1, 6.0, 2.8) as ((ax,), out):
        for panel in panels:
            ax.plot(panel.fit.history["train_loss"], linewidth=1.3, label=panel.name, **method_style(panel.awp))
        ax.axhline(np.log(2), color="#888888", linewidth=0.8, linestyle=":")
        ax.set(xlabel="epoch", ylabel="training loss", ylim=(0, 1.2))
        ax.text(0, np.log(2) + 0.02, "ln 2: nothing learned", color="#666666", fontsize=8)
        ax.legend(ncol=5, loc="upper center")
    return out[0]


def learning_curves(demo: Demo) -> str:
    """Draw training loss, validation loss and accuracy: a thin line for each split, a thick one for their mean.

    Args:
        demo: The trained models.

    Returns:
        The figure as SVG text.
    """
    titles = {"train_loss": "training loss", "val_loss": "validation loss", "val_accuracy": "validation accuracy"}
    with drawing(1, 3, 10.5, 2.9) as (axes, out):
        for ax, (key, title) in zip(axes, titles.items(), strict=True):
            for name, awp in PAIR.items():
                colour = method_style(awp)["color"]
                curves = np.array([t.fit.history[key] for t in demo.of(name)])
                ax.plot(curves.T, color=colour, linewidth=0.5, alpha=0.35)
                ax.plot(curves.mean(0), color=colour, linewidth=1.5, label=name)
            ax.set(title=title, xlabel="epoch")
        use_log_scale(axes[0], "y")
        axes[0].legend()
    return out[0]


def landscape(demo: Demo) -> str:
    """Draw the rise of the training loss along random directions: mean and quartiles over directions and splits.

    Args:
        demo: The trained models.

    Returns:
        The figure as SVG text.
    """
    with drawing(1, 1, 6.0, 3.0) as ((ax,), out):
        for name, awp in PAIR.items():
            colour = method_style(awp)["color"]
            lines = np.concatenate([t.landscape.numpy() for t in demo.of(name)])
            low, high = np.quantile(lines, [0.25, 0.75], axis=0)
            ax.fill_between(DISTANCES, low, high, color=colour, alpha=0.18, linewidth=0)
            ax.plot(DISTANCES, lines.mean(0), color=colour, linewidth=1.5, label=name)
        ax.set(xlabel=distance_label("layer"), ylabel="rise of the training loss")
        ax.legend()
    return out[0]
