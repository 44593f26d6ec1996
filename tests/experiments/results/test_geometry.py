import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from wtawp.experiments.plans.geometry import flatness_plan, landscape_plan, smoothness_plan
from wtawp.experiments.results.claims import check
from wtawp.experiments.results.geometry import (
    Quantity,
    find_modes,
    geometry_comparisons,
    landscape_ends,
    ratios_at_matched_loss,
    smoothness_comparisons,
    with_holm,
)
from wtawp.experiments.results.summary import PlanReport, summarise
from wtawp.experiments.spec import Plan, Record, Run

Measured = Callable[[Run], list[dict[str, object]]]
MakeRecord = Callable[..., Record]


def report_of(plan: Plan, make_record: MakeRecord, measured: Measured) -> PlanReport:
    records = [
        make_record(
            key=run.key, setting=run.setting.content, split=run.split, init=run.init, measured=measured(run),
            accuracy={"test": 0.8 if run.setting.awp is None else 0.85},
            loss=dict.fromkeys(("train", "val", "test"), 0.3),
        )
        for run in plan.runs()
    ]  # fmt: skip
    return summarise(plan, records)


def norms(run: Run) -> list[dict[str, object]]:
    """With the method smoother by A on the first 14 splits, and by X on all; never in the released way."""
    plain = run.setting.awp is None
    by_a = 1.0 if plain or run.split >= 14 else 0.5
    return [{"norm": n, "spread": 0.0} for n in (by_a, 2.0 if plain else 1.0, 1.0, 1.0)]


def test_pairs_share_their_split_and_are_counted(make_record: MakeRecord) -> None:
    report = report_of(smoothness_plan(), make_record, norms)
    compared = smoothness_comparisons(report)
    assert len(compared) == 16
    assert [c.is_last_epoch for c in compared] == [False] * 8 + [True] * 8
    pairs = {(c.column, c.matrix, c.definition): c.pairs for c in compared}
    assert pairs["cora", "A", "paper"][0].before == (1.0, pytest.approx(80))
    assert [p.is_better for p in pairs["cora", "A", "paper"]] == [True] * 14 + [False] * 6
    outcome = check(report.plan.claims[0], report)
    assert outcome.verdict == "holds"
    assert outcome.sentence.startswith("68 of 80 pairs")
    assert "in the released code's definition 0 of 80; at the last epoch 68 of 80; in the" in outcome.sentence


def sizes(run: Run) -> list[dict[str, object]]:
    """Sharpness and lines flatter with the method, the spectrum sharper; a little noise from split to split."""
    plain = run.setting.awp is None
    noise = 0.01 * ((run.split * 7) % 5) if plain else 0.0
    small, large = (1.0, 0.5) if not plain else (2.0, 0.3)
    rises = [{"radius": r, "rhos": [0.1, 0.2, 0.3, 0.4], "rises": [0.1, small + noise, 3.0, 4 * small + noise]}
             for r in ("layer", "adaptive", "global")]  # fmt: skip
    line = {
        "scale": "layer",
        "distances": [-1.0, 0.0, 1.0],
        "mean": [small + noise + 0.3, 0.3, small + 0.3],
        "loss": 0.3,
    }
    curvature = {"top": [large + noise], "trace": 1.0 + noise, "trace_error": 0.1}
    return [*rises, curvature, line, {**line, "scale": "unit"}]


