from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wtawp.core import AwpConfig
from wtawp.experiments.plans.robustness import certificate_plan, certifying, certifying_together
from wtawp.experiments.report.contents import tables_of
from wtawp.experiments.report.export import export_data
from wtawp.experiments.report.measures.collective import (
    certified_together,
    collective_curves,
    collective_tables,
    shares_at,
)
from wtawp.experiments.results.summary import PlanReport, summarise
from wtawp.experiments.spec import Plan, Record, Setting

CERTIFICATE = certifying("features", 100)
SHORT = {"budgets": [0, 1, 5], "together": [0.8, 0.6, 0.2], "per_node": [0.8, 0.2, 0.0], "average": 1.4,
         "per_node_average": 0.2}  # fmt: skip
LONG = {"budgets": [0, 1, 4, 10], "together": [0.6, 0.6, 0.4, 0.0], "per_node": [0.6, 0.4, 0.2, 0.0], "average": 2.2,
        "per_node_average": 1.0}  # fmt: skip


def plan() -> Plan:
    return certificate_plan(
        Setting(dataset="karate"), [CERTIFICATE], awp=AwpConfig(rho=1.0, lam=0.5), splits=2, inits=1,
        together=[certifying_together(CERTIFICATE)],
    )  # fmt: skip


@pytest.fixture
def report(make_record: Callable[..., Record]) -> PlanReport:
    """Two runs of each method; the second run's curve has other budgets."""
    records = []
    for run in plan().runs():
        curve = SHORT if run.split == 0 else LONG
        measured = [
            {"accuracy": 0.8, "abstained": 0.1, "certified": [[0.8]]},
            {"accuracy": 0.8, "curves": {"deletions": curve}},
        ]
        records.append(make_record(key=run.key, setting=run.setting.content, split=run.split, measured=measured))
    return summarise(plan(), records)


def test_a_share_between_two_budgets_is_that_of_the_larger_one() -> None:
    assert shares_at(SHORT, "together", np.array([0, 1, 2, 5, 6, 99])).tolist() == [0.8, 0.6, 0.2, 0.2, 0.2, 0.2]


def test_the_table_has_averages_and_shares_of_both_kinds(report: PlanReport) -> None:
    (table,) = collective_tables(report)
    assert table.headers == ("column", "flips", "certified", "GCN", "GCN+WT-AWP")
    rows = {row[2].text: row[3].text for row in table.rows}
    assert {row[0].text for row in table.rows} == {"collective, features"}
    assert rows["average flips, together"].startswith("1.80 ±")
    assert rows["average flips, one by one"].startswith("0.60 ±")
    assert rows["% at 1, together"].startswith("60.00 ±")
    assert rows["% at 1, one by one"].startswith("30.00 ±")
    assert rows["% at 5, together"].startswith("10.00 ±")
    assert "% at 5, one by one" not in rows
    assert table in tables_of(report)


def test_the_figure_has_a_line_for_nodes_together_and_one_for_nodes_one_by_one(
    report: PlanReport, plotted: list[list[Any]], tmp_path: Path
) -> None:
    svg = certified_together(report, png=tmp_path / "figure.png")
    assert svg.startswith("<svg")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    ((ax,),) = plotted
    lines = {line.get_label(): line.get_xydata() for line in ax.lines}
    assert set(lines) == {f"{row}, {how}" for row in ("GCN", "GCN+WT-AWP") for how in ("together", "one by one")}
    assert lines["GCN, together"][:, 0].tolist() == [0, 1, 4, 5, 10]
    assert lines["GCN, together"][:, 1] == pytest.approx([70, 60, 30, 10, 10])
    assert ax.get_title() == "collective, features: deletions"


def test_curves_are_exported(report: PlanReport) -> None:
    exported: Any = export_data(report)["collective"]
    assert exported == collective_curves(report)["collective"]
    assert exported[0]["runs"] == [SHORT, LONG]


def test_without_runs_there_is_nothing_to_show() -> None:
    empty = summarise(plan(), [])
    assert certified_together(empty) == ""
    assert collective_tables(empty) == []
    assert "collective" not in export_data(empty)
