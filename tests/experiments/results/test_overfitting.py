from dataclasses import replace

import pytest

from wtawp.core import AwpConfig
from wtawp.experiments.results.overfitting import gains_and_overfitting, overfitting, rank_correlation
from wtawp.experiments.results.summary import PlanReport, summarise
from wtawp.experiments.spec import Cell, Plan, Setting


def test_the_gains_of_a_league_stand_beside_the_overfitting_of_its_reference(league_report: PlanReport) -> None:
    found = gains_and_overfitting(league_report)
    assert found.keys() == {"WT-AWP", "SAM"}
    xs, ys, columns = zip(*found["WT-AWP"], strict=True)
    assert xs == pytest.approx((0.1, 0.2, 0.3, 0.4))
    assert ys == pytest.approx((2.3, 1.15, 3.45, -1.15))
    assert columns == ("cora", "citeseer", "wine", "digits")


def test_the_gains_of_pairs_stand_beside_the_overfitting_of_their_first_rows(league_report: PlanReport) -> None:
    plain, other = Setting(dataset="wine", weight_decay=1e-4), Setting(dataset="wine", awp=AwpConfig(rho=1.0, lam=0.7),
                                                                       weight_decay=1e-4)  # fmt: skip
    cells = Cell("GCN", "wine", plain, 4, 1), Cell("GCN+WT-AWP", "wine", other, 4, 1)
    plan = Plan("pairs", "Pairs", cells, (("GCN", "GCN+WT-AWP"),))
    assert gains_and_overfitting(summarise(plan, league_report.records)) == {
        "WT-AWP": [(pytest.approx(0.3), pytest.approx(3.45), "GCN on wine")]
    }


def test_runs_without_any_loss_do_not_overfit(league_report: PlanReport) -> None:
    cell = league_report.cells[0]
    records = [replace(record, loss={"train": 0.0, "val": 0.0, "test": 0.0}) for record in cell.records]
    assert overfitting(replace(cell, records=tuple(records))) == 0


def test_the_rank_correlation_is_that_of_the_textbook() -> None:
    correlation, p_value = rank_correlation([1, 2, 3, 4, 5], [2, 1, 4, 3, 5])
    assert correlation == pytest.approx(1 - 6 * 4 / (5 * 24))
    assert 0.05 < p_value < 0.2
