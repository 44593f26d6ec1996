from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import LogNorm

from wtawp.certificates import Noise, certificate_of
from wtawp.core import AwpConfig
from wtawp.experiments.plans.robustness import certificate_plan, certifying
from wtawp.experiments.report.contents import tables_of
from wtawp.experiments.report.drawing import COLOURS
from wtawp.experiments.report.export import export_data
from wtawp.experiments.report.markdown import render_markdown
from wtawp.experiments.report.measures.certificate import certified_accuracy, certified_means, certified_tables
from wtawp.experiments.results.summary import PlanReport, summarise
from wtawp.experiments.spec import Plan, Record, Setting

WANTED = [certifying("features", 100), certifying("edges", 100)]


def plan(splits: int = 2) -> Plan:
    return certificate_plan(Setting(dataset="karate"), WANTED, awp=AwpConfig(rho=1.0, lam=0.5), splits=splits, inits=1)


@pytest.fixture
def report(make_record: Callable[..., Record]) -> PlanReport:
    """Two runs of each method; the second run's grid is larger."""
    records = []
    for run in plan().runs():
        gain = 0.0 if run.setting.awp is None else 0.1
        small, large = [[0.5 + gain, 0.2]], [[0.7 + gain, 0.4], [0.3, 0.0]]
        features = {"accuracy": 0.8, "abstained": 0.1, "certified": small if run.split == 0 else large}
        edges = {"accuracy": 0.8, "abstained": 0.0, "certified": [[0.6]]}
        records.append(
            make_record(key=run.key, setting=run.setting.content, split=run.split, measured=[features, edges])
        )
    return summarise(plan(), records)


def test_means_are_over_runs_of_one_size(report: PlanReport) -> None:
    found = {(c["row"], c["column"]): np.array(c["certified"]) for c in certified_means(report)["certified"]}
    assert len(found) == 4
    assert found["GCN", "smoothed, features"] == pytest.approx(np.array([[60, 30, 0], [15, 0, 0], [0, 0, 0]]))
    assert found["GCN+WT-AWP", "smoothed, features"][0, 0] == pytest.approx(70)
    assert found["GCN", "smoothed, edges"].tolist() == [[60, 0], [0, 0]]
    assert export_data(report)["certified"] == certified_means(report)["certified"]


def test_the_table_tells_radii_and_abstentions(report: PlanReport) -> None:
    (table,) = certified_tables(report)
    assert table.headers == ("column", "radius", "GCN", "GCN+WT-AWP")
    rows = {(row[0].text, row[1].text): [entry.text for entry in row[2:]] for row in table.rows}
    assert rows["smoothed, features", "(0, 0)"] == ["60.00 ± 14.14", "70.00 ± 14.14"]
    assert rows["smoothed, features", "abstains"] == ["10.00 ± 0.00", "10.00 ± 0.00"]
    assert rows["smoothed, features", "(1, 0)"] == ["15.00 ± 21.21", "15.00 ± 21.21"]
    assert ("smoothed, edges", "(1, 0)") not in rows
    assert table in tables_of(report)
    assert "certified-accuracy" in render_markdown([report], figures="figures").replace("_", "-")


def test_the_table_tells_how_many_votes_count_if_they_were_filtered(make_record: Callable[..., Record]) -> None:
    records = []
    for run in plan().runs():
        results = [{"accuracy": 0.8, "abstained": 0.1, "certified": [[0.5]]} for _ in WANTED]
        results[0] |= {"counted": 0.5 + 0.25 * run.split, "min_confidence": 0.5}
        records.append(make_record(key=run.key, setting=run.setting.content, split=run.split, measured=results))
    (table,) = certified_tables(summarise(plan(), records))
    rows = {(row[0].text, row[1].text): [entry.text for entry in row[2:]] for row in table.rows}
    assert rows["smoothed, features", "votes that count"] == ["62.50 ± 17.68"] * 2
    assert ("smoothed, edges", "votes that count") not in rows


