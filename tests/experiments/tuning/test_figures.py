from typing import Any

import numpy as np

from wtawp.experiments.tuning.dimensions import Range
from wtawp.experiments.tuning.figures import CELLS, cell_means, response_map
from wtawp.experiments.tuning.space import Space
from wtawp.experiments.tuning.study import Trial

SPACE = Space("WT-AWP", {"rho": Range(0.1, 10.0, is_log=True), "lam": Range(0.0, 1.0)}, {}, None)
TRIALS = [
    Trial({"rho": 0.2, "lam": 0.1}, 0.70, None, 1.0),
    Trial({"rho": 0.2, "lam": 0.12}, 0.80, 0.85, 1.0),
    Trial({"rho": 5.0, "lam": 0.9}, 0.90, 0.80, 1.0),
]


def test_the_map_shows_the_mean_of_each_cell_and_marks_the_best(plotted: list[list[Any]]) -> None:
    svg = response_map(TRIALS, SPACE)
    assert svg.startswith("<svg")
    assert response_map(TRIALS, SPACE) == svg
    ax = plotted[0][0]
    means = ax.collections[0].get_array()
    assert sorted(float(v) for v in np.asarray(means.compressed())) == [75.0, 90.0]
    assert means.size == CELLS**2
    complete, pruned, best = (c.get_offsets().tolist() for c in ax.collections[1:4])
    assert complete == [[0.2, 0.12], [5.0, 0.9]]
    assert pruned == [[0.2, 0.1]]
    assert best == [[0.2, 0.12]]


def test_means_of_cells_agree_with_a_loop() -> None:
    rng = np.random.default_rng(0)
    x, y, values = rng.uniform(0, 3, 40), rng.uniform(0, 2, 40), rng.normal(size=40)
    edges = np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 1.0, 2.0])
    means = cell_means(x, y, values, edges)
    for i in range(3):
        for j in range(2):
            inside = [v for a, b, v in zip(x, y, values, strict=True) if i <= a < i + 1 and j <= b < j + 1]
            np.testing.assert_allclose(means[i, j], np.mean(inside) if inside else np.nan)


def test_nothing_is_drawn_where_lam_or_rho_was_fixed() -> None:
    assert response_map(TRIALS, Space("WT-AWP", {"lam": Range(0.0, 1.0)}, {"rho": 1.0}, None)) == ""
    assert response_map([], SPACE) == ""
