from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from wtawp.experiments.plans.geometry import landscape_plan
from wtawp.experiments.report.drawing import drawing, method_style
from wtawp.experiments.report.measures.landscape import distance_label, draw_lines, landscape_lines
from wtawp.experiments.results.summary import summarise
from wtawp.experiments.spec import Record, Run

SHAPE = np.array([4.0, 1.0, 0.0, 1.0, 4.0])


def lines(run: Run) -> list[dict[str, object]]:
    """Bowls around a loss that differs from split to split, twice as high along the second kind of direction."""
    height, loss = (1.0 if run.setting.awp is None else 0.5) + 0.1 * run.split, 0.2 + 0.01 * run.split
    distances = [-2.0, -1.0, 0.0, 1.0, 2.0]
    return [{"scale": scale, "distances": distances, "mean": (factor * height * SHAPE + loss).tolist(),
             "loss": loss, "gaps": 0} for scale, factor in (("layer", 1), ("unit", 2))]  # fmt: skip


def test_lines_are_aligned_at_zero_with_their_mean_and_quartiles(
    make_record: Callable[..., Record], plotted: list[list[Any]]
) -> None:
    plan = landscape_plan()
    landscape_lines(summarise(plan, [
        make_record(key=run.key, setting=run.setting.content, split=run.split, init=run.init, measured=lines(run))
        for run in plan.runs()
    ]))  # fmt: skip
    (axes,) = plotted
    assert [ax.get_title() for ax in axes] == ["cora", "cora", "cora, last epoch", "cora, last epoch"]
    assert [ax.get_xlabel() for ax in axes[:2]] == [distance_label("layer"), distance_label("unit")]
    methods = {c.row: c.setting.awp for c in plan.cells}
    for ax, factor in zip(axes, (1, 2, 1, 2), strict=True):
        for line, band, (row, awp) in zip(ax.lines, ax.collections, methods.items(), strict=True):
            heights = [factor * ((1.0 if awp is None else 0.5) + 0.1 * split) for split in range(20)]
            assert list(line.get_xdata()) == [-2, -1, 0, 1, 2]
            assert line.get_ydata() == pytest.approx(np.mean(heights) * SHAPE)
            assert line.get_ydata()[2] == pytest.approx(0.0, abs=1e-12)
            assert line.get_label() == f"{row}, loss 0.295"
            assert line.get_color() == method_style(awp)["color"]
            ends = [y for x, y in band.get_paths()[0].vertices if x == 2.0]
            assert (min(ends), max(ends)) == pytest.approx(tuple(4 * np.quantile(heights, [0.25, 0.75])))


def test_what_is_not_finite_is_a_gap_and_counted() -> None:
    values = np.array([[1.0, 0.0, np.inf], [np.nan, 0.0, 2.0]])
    with drawing(1, 1, 3, 2) as ((ax,), _):
        draw_lines(ax, [-1.0, 0.0, 1.0], values, "GCN", [0.1], style=method_style(None))
        (line,) = ax.lines
        assert np.isnan(line.get_ydata()).tolist() == [True, False, True]
        assert line.get_label() == "GCN, loss 0.100, 2 gaps"


def test_an_unknown_scale_is_refused() -> None:
    with pytest.raises(ValueError, match="one of unit, layer, filter, got 'layers'"):
        distance_label("layers")


def test_without_records_nothing_is_drawn() -> None:
    assert landscape_lines(summarise(landscape_plan(), [])) == ""
