from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from wtawp.core import AwpConfig
from wtawp.experiments.plans.geometry import flatness_plan
from wtawp.experiments.plans.robustness import certificate_plan, certifying
from wtawp.experiments.report.verification import Quantities, verify
from wtawp.experiments.results.summary import PlanReport, summarise
from wtawp.experiments.spec import Cell, Plan, Record, Setting


@pytest.fixture
def reports(
    small_plan: Plan, poisoned_plan: Plan, poisoned_records: list[Record], make_records: Callable[..., list[Record]]
) -> list[PlanReport]:
    def accuracy(cell: Cell, split: int, _init: int) -> float:
        return 80.0 + split + (2.25 if cell.row == "WT-AWP" else 0.0) * (1 + split)

    return [
        summarise(small_plan, make_records(small_plan, accuracy)), summarise(poisoned_plan, poisoned_records)
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [
    ("tab:small; GCN; cora; mean", 81.5),
    ("tab:small; GCN; cora; printed", 84.0),
    ("tab:small; GCN; cora; difference", -2.5),
    ("tab:small; GCN; cora; runs", 8),
    ("tab:small; GCN; cora; z", -2.5 / np.hypot(stats.sem([80, 81, 82, 83]), 0.5 / 20**0.5)),
    ("tab:small; GCN; cora; lowest split", 80.0),
    ("tab:small; GCN; cora; highest split", 83.0),
    ("tab:small; GCN; cora; training accuracy", 100.0),
    ("tab:small; GCN; cora; seconds", 4.0),
    ("tab:small; GCN -> WT-AWP; cora; won", 4),
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
    ("fact; nothing", "there is no fact 'nothing'"),
    ("fact; drops", "this needs the plan tab:poison, of which nothing is shown"),
    ("fact; league columns", "this needs the plan extra:league, of which nothing is shown"),
    ("mean", "expected 'plan; row; column; statistic' or 'fact; name', got 'mean'"),
])  # fmt: skip
def test_what_cannot_be_computed_is_refused(name: str, message: str, reports: list[PlanReport]) -> None:
    with pytest.raises(ValueError, match=".*".join(message.split("; near"))):
        Quantities(reports).value(name)


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


@pytest.mark.parametrize("written", ["81.5", "81.50", "82", "+81.5", "**81.5**", "81.5 %"])
def test_a_number_is_rounded_as_it_is_written(written: str, reports: list[PlanReport], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"It is {written}<!-- = tab:small; GCN; cora; mean --> here.", encoding="utf-8")
    assert verify([tmp_path], reports) == (1, [])


def test_thousands_may_be_separated_and_signs_count(reports: list[PlanReport], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("-1.0<!-- = attack; GCN -> GCN+WT-AWP; 5 %; change of drop -->\n"
                    "+1.0<!-- = attack; GCN -> GCN+WT-AWP; 5 %; change of drop -->", encoding="utf-8")  # fmt: skip
    count, (wrong,) = verify([page], reports)
    assert (count, wrong.line) == (2, 2)
    assert str(wrong) == (f"{page}:2: 'attack; GCN -> GCN+WT-AWP; 5 %; change of drop' is -1.0, and the text says +1.0")


def test_a_mark_without_its_equals_sign_and_a_typographic_minus_are_seen(
    reports: list[PlanReport], tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text("1<!-- fact; drops -->\n\u22121.0<!-- = attack; GCN -> GCN+WT-AWP; 5 %; change of drop -->",
                    encoding="utf-8")  # fmt: skip
    count, (wrong,) = verify([page], reports)
    assert (count, wrong.line, wrong.problem) == (1, 1, "a mark begins with an equals sign: <!-- = ... -->")


def test_wrong_numbers_and_lost_marks_are_listed_with_their_places(reports: list[PlanReport], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("first\n\n81.6<!-- = tab:small; GCN; cora; mean -->\nwords <!-- = tab:small; GCN; cora; mean -->"
                    "\n<!-- a comment -->", encoding="utf-8")  # fmt: skip
    count, wrong = verify([page], reports)
    assert count == 2
    assert [(w.line, w.problem) for w in wrong] == [
        (3, "'tab:small; GCN; cora; mean' is 81.5, and the text says 81.6"),
        (4, "no number stands before the mark of 'tab:small; GCN; cora; mean'"),
    ]
