from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from wtawp.core import AwpConfig
from wtawp.experiments.plans.catalogue import plans
from wtawp.experiments.plans.geometry import bounds_plan, flatness_plan, landscape_plan, smoothness_plan
from wtawp.experiments.plans.robustness import certificate_plan, certifying
from wtawp.experiments.report.quantities import Quantities
from wtawp.experiments.results.summary import PlanReport, summarise
from wtawp.experiments.spec import Cell, Record, Setting


@pytest.mark.parametrize(("name", "value"), [
    ("tab:small; GCN; cora; mean", 81.5),
    ("tab:small; GCN; cora; printed", 84.0),
    ("tab:small; GCN; cora; printed std", 0.5),
    ("tab:small; GCN; cora; difference", -2.5),
    ("tab:small; GCN; cora; runs", 8),
    ("tab:small; GCN; cora; z", -2.5 / np.hypot(stats.sem([80, 81, 82, 83]), 0.5 / 20**0.5)),
    ("tab:small; GCN; cora; lowest split", 80.0),
    ("tab:small; GCN; cora; highest split", 83.0),
    ("tab:small; GCN; cora; training accuracy", 100.0),
    ("tab:small; GCN; cora; validation accuracy", 81.5),
    ("tab:small; GCN; cora; seconds", 4.0),
    ("tab:small; GCN -> WT-AWP; cora; won", 4),
    ("tab:small; WT-AWP -> GCN; cora; gain", -2.25 * 2.5),  # not a pair of the plan
    ("tab:small; GCN -> WT-AWP; cora; printed", 1.0),
    ("tab:small; GCN -> WT-AWP; cora; gain", 2.25 * 2.5),
    ("attack; GCN; 5 %; drop", 10.0),
    ("attack; GCN -> GCN+WT-AWP; 5 %; change of drop", -1.0),
    ("attack; GCN -> GCN+WT-AWP; 5 %; clean gain", 2.0),
])  # fmt: skip
def test_a_comment_names_a_statistic_of_a_cell_or_of_a_pair(name: str, value: float, reports: list[PlanReport]) -> None:
    assert Quantities(reports).value(name) == pytest.approx(value)


@pytest.mark.parametrize(("name", "message"), [
    ("tab:smal; GCN; cora; mean", "there is no plan 'tab:smal'; near it are tab:small"),
    ("tab:small; GAT; cora; mean", "the table has nothing at GAT, cora"),
    ("tab:small; GCN; cora; meen", "there is no statistic of a cell 'meen'; near it are mean"),
    ("tab:small; GCN -> GAT; cora; gain", "the table has nothing at GCN, GAT, cora"),
    ("tab:small; GCN -> WT-AWP; cora; gian", "there is no statistic of a pair 'gian'; near it are gain"),
    ("attack; GCN; no attack; drop", "was not measured"),
    ("tab:graphclass; GCN; cora; mean", "there is no plan 'tab:graphclass' among those that are shown"),
    ("fact; nothing", "there is no fact 'nothing'"),
    ("fact; drops", "this needs the plan tab:poison, which is not among those shown"),
    ("fact; league columns", "this needs the plan extra:league, which is not among those shown"),
    ("mean", "expected 'plan; row; column; statistic' or 'fact; name', got 'mean'"),
])  # fmt: skip
def test_what_cannot_be_computed_is_refused(name: str, message: str, reports: list[PlanReport]) -> None:
    with pytest.raises(ValueError, match=".*".join(message.split("; near"))):
        Quantities(reports).value(name)


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("tab:graphclass; GCN; proteins; mean", "tab:graphclass"),
        ("tab:natacc; GCN -> GCN+WT-AWP; cora; gain", "tab:natacc"),
        ("fact; natacc cells", "tab:natacc"),
        ("fact; main claims", "extra:flatness"),
        ("fact; claims", "extra:flatness"),
        ("fact; seconds of tab:natacc", "tab:natacc"),
    ],
)
def test_a_plan_of_which_nothing_is_stored_is_not_taken_for_one_that_does_not_exist(name: str, plan: str) -> None:
    quantities = Quantities(summarise(each, []) for each in plans().values())
    advice = r"wtawp results import results/\*\.jsonl\.gz, or pass --records results"
    with pytest.raises(ValueError, match=f"this needs the plan {plan}, of which nothing is stored; .*{advice}"):
        quantities.value(name)


def test_a_comment_names_a_certified_accuracy(make_record: Callable[..., Record]) -> None:
    plan = certificate_plan(
        Setting(dataset="karate"), [certifying("features", 10)], awp=AwpConfig(rho=1.0, lam=0.5), splits=3, inits=1
    )
    shares = {False: (0.5, 0.6, 0.7), True: (0.6, 0.5, 0.9)}
    records = [
        make_record(key=run.key, setting=run.setting.content, split=run.split,
                    measured=[{"certified": [[0.8, shares[run.setting.awp is not None][run.split]]], "accuracy": 0.8}])
        for run in plan.runs()
    ]  # fmt: skip
    quantities = Quantities([summarise(plan, records)])
    place, pair = f"{plan.name}; GCN; smoothed, features", f"{plan.name}; GCN -> GCN+WT-AWP; smoothed, features"
    assert quantities.value(f"{place}; certified (0, 1)") == pytest.approx(60.0)
    assert quantities.value(f"{place}; std of certified (0, 1)") == pytest.approx(10.0)
    assert quantities.value(f"{pair}; gain of certified (0, 1)") == pytest.approx(20 / 3)
    assert quantities.value(f"{pair}; won of certified (0, 1)") == 2
    with pytest.raises(ValueError, match="there is no statistic of a certified accuracy 'median of '"):
        quantities.value(f"{place}; median of certified (0, 1)")
    with pytest.raises(ValueError, match="the table has nothing at 7, 7"):
        quantities.value(f"{pair}; gain of certified (7, 7)")