def test_measures_are_compared_over_splits_with_losses_beside(make_record: MakeRecord) -> None:
    report = report_of(flatness_plan({"cora": (0.7, 1.0)}), make_record, sizes)
    found = {c.quantity.label: c for c in geometry_comparisons(report) if c.column == "cora"}
    assert [name for name, c in found.items() if not c.is_flatness] == ["train loss", "val loss", "test loss"]
    assert found["train loss"].quantity == Quantity("loss", "train loss")
    layer = found["sharpness, layer, rho=0.4"]
    without = [8.0 + 0.01 * ((split * 7) % 5) for split in range(20)]
    assert (layer.before, layer.after) == (pytest.approx(stats.gmean(without)), pytest.approx(4.0))
    assert layer.mean_ratio == pytest.approx(4.0 / stats.gmean(without))
    test = stats.ttest_1samp(-np.log(np.divide(without, 4.0)), 0.0)
    assert layer.log_ratio is not None
    assert layer.log_ratio.p_value == pytest.approx(test.pvalue)
    assert layer.ratio_interval == pytest.approx(np.exp(test.confidence_interval(0.95)))
    assert layer.verdict(0.01) == "flatter"
    assert layer.verdict(0.2) == "undecided"
    assert found["largest eigenvalue"].verdict(0.01) == "sharper"
    assert found["train loss"].verdict(0.01) == ""
    outcome = check(report.plan.claims[0], report)
    assert outcome.verdict == "does not hold"
    assert outcome.sentence.startswith("flatter by 18 of 20. ")
    assert "sharper by 2 of 20: largest eigenvalue (cora)" in outcome.sentence


def test_where_losses_are_alike_the_ratios_are_told_again(make_record: MakeRecord) -> None:
    plan = flatness_plan({"cora": (0.7, 1.0)})

    def train_loss(run: Run) -> float:  # of 20 splits the first five are alike, 0.3 and 0.4; others are not: 0.6, 0.1
        return 0.3 if run.setting.awp is None else 0.4 if run.split < 5 else 0.6 if run.split < 10 else 0.1

    report = summarise(plan, [
        make_record(key=run.key, setting=run.setting.content, split=run.split, init=run.init, measured=sizes(run),
                    loss={"train": train_loss(run), "val": 0.3, "test": 0.3}) for run in plan.runs()
    ])  # fmt: skip
    found = {c.quantity.label: c for c in ratios_at_matched_loss(report) if c.column == "cora"}
    assert "test loss" not in found
    eigenvalue = found["largest eigenvalue"]
    assert (eigenvalue.num_splits, eigenvalue.num_below) == (5, 0)
    noises = [0.01 * ((split * 7) % 5) for split in range(5)]
    assert eigenvalue.ratio == pytest.approx(math.prod(0.5 / (0.3 + noise) for noise in noises) ** 0.2)


def with_losses(plan: Plan, make_record: MakeRecord, loss: Callable[[Run], float]) -> PlanReport:
    return summarise(plan, [
        make_record(key=run.key, setting=run.setting.content, split=run.split, init=run.init, measured=sizes(run),
                    loss={"train": loss(run), "val": 0.3, "test": 0.3}) for run in plan.runs()
    ])  # fmt: skip


def test_splits_of_two_kinds_are_told_apart_and_others_are_not(make_record: MakeRecord) -> None:
    plan = flatness_plan({"cora": (0.7, 1.0)})

    def two_kinds(run: Run) -> float:  # six splits with like losses, fourteen with 4 to 6 times the plain one's
        factor = 1.0 + 0.1 * (run.split % 2) if run.split % 10 < 3 else 4.0 + run.split % 3
        return 0.1 * (1.0 if run.setting.awp is None or run.setting.select_on == "last" else factor)

    compared = geometry_comparisons(with_losses(plan, make_record, two_kinds))
    modes = find_modes(compared)
    assert list(modes) == ["cora"], "in the last epoch all splits are alike"
    assert sorted(modes["cora"].lower) == [0, 1, 2, 10, 11, 12]
    assert sorted(modes["cora"].lower + modes["cora"].upper) == list(range(20))
    (eigenvalue,) = (c for c in compared if (c.column, c.quantity.label) == ("cora", "largest eigenvalue"))
    ratios = {split: 0.5 / (0.3 + 0.01 * ((split * 7) % 5)) for split in range(20)}
    low, high = ([ratio for s, ratio in ratios.items() if (s % 10 < 3) == is_low] for is_low in (True, False))
    assert modes["cora"].mean_ratios(eigenvalue) == pytest.approx((stats.gmean(low), stats.gmean(high)))


