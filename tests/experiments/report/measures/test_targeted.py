from collections.abc import Callable

from wtawp.experiments.plans.robustness import attack_plan
from wtawp.experiments.report.measures.targeted import targeted_table
from wtawp.experiments.results.summary import summarise
from wtawp.experiments.spec import Record, Setting


def test_the_table_counts_misled_targets_their_flips_and_those_without(make_record: Callable[..., Record]) -> None:
    plan = attack_plan(
        Setting(dataset="karate"), "nettack", [None, 3], awp=None, poison=False, adaptive=True, splits=2, inits=1
    )
    assert targeted_table(summarise(plan, [])) == []
    records = []
    for run in plan.runs():
        attacked = [
            {"node": 1, "is_right": False, "flips": "", "added": 3, "removed": 1},
            {"node": 2, "is_right": run.split == 0, "flips": "", "added": 2, "removed": 0},
            {"node": 3, "is_right": True, "no_flip": "no flip is allowed"},
            {"node": 4, "is_right": True, "error": "the gradient is zero"},
        ]
        measured = [{"accuracy": 0.5, "targets": attacked}] * 2
        records.append(make_record(key=run.key, setting=run.setting.content, split=run.split, measured=measured))
    report = summarise(plan, records)
    (table,) = targeted_table(report)
    rows = [[entry.text for entry in row] for row in table.rows]
    assert rows == [
        ["GCN", "targets, degree + 2 flips each", "3 of 6", "50.0", "3.0", "2", "2"],
        ["GCN", "targets, 3 flips each", "3 of 6", "50.0", "3.0", "2", "2"],
    ]
    assert all(cell.drops == {} for cell in report.cells)  # the test accuracy is of other nodes
