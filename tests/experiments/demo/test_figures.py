import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from wtawp.experiments import Demo
from wtawp.experiments.demo import figures
from wtawp.experiments.demo.runner import DISTANCES, PAIR, TOY_VARIANTS
from wtawp.experiments.report.drawing import COLOURS, method_style

Plotted = list[list[Any]]
FIGURES: dict[str, Callable[[Demo], str]] = {
    "toy_panels": lambda demo: figures.toy_panels(demo.toys),
    "toy_curves": lambda demo: figures.toy_curves(demo.toys),
    "learning_curves": figures.learning_curves,
    "landscape": figures.landscape,
}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_svg_that_repeats_byte_for_byte(small_demo: Demo, name: str) -> None:
    svg = FIGURES[name](small_demo)
    assert svg.startswith("<svg")
    assert svg == FIGURES[name](small_demo)
    assert "http" not in svg.replace("http://www.w3.org", "")


def test_toy_panels_show_scores_at_the_nodes(small_demo: Demo, plotted: Plotted) -> None:
    figures.toy_panels(small_demo.toys)
    for ax, toy, name in zip(plotted[0], small_demo.toys, TOY_VARIANTS, strict=True):
        edges, nodes = ax.collections
        assert np.asarray(nodes.get_offsets()) == pytest.approx(toy.data.pos.numpy())
        assert np.asarray(nodes.get_array()) == pytest.approx(toy.scores.numpy())
        assert len(edges.get_segments()) == toy.data.edge_index.shape[1]
        assert ax.get_title() == f"{name}: accuracy {toy.fit.accuracy['test']:.2f}"


def test_toy_curves_are_the_training_losses_in_the_colours_of_their_methods(small_demo: Demo, plotted: Plotted) -> None:
    figures.toy_curves(small_demo.toys)
    ((ax,),) = plotted
    *curves, reference = ax.lines
    for line, toy in zip(curves, small_demo.toys, strict=True):
        assert list(line.get_ydata()) == toy.fit.history["train_loss"]
        assert (line.get_label(), line.get_color()) == (toy.name, method_style(TOY_VARIANTS[toy.name])["color"])
    assert len({line.get_color() for line in curves}) == len(TOY_VARIANTS)
    assert list(reference.get_ydata()) == [math.log(2)] * 2


def test_learning_curves_are_splits_and_their_mean(small_demo: Demo, plotted: Plotted) -> None:
    figures.learning_curves(small_demo)
    (axes,) = plotted
    for ax, column in zip(axes, ("train_loss", "val_loss", "val_accuracy"), strict=True):
        for i, name in enumerate(PAIR):
            curves = [t.fit.history[column] for t in small_demo.of(name)]
            *thin, thick = ax.lines[3 * i : 3 * i + 3]
            assert [list(line.get_ydata()) for line in thin] == curves
            assert thick.get_ydata() == pytest.approx(np.mean(curves, axis=0))
            assert (thick.get_label(), thick.get_color()) == (name, COLOURS[i])


def test_the_landscape_is_the_mean_with_quartiles(small_demo: Demo, plotted: Plotted) -> None:
    figures.landscape(small_demo)
    ((ax,),) = plotted
    for line, band, name in zip(ax.lines, ax.collections, PAIR, strict=True):
        lines = np.concatenate([t.landscape.numpy() for t in small_demo.of(name)])
        assert tuple(line.get_xdata()) == DISTANCES
        assert line.get_ydata() == pytest.approx(lines.mean(0))
        assert abs(line.get_ydata()[len(DISTANCES) // 2]) < 1e-5
        ends = [y for x, y in band.get_paths()[0].vertices if x == DISTANCES[-1]]
        assert (min(ends), max(ends)) == pytest.approx(tuple(np.quantile(lines[:, -1], [0.25, 0.75])))
