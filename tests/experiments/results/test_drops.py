from collections.abc import Callable
from dataclasses import replace

import pytest
from scipy import stats

from wtawp.experiments.plans.robustness import attack_plan, certificate_plan, certifying
from wtawp.experiments.results.drops import compare_drops, split_drops
from wtawp.experiments.results.summary import summarise
from wtawp.experiments.spec import Plan, Record, Setting

MakeRecords = Callable[..., list[Record]]


def test_a_poisoned_training_is_compared_with_the_same_training_on_the_clean_graph(
    poisoned_plan: Plan, poisoned_records: list[Record]
) -> None:
    report = summarise(poisoned_plan, poisoned_records)
    assert [c.mean_drop for c in report.cells] == [None, pytest.approx(10.0), None, pytest.approx(9.0)]
    (compared,) = compare_drops(report)
    assert (compared.before, compared.after, compared.column) == ("GCN", "GCN+WT-AWP", "5 %")
    assert (compared.drop_before, compared.drop_after) == pytest.approx((10.0, 9.0))
    assert (compared.clean_gain, compared.gain) == pytest.approx((2.0, 3.0)), "gain = clean gain - change of the drop"
    honest = stats.ttest_1samp([-1.0, -1.5, -0.5], 0.0)
    interval = honest.confidence_interval(0.95)
    assert (compared.change.mean, compared.change.low, compared.change.high) == pytest.approx(
        (-1.0, interval.low, interval.high)
    )
    assert compared.holm_p_value == compared.change.p_value == pytest.approx(honest.pvalue)
    assert not compared.is_smaller, "p is 0.07"
    assert replace(compared, holm_p_value=0.01).is_smaller
    assert not replace(compared, holm_p_value=0.01).is_larger
    first, second = split_drops(report.cells[1], report.cells[3])
    assert first == pytest.approx([10.0] * 3)
    assert second == pytest.approx([9.0, 8.5, 9.5])


def test_clean_trainings_of_another_device_or_none_give_no_drop(
    poisoned_plan: Plan, poisoned_records: list[Record]
) -> None:
    attacked = [r for r in poisoned_records if "poison" in r.setting]
    elsewhere = [replace(r, device="NVIDIA H200") for r in poisoned_records if "poison" not in r.setting]
    for records in (attacked, [*attacked, *elsewhere]):
        report = summarise(poisoned_plan, records, device="cpu")
        assert {c.mean_drop for c in report.cells} == {None}
        assert compare_drops(report) == ()
    clean = [r for r in poisoned_records if "poison" not in r.setting]
    some = summarise(poisoned_plan, [*attacked, *clean[1:]])
    assert some.cells[1].mean_drop is None, "the mean of some runs would stand beside that of all"
    assert len(some.cells[1].drops) == 5


def test_clean_trainings_of_another_plan_are_used_but_do_not_choose_the_device(
    poisoned_plan: Plan, poisoned_records: list[Record]
) -> None:
    attack_alone = poisoned_plan.only(columns=["5 %"])
    clean_elsewhere = [replace(r, device="other") for r in poisoned_records if "poison" not in r.setting]
    report = summarise(attack_alone, [*poisoned_records, *clean_elsewhere])
    assert report.device == poisoned_records[0].device
    assert report.other_devices == ()
    assert [c.mean_drop for c in report.cells] == pytest.approx([10.0, 9.0])
    assert len(report.records) == report.num_runs == 12, "clean trainings are not runs of this plan"


def test_an_evaded_model_is_compared_with_its_own_accuracy(make_records: MakeRecords) -> None:
    plan = attack_plan(
        Setting(dataset="wine"), "dice", [0.05], awp=None, poison=False, adaptive=True, splits=2, inits=1
    )
    records = [
        replace(r, measured=[{"accuracy": 0.6 + 0.1 * r.split}])
        for r in make_records(plan, lambda _, split, __: 90.0 + split)
    ]
    _, attacked = summarise(plan, records).cells
    assert attacked.drops == pytest.approx({(0, 0): 30.0, (1, 0): 21.0})


def test_a_certificate_is_no_attack_and_has_no_drop(make_records: MakeRecords) -> None:
    plan = certificate_plan(Setting(dataset="wine"), [certifying("features", 10)], awp=None, splits=2, inits=1)
    records = [replace(r, measured=[{"accuracy": 0.6}]) for r in make_records(plan)]
    report = summarise(plan, records)
    assert [c.mean for c in report.cells][1] == pytest.approx(60.0)
    assert [c.drops for c in report.cells] == [{}, {}]
    assert [cell.attack for cell in plan.cells] == [None, None]
