import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from wtawp.experiments.results.statistics import holm
from wtawp.experiments.results.summary import summarise
from wtawp.experiments.spec import Cell, Plan, Record, Setting, SplitRule

MakeRecords = Callable[..., list[Record]]


def shifted(cell: Cell, split: int, init: int) -> float:
    """Off by 0.5 on Cora and by -0.6 on karate, in every row; the spread adds up to 0."""
    offset = 0.5 if cell.column == "cora" else -0.6
    assert cell.printed is not None
    return cell.printed[0] + offset + (split - 1.5) * 0.2 + (init - 0.5) * 0.1


def test_cells_stand_beside_the_paper_s_with_a_verdict(small_plan: Plan, make_records: MakeRecords) -> None:
    report = summarise(small_plan, make_records(small_plan, shifted))
    assert [c.mean for c in report.cells] == pytest.approx([84.5, 85.5, 69.4, 69.6])
    assert [c.difference for c in report.cells] == pytest.approx([0.5, 0.5, -0.6, -0.6])
    assert [c.verdict for c in report.cells] == ["agrees", "agrees", "differs", "differs"]
    assert [report.count(v) for v in ("agrees", "differs", "reported", "incomplete")] == [2, 2, 0, 0]
    # Split means are 0.2 apart; the paper's deviation of 0.5 is over runs of 20 splits.
    error = np.hypot(stats.sem([-0.3, -0.1, 0.1, 0.3]), 0.5 / 20**0.5)
    assert [c.z for c in report.cells] == pytest.approx([0.5 / error, 0.5 / error, -0.6 / error, -0.6 / error])
    assert [p.printed_gain for p in report.pairs] == pytest.approx([1.0, 0.2])
    every = [shifted(small_plan.cells[0], split, init) for split in range(4) for init in range(2)]
    assert report.cells[0].std == pytest.approx(np.std(every, ddof=1))
    assert (report.num_runs, len(report.records), report.failed) == (32, 32, ())


def test_what_is_not_judged_or_not_printed_is_only_reported(small_plan: Plan, make_records: MakeRecords) -> None:
    first, second, *others = small_plan.cells
    plan = replace(small_plan, cells=(replace(first, judged=False), replace(second, printed=None), *others))
    report = summarise(plan, make_records(plan, lambda *_: 84.0))
    assert [c.verdict for c in report.cells] == ["reported", "reported", "differs", "differs"]
    assert report.cells[1].difference is None
    assert report.cells[0].z is report.cells[1].z is None
    assert report.pairs[0].printed_gain is None


def test_missing_and_failed_runs_make_a_cell_incomplete(small_plan: Plan, make_records: MakeRecords) -> None:
    records = make_records(small_plan)
    records[0] = replace(records[0], status="failed", accuracy=None, loss=None, error="Traceback\nValueError: no")
    del records[-8:]
    report = summarise(small_plan, records)
    assert [c.verdict for c in report.cells] == ["incomplete", "agrees", "agrees", "incomplete"]
    assert [(c.num_finished, c.num_runs, len(c.failed)) for c in report.cells] == [
        (7, 8, 1),
        (8, 8, 0),
        (8, 8, 0),
        (0, 8, 0),
    ]
    assert report.cells[3].mean is None
    pairs = {p.column: p for p in report.pairs}
    assert not pairs["cora"].is_complete
    assert pairs["cora"].gain is not None
    assert pairs["karate"].gain is None
    assert pairs["karate"].runs_p_value is None


def test_without_any_record_there_is_a_report_of_nothing(small_plan: Plan) -> None:
    report = summarise(small_plan, [])
    assert report.device is None
    assert report.count("incomplete") == 4
    assert [p.gain for p in report.pairs] == [None, None]


def test_pairs_are_compared_over_runs_and_honestly_over_splits(small_plan: Plan, make_records: MakeRecords) -> None:
    report = summarise(small_plan, make_records(small_plan))
    before, after = (np.array(list(c.accuracies.values())) for c in report.cells[:2])
    pair = report.pairs[0]
    assert (pair.before, pair.after, pair.column, pair.is_complete) == ("GCN", "WT-AWP", "cora", True)
    assert pair.runs_p_value == pytest.approx(stats.ttest_ind(before, after, equal_var=True).pvalue)
    honest = stats.ttest_rel(after.reshape(4, 2).mean(1), before.reshape(4, 2).mean(1))
    interval = honest.confidence_interval(0.95)
    assert pair.gain is not None
    assert (pair.gain.low, pair.gain.high) == pytest.approx((interval.low, interval.high))
    assert (pair.gain.p_value, pair.gain.num_pairs, pair.gain.won) == (pytest.approx(honest.pvalue), 4, 4)
    assert [p.holm_p_value for p in report.pairs] == holm([p.gain.p_value for p in report.pairs if p.gain])


