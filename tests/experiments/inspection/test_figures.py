from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from wtawp.analysis import SpectralDensity
from wtawp.experiments.inspection.figures import (
    between_figure,
    draw_densities,
    line_figure,
    plane_figure,
    sharpness_figure,
    smoothness_figure,
)

SIDE = [-1.0, 0.0, 1.0, 2.0]
BOWL = np.add.outer(np.square(SIDE), np.square(SIDE))
NONE = np.full((4, 4), np.nan)


def test_both_directions_of_a_plane_have_their_unit_in_map_and_surface() -> None:
    svg = plane_figure(SIDE, {"GCN": BOWL}, {"GCN": 0.5}, "distance, in lengths of each layer's weights", None)
    assert svg.count("first direction") == svg.count("second direction") == 2
    assert svg.count("in lengths of each layer's weights") == 4
    assert svg.count("rise of the training loss") == 2  # of the surface and of the colours


@pytest.mark.parametrize(
    ("losses", "texts"),
    [
        ({"GCN": BOWL, "other": NONE}, ["other, loss 0.5, 16 gaps", "no finite loss"]),
        ({"GCN": NONE}, ["GCN, loss 0.5, 16 gaps", "no finite loss"]),
        ({"GCN": np.where(BOWL > 3, np.inf, BOWL)}, ["GCN, loss 0.5, 7 gaps"]),
        ({"GCN": 1e18 * BOWL, "other": np.ones((4, 4))}, ["8e+18"]),  # a flat plane meets no level, without a warning
    ],
)
def test_planes_with_gaps_or_extreme_losses_are_drawn(losses: dict[str, np.ndarray], texts: list[str]) -> None:
    svg = plane_figure(SIDE, losses, dict.fromkeys(losses, 0.5), "distance between weights", None)
    assert all(words in svg for words in texts)
    assert "1e18" not in svg  # no factor beside an axis
    assert ("no finite loss" in svg) == any(np.isnan(v).all() for v in losses.values())


def test_lines_tell_the_loss_and_the_gaps() -> None:
    lines = {"GCN": np.array([[2.0, 1.0, np.inf, 3.0]])}
    svg = line_figure(SIDE, lines, {"GCN": 1.0}, "distance between weights", None)
    assert "GCN, loss 1.000, 1 gaps" in svg


def test_the_line_between_names_both_ends(tmp_path: Path) -> None:
    png = tmp_path / "line.png"
    svg = between_figure(SIDE, np.array([3.0, 1.0, np.nan, 4.0]), {"GCN": 1.0, "other.pt": 2.0}, png)
    assert "share of the way from GCN (0) to other.pt (1)" in svg
    assert "other.pt, loss 2.000" in svg
    assert png.stat().st_size > 1000


def test_each_ball_has_its_unit_and_the_spectrum_can_stand_alone() -> None:
    density = {"GCN": (SpectralDensity(np.array([[0.0, 1.0]]), np.array([[0.9, 0.1]])), 10)}
    rhos = {"layer": [0.1], "adaptive": [2.0], "global": [0.5]}
    svg = sharpness_figure(rhos, {kind: {"GCN": [np.inf]} for kind in rhos}, density, None)
    for words in ("relative to each layer", "in sizes of each weight", "distance between weights"):
        assert f"rho, {words}" in svg
    alone = sharpness_figure({}, {}, density, None)
    assert "spectrum of the Hessian" in alone
    assert "rho" not in alone


def test_a_density_far_below_one_eigenvalue_is_not_drawn() -> None:
    ax = Figure().subplots()
    nodes, weights, size = np.array([[0.0, 8.0]]), np.array([[0.999, 0.001]]), 1000
    draw_densities(ax, {"GCN": (SpectralDensity(nodes, weights), size)})
    (curve,) = ax.lines
    x, y = curve.get_xdata(), curve.get_ydata()
    width = 0.1  # an eightieth of the range
    bumps = np.exp(-0.5 * ((x[:, None] - nodes) / width) ** 2) / (width * np.sqrt(2 * np.pi))
    truth = bumps @ weights[0]
    shown = truth > 0.05 / (size * width)
    assert np.isnan(y[~shown]).all()
    np.testing.assert_allclose(y[shown], truth[shown])
    assert np.isnan(y[np.abs(x - 4) < 3]).all()  # nothing in between
    assert not np.isnan(y[np.abs(x - 8).argmin()])  # a single eigenvalue is seen


def test_what_was_not_measured_says_so() -> None:
    svg = smoothness_figure({"A, paper": {"GCN": [1.0, 3.0]}, "A, released": {"GCN": "cannot be"}}, None)
    assert svg.count("not measured") == 1