def test_a_comment_names_a_ratio_of_flatness(make_record: Callable[..., Record]) -> None:
    """The largest eigenvalue is 1, 2, 3, ... times as large; training losses are alike in seven splits, then not."""
    plan = flatness_plan({"cora": (0.7, 1.0)})
    rise = {"rhos": [0.1, 0.2, 0.3, 0.4], "rises": [1.0, 1.0, 1.0, 1.0]}
    line = {"mean": [2.0, 1.0, 2.0], "loss": 1.0}
    records = []
    for run in plan.runs():
        is_plain = run.setting.awp is None
        top = {"top": [1.0 if is_plain else 1.0 + run.split], "trace": 1.0}
        loss = dict.fromkeys(("train", "val", "test"), 1.0 if is_plain or run.split < 7 else 5.0)
        measured = [rise, rise, rise, top, line, line]
        records.append(
            make_record(key=run.key, setting=run.setting.content, split=run.split, measured=measured, loss=loss)
        )
    quantities = Quantities([summarise(plan, records)])
    of = "extra:flatness; GCN -> GCN+WT-AWP; cora; {} of largest eigenvalue".format
    assert quantities.value(of("ratio")) == pytest.approx(stats.gmean(range(1, 21)))
    assert quantities.value(of("lower mode")) == pytest.approx(stats.gmean(range(1, 8)))
    assert quantities.value(of("upper mode")) == pytest.approx(stats.gmean(range(8, 21)))
    assert quantities.value(of("ratio at matched loss")) == pytest.approx(stats.gmean(range(1, 8)))
    with pytest.raises(ValueError, match="there is no measure of flatness 'eigen'"):
        quantities.value("extra:flatness; GCN -> GCN+WT-AWP; cora; ratio of eigen")


def test_a_comment_names_what_was_measured_of_a_model(make_record: Callable[..., Record]) -> None:
    made = bounds_plan({"cora": (0.7, 1.0)}, {})
    totals = {False: [9.0, 4.0, 6.0, 7.0, 4.0], True: [3.0, 3.0, 3.0, 3.0, 8.0]}
    records = [
        make_record(key=run.key, setting=run.setting.content, split=run.split,
                    loss={"train": 0.1 * (1 + run.split % 5)},
                    measured=[{"total": [99.0, totals[run.setting.awp is not None][run.split % 5]],
                               "all_loss": 0.5 + 0.01 * (run.split % 5), "train_loss": 0.4}])
        for run in made.runs()
    ]  # fmt: skip
    quantities = Quantities([summarise(made, records)])
    assert quantities.value("extra:bounds; GCN; cora; smallest bound") == 4.0
    assert quantities.value("extra:bounds; GCN+WT-AWP; cora; mean bound") == pytest.approx(4.0)
    assert quantities.value("extra:bounds; GCN; cora; largest gap") == pytest.approx(0.14)
    assert quantities.value("extra:bounds; GCN; cora; training loss") == pytest.approx(0.3)


def test_a_comment_names_rises_along_lines_and_norms_of_gradients(make_record: Callable[..., Record]) -> None:
    lines, smooth = landscape_plan(), smoothness_plan()
    records = [
        make_record(key=run.key, setting=run.setting.content, split=run.split,
                    measured=[{"mean": [1.0 + rise, 1.0, 1.0 + rise], "loss": 1.0}
                              for rise in (2.0, 2.0 ** (run.split % 2))])
        for run in lines.runs()
    ]  # fmt: skip
    records += [
        make_record(key=run.key, setting=run.setting.content, split=run.split,
                    measured=[{"norm": 1.0 if run.setting.awp is None else factor ** (1 + run.split % 2)}
                              for factor in (2.0, 3.0, 4.0, 5.0)])
        for run in smooth.runs()
    ]  # fmt: skip
    quantities = Quantities([summarise(made, records) for made in (lines, smooth)])
    assert quantities.value("fig:lossland; GCN; cora; rise, layer") == pytest.approx(2.0)
    assert quantities.value("fig:lossland; GCN; cora; rise, unit") == pytest.approx(2**0.5)
    pair = "fig:lipcora; GCN -> GCN+WT-AWP; cora, last epoch; norm ratio"
    assert quantities.value(f"{pair}, paper, X") == pytest.approx(3**1.5)
    assert quantities.value(f"{pair}, released, A") == pytest.approx(4**1.5)


def test_a_comment_names_the_change_of_the_spread(
    reports: list[PlanReport], make_records: Callable[..., list[Record]]
) -> None:
    made = reports[0].plan

    def accuracy(cell: Cell, split: int, init: int) -> float:
        return 80.0 + init * (1 + split if cell.row == "WT-AWP" else 2)

    quantities = Quantities([summarise(made, make_records(made, accuracy))])
    changes = [(1 + split - 2) / 2**0.5 for split in range(4)]
    low, high = stats.ttest_1samp(changes, 0.0).confidence_interval(0.95)
    place = "tab:small; GCN -> WT-AWP; cora"
    assert quantities.value(f"{place}; change of spread") == pytest.approx(np.mean(changes))
    assert quantities.value(f"{place}; low of change of spread") == pytest.approx(low)
    assert quantities.value(f"{place}; high of change of spread") == pytest.approx(high)
