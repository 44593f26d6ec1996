import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from wtawp.experiments.plans.catalogue import plan
from wtawp.experiments.plans.scale import at_scale
from wtawp.experiments.report.drawing import method_style
from wtawp.experiments.report.toy_figures import decisions, toy_losses
from wtawp.experiments.results.summary import summarise
from wtawp.experiments.spec import Record
from wtawp.graphs import load

MakeRecords = Callable[..., list[Record]]
Plotted = list[list[Any]]


def test_decisions_show_the_scores_at_the_nodes_and_the_edges(make_records: MakeRecords, plotted: Plotted) -> None:
    made = at_scale(plan("fig:2"), "smoke")
    records = make_records(made, lambda *_: 85.0)
    decisions(summarise(made, records))
    (axes,) = plotted
    shown = [r for r in records if r.scores is not None]
    data = load("toy-linear", seed=0)
    assert len(shown) == len(axes) == 5
    for ax, record in zip(axes, shown, strict=True):
        edges, nodes = ax.collections
        assert np.asarray(nodes.get_offsets()) == pytest.approx(data.pos.numpy())
        assert np.asarray(nodes.get_array()) == pytest.approx(np.array(record.scores))
        assert nodes.get_clim() == (-1, 1)
        assert len({tuple(colour) for colour in nodes.get_edgecolors()[data.y.numpy() == 1]}) == 1
        assert len(edges.get_segments()) == data.edge_index.shape[1] // 2, "each edge once"
        assert "test accuracy 85.0 %" in ax.get_title()


def test_an_mlp_is_shown_without_the_edges_it_does_not_see(make_records: MakeRecords, plotted: Plotted) -> None:
    made = at_scale(plan("fig:aa"), "smoke")
    decisions(summarise(made, make_records(made)))
    assert [len(ax.collections) for ax in plotted[0]] == [1] * 5


def test_losses_are_those_of_the_single_runs(make_records: MakeRecords, plotted: Plotted) -> None:
    made = at_scale(plan("fig:awpknnloss"), "smoke")
    records = make_records(made)
    toy_losses(summarise(made, records))
    ((ax,),) = plotted
    cells = [c for c in made.cells if c.column == "one run"]
    by_key = {r.key: r for r in records}
    *curves, reference = ax.lines
    assert [line.get_label() for line in curves] == [c.row for c in cells]
    for line, cell in zip(curves, cells, strict=True):
        record = by_key[next(cell.runs()).key]
        assert record.history is not None
        assert line.get_ydata() == pytest.approx(record.history["train_loss"])
        assert line.get_color() == method_style(cell.setting.awp)["color"]
    assert reference.get_ydata() == [math.log(2)] * 2
    assert ax.get_ylim()[0] == 0
    assert ax.get_ylim()[1] > max(max(line.get_ydata()) for line in curves)
    assert ax.get_ylabel() == "training loss"


def test_losses_that_run_away_are_cut(make_records: MakeRecords, plotted: Plotted) -> None:
    made = at_scale(plan("fig:awpknnloss"), "smoke")
    high = [replace(r, history={"train_loss": [50.0, math.nan, 0.1]}) if r.history else r for r in make_records(made)]
    toy_losses(summarise(made, high))
    ((ax,),) = plotted
    assert ax.get_ylim() == (0, 2.0)
    assert ax.get_ylabel() == "training loss (cut at 2)"


def test_without_records_nothing_is_drawn() -> None:
    empty = summarise(plan("fig:aaa"), [])
    assert decisions(empty) == toy_losses(empty) == ""