def test_the_figure_has_a_map_for_each_method_and_cuts(report: PlanReport, plotted: list[list[Any]]) -> None:
    certified_accuracy(report)
    (axes,) = plotted
    features, edges = axes[:4], axes[4:8]  # two maps and two cuts each; the bars of colours come after them
    grids = {"GCN": [[60.0, 30, 0], [15, 0, 0], [0, 0, 0]], "GCN+WT-AWP": [[70.0, 30, 0], [15, 0, 0], [0, 0, 0]]}
    for ax, (row, grid) in zip(features[:2], grids.items(), strict=True):
        (mesh,) = ax.collections
        assert mesh.get_array().filled(0) == pytest.approx(np.array(grid)), "nothing is drawn for no node"
        assert mesh.get_clim() == (0.1, 100)
        assert isinstance(mesh.norm, LogNorm)
        assert ax.get_title() == f"{row}\nsmoothed, features"
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("deletions", "additions")
        assert mesh.get_coordinates()[0, :, 0].tolist() == [-0.5, 0.5, 1.5, 2.5], "radii stand in the middle"
    for ax, cut in zip(features[2:], (np.s_[:, 0], np.s_[0, :]), strict=True):
        for line, (row, grid), colour in zip(ax.lines, grids.items(), COLOURS, strict=False):
            assert line.get_xydata() == pytest.approx(np.stack([np.arange(3), np.array(grid)[cut]], 1))
            assert (line.get_label(), line.get_color()) == (row, colour)
        ends = [y for x, y in ax.collections[0].get_paths()[0].vertices if x == 0]
        assert (min(ends), max(ends)) == pytest.approx((60 - np.std([50, 70], ddof=1), 60 + np.std([50, 70], ddof=1)))
    assert [ax.get_title() for ax in features[2:]] == ["additions, no deletions", "deletions, no additions"]
    assert edges[0].collections[0].get_array().filled(0).tolist() == [[60, 0], [0, 0]]


def test_the_limit_of_the_samples_is_drawn_where_records_say_how_they_were_certified(
    make_record: Callable[..., Record], plotted: list[list[Any]]
) -> None:
    how = {"alpha": 0.01, "kind": "multiclass", "p_add": 0.01, "p_del": 0.6, "samples": 1000, "on": "features"}
    certified = {"accuracy": 0.8, "abstained": 0.1, "certified": [[0.5, 0.2], [0.1, 0.0]]}
    results = [{**certified, **how}, {**certified, **how, "on": "edges", "p_add": 0.001, "p_del": 0.4}]
    records = [make_record(key=r.key, setting=r.setting.content, split=r.split, measured=results)
               for r in plan().runs()]  # fmt: skip
    certified_accuracy(summarise(plan(), records))
    (axes,) = plotted
    for on, noise, cuts in (
        ("features", Noise(p_add=0.01, p_del=0.6), axes[2:4]), ("edges", Noise(p_add=0.001, p_del=0.4), axes[6:8])
    ):  # fmt: skip
        unanimous = certificate_of(np.array([[1000, 0]]), {on: noise}, alpha=0.01)  # karate has two classes
        for ax, limit in zip(cuts, unanimous.radii[0], strict=True):
            assert list(ax.lines[-1].get_xdata()) == [limit, limit]
            assert ax.lines[-1].get_label() == "limit of the samples"


def test_pixels_are_written_where_asked_for(report: PlanReport, tmp_path: Path) -> None:
    assert certified_accuracy(report, png=tmp_path / "figure.png") == certified_accuracy(report)
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_without_runs_there_is_nothing_to_show() -> None:
    empty = summarise(plan(), [])
    assert certified_accuracy(empty) == ""
    assert certified_tables(empty) == []
    assert "certified" not in export_data(empty)


def test_plans_certify_under_the_papers_noise_and_refuse_others_parts() -> None:
    assert dict(WANTED[0].options) == {"on": "features", "p_add": 0.01, "p_del": 0.6, "samples": 100, "alpha": 0.01}
    assert dict(certifying("edges", 10, p_del=0.2).options)["p_del"] == 0.2
    with pytest.raises(ValueError, match="on features or on edges"):
        certifying("labels", 10)
    assert len(plan().runs()) == 4, "one training serves both certificates"
    assert {c.row for c in certificate_plan(Setting(dataset="karate"), WANTED, awp=None, splits=1, inits=1).cells} == {
        "GCN"
    }