def test_pairs_of_the_same_trainings_are_corrected_for_once(small_plan: Plan, make_records: MakeRecords) -> None:
    """As where the best trial of a search is the setting without tuning, which has a row of its own."""
    plain, perturbed = (c for c in small_plan.cells if c.column == "cora")
    again = replace(perturbed, row="the same")
    pairs = ((plain.row, perturbed.row), (plain.row, again.row), (again.row, perturbed.row))
    plan = replace(small_plan, cells=(plain, perturbed, again), pairs=pairs)

    def accuracy(cell: Cell, split: int, _: int) -> float:
        return 80.0 + (1.0 + 0.1 * (-1) ** split if cell.row == perturbed.row else 0.0)

    report = summarise(plan, make_records(replace(plan, cells=(plain, perturbed)), accuracy))
    first, second, itself = report.pairs
    assert first.gain is not None
    assert first.holm_p_value == second.holm_p_value == first.gain.p_value
    assert itself.holm_p_value == 1.0
    assert {pair.num_compared for pair in report.pairs} == {1}


def test_row_2_initialisations_are_paired_if_masks_describe_the_only_split(
    small_plan: Plan, make_records: MakeRecords
) -> None:
    masks = SplitRule(kind="masks")
    for rule, pairs in ((masks, 4), (SplitRule(), None)):
        cells = (replace(c, splits=1, inits=4, setting=replace(c.setting, split=rule)) for c in small_plan.cells)
        plan = replace(small_plan, cells=tuple(cells))
        gain = summarise(plan, make_records(plan)).pairs[0].gain
        assert (None if gain is None else gain.num_pairs) == pairs


def test_only_runs_that_both_rows_have_are_paired(small_plan: Plan, make_records: MakeRecords) -> None:
    records = [r for r in make_records(small_plan) if (r.split, r.init, r.setting["awp"]) != (0, 1, None)]
    full, fewer = (summarise(small_plan, rs) for rs in (make_records(small_plan), records))
    gains = [report.cells[1].accuracies[0, 0] - report.cells[0].accuracies[0, 0] for report in (full, fewer)]
    assert gains[0] == gains[1]
    by_hand = [
        np.mean([fewer.cells[1].accuracies[s, i] - fewer.cells[0].accuracies[s, i] for i in range(2 if s else 1)])
        for s in range(4)
    ]
    assert fewer.pairs[0].gain is not None
    assert fewer.pairs[0].gain.mean == pytest.approx(np.mean(by_hand))


def test_one_device_is_looked_at_and_named(small_plan: Plan, make_records: MakeRecords) -> None:
    on = {d: make_records(small_plan, lambda *_, n=n: 80.0 + n, d) for n, d in enumerate(("cpu", "b-gpu", "a-gpu"))}
    report = summarise(small_plan, [*on["cpu"][:20], *on["b-gpu"], *on["a-gpu"]])
    assert (report.device, report.cells[0].mean) == ("a-gpu", pytest.approx(82.0))
    assert report.other_devices == (("b-gpu", 32), ("cpu", 20))
    chosen = summarise(small_plan, [*on["cpu"][:20], *on["b-gpu"]], device="cpu")
    assert (chosen.device, chosen.cells[0].mean, chosen.cells[3].num_finished) == ("cpu", pytest.approx(80.0), 0)


def test_neither_order_nor_records_of_others_matter(small_plan: Plan, make_records: MakeRecords) -> None:
    records = make_records(small_plan)
    other = Plan("other", "Other", (Cell("MLP", "wine", Setting(dataset="wine", model="MLP")),))
    failed = replace(records[3], status="failed", accuracy=None, created="2024-01-01T00:00:00+00:00")
    mixed = [*records, *make_records(other), failed]
    random.Random(0).shuffle(mixed)
    assert summarise(small_plan, mixed) == summarise(small_plan, records)
