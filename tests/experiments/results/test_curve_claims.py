from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from wtawp.experiments.plans.catalogue import plan
from wtawp.experiments.results import curve_claims
from wtawp.experiments.results.summary import PlanReport, summarise
from wtawp.experiments.spec import Record

MakeRecords = Callable[..., list[Record]]
Curve = Callable[[Record, np.ndarray], np.ndarray]
EPOCHS = np.arange(200)


def method(record: Record) -> str:
    awp = record.setting["awp"]
    return "plain" if awp is None else "AWP" if awp["lam"] == 1.0 else "WT-AWP"


def report_of(make_records: MakeRecords, name: str, **curves: Curve) -> PlanReport:
    """A plan whose runs have these curves over the epochs, column by column."""
    made = plan(name)
    records = [
        replace(r, history={column: curve(r, EPOCHS).tolist() for column, curve in curves.items()})
        for r in make_records(made)
    ]
    return summarise(made, records)


@pytest.mark.parametrize(("ends", "verdict"), [(0.05, "holds"), (0.005, "does not hold")])
def test_the_last_row_must_end_with_the_largest_loss(make_records: MakeRecords, ends: float, verdict: str) -> None:
    final = {"plain": 0.014, "AWP": 0.007, "WT-AWP": ends}
    report = report_of(make_records, "fig:lcagg", train_loss=lambda r, e: final[method(r)] + 2 * np.exp(-e / 10))
    found = curve_claims.last_row_ends_highest(report)
    assert found.verdict == verdict
    assert f"in {20 if verdict == 'holds' else 0} of 20 runs; the loss fell in 60 of 60" in found.sentence


def test_a_loss_that_rises_has_not_converged(make_records: MakeRecords) -> None:
    report = report_of(make_records, "fig:lcagg", train_loss=lambda r, e: 0.1 + 0.001 * e * (method(r) == "WT-AWP"))
    assert curve_claims.last_row_ends_highest(report).verdict == "does not hold"


@pytest.mark.parametrize(
    ("swing", "speed", "verdict"),
    [(0.2, 200.0, "holds"), (0.001, 200.0, "does not hold"), (0.2, 20.0, "does not hold")],
)
def test_the_gap_must_fluctuate_more_and_fall_more_slowly(
    make_records: MakeRecords, swing: float, speed: float, verdict: str
) -> None:
    def gap(record: Record, epochs: np.ndarray) -> np.ndarray:
        wild, slow = (swing, speed) if method(record) == "WT-AWP" else (0.01, 50.0)
        return np.exp(-epochs / slow) + wild * (-1.0) ** epochs  # which add up to 0

    found = curve_claims.last_gap_fluctuates_more(report_of(make_records, "fig:lcagg", gap=gap))
    assert found.verdict == verdict


@pytest.mark.parametrize(("sign", "verdict"), [(-1.0, "holds"), (1.0, "does not hold")])
def test_the_gap_of_the_last_row_must_fall(make_records: MakeRecords, sign: float, verdict: str) -> None:
    report = report_of(make_records, "fig:lcagg", gap=lambda _, e: np.exp(sign * e / 100))
    assert curve_claims.last_gap_falls(report).verdict == verdict


@pytest.mark.parametrize(("of_wt_awp", "verdict"), [(0.5, "holds"), (2.0, "does not hold")])
def test_relative_gradients_of_all_other_rows_must_be_smaller(
    make_records: MakeRecords, of_wt_awp: float, verdict: str
) -> None:
    size = {"plain": 1.0, "AWP": 0.4, "WT-AWP": of_wt_awp}
    report = report_of(
        make_records,
        "fig:ngrad",
        gradient_norm=lambda r, e: size[method(r)] * np.where(e < 100, 5.0, 0.1),
        weight_norm=lambda _, e: np.full(len(e), 10.0),
    )
    found = curve_claims.relative_gradients_are_smaller(report)
    assert found.verdict == verdict
    assert "GCN 0.01, AWP rho=0.1 0.004 (smaller in 20 of 20 runs)" in found.sentence


def test_without_history_claims_wait(make_records: MakeRecords) -> None:
    report = report_of(make_records, "fig:lcagg")
    for each in (
        curve_claims.last_row_ends_highest, curve_claims.last_gap_fluctuates_more, curve_claims.last_gap_falls,
        curve_claims.relative_gradients_are_smaller,
    ):  # fmt: skip
        assert each(report).verdict == "incomplete"