def test_two_odd_splits_are_no_second_mode(make_record: MakeRecord) -> None:
    plan = flatness_plan({"cora": (0.7, 1.0)})
    report = with_losses(plan, make_record, lambda run: 0.9 if run.setting.awp and run.split < 2 else 0.1)
    assert find_modes(geometry_comparisons(report)) == {}


def test_only_measures_of_flatness_are_tested_and_corrected(make_record: MakeRecord) -> None:
    compared = geometry_comparisons(report_of(flatness_plan({"cora": (0.7, 1.0)}), make_record, sizes))
    corrected = with_holm(compared)
    assert [c for c, _ in corrected] == compared
    assert {c.is_flatness for c, p in corrected if p is not None} == {True}
    assert sum(p is not None for _, p in corrected) == 20


def test_a_value_that_has_no_logarithm_is_counted_and_not_compared(make_record: MakeRecord) -> None:
    def negative(run: Run) -> list[dict[str, object]]:
        measured = sizes(run)
        return [*measured[:3], {"top": [-0.1 if run.split == 4 else 0.2], "trace": 1.0}, *measured[4:]]

    report = report_of(flatness_plan({"cora": (0.7, 1.0)}), make_record, negative)
    (found,) = (
        c for c in geometry_comparisons(report) if (c.column, c.quantity.label) == ("cora", "largest eigenvalue")
    )
    assert (found.num_not_positive, found.log_ratio, found.mean_ratio, found.ratio_interval) == (1, None, None, None)
    assert math.isnan(found.before)
    assert found.verdict(0.01) == ""


def test_landscapes_are_in_the_papers_order_or_not(make_record: MakeRecord) -> None:
    def lines(run: Run, heights: dict[float | None, float]) -> list[dict[str, object]]:
        rho = None if run.setting.awp is None else run.setting.awp.rho
        return [{"scale": s, "distances": [-1.0, 0.0, 1.0], "mean": [2 * heights[rho] - 0.1, 0.1, 0.1], "loss": 0.1}
                for s in ("layer", "unit")]  # fmt: skip

    good = report_of(landscape_plan(), make_record, lambda run: lines(run, {None: 1.1, 0.1: 1.0, 0.5: 0.4}))
    assert landscape_ends(good)["cora, last epoch", "unit"] == pytest.approx(
        {"GCN": 1.0, "GCN+AWP": 0.9, "GCN+WT-AWP": 0.3}
    )
    assert check(good.plan.claims[0], good).verdict == "holds"
    bad = report_of(landscape_plan(), make_record, lambda run: lines(run, {None: 1.1, 0.1: 1.0, 0.5: 1.4}))
    assert check(bad.plan.claims[0], bad).verdict == "does not hold"
    assert "not in that order" in check(bad.plan.claims[0], bad).sentence


def test_initialisations_of_a_split_are_one_pair_and_ties_are_not_smaller(make_record: MakeRecord) -> None:
    plan = flatness_plan({"cora": (0.7, 1.0)})
    plan = replace(plan, cells=tuple(replace(cell, splits=3, inits=4) for cell in plan.cells))
    report = summarise(plan, [
        make_record(key=run.key, setting=run.setting.content, split=run.split, init=run.init, measured=sizes(run),
                    loss=dict.fromkeys(("train", "val", "test"), 0.3)) for run in plan.runs()
    ])  # fmt: skip
    found = {c.quantity.label: c for c in geometry_comparisons(report) if c.column == "cora"}
    log_ratio = found["sharpness, layer, rho=0.4"].log_ratio
    assert log_ratio is not None
    assert log_ratio.num_pairs == 3
    assert found["sharpness, layer, rho=0.4"].num_smaller == 3
    assert found["train loss"].num_smaller == 0, "they are equal"
