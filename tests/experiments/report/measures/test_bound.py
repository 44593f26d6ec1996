import xml.etree.ElementTree as ET
from collections.abc import Callable

from wtawp.experiments.plans.geometry import bounds_plan
from wtawp.experiments.report.bound_figures import bound_curves, bound_table, has_bounds
from wtawp.experiments.results.summary import summarise
from wtawp.experiments.spec.plan import Run
from wtawp.experiments.spec.record import Record

MakeRecord = Callable[..., Record]


def texts(svg: str) -> str:
    return " ".join("".join(e.itertext()) for e in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"))


def bounded(run: Run) -> list[dict[str, object]]:
    by = 1 + run.split
    terms = {name: [by * x, 0.1 * by * x] for name, x in zip(("loss", "tail", "complexity", "remainder", "total"),
                                                             (1.0, 2.0, 3.0, 4.0, 5.0), strict=True)}  # fmt: skip
    return [{"rhos": [0.1, 1.0], "train_loss": 0.1, "all_loss": 0.3, **terms}]


def test_bounds_are_told_where_they_are_least_and_drawn(make_record: MakeRecord) -> None:
    plan = bounds_plan({"cora": (0.7, 1.0)}, {})
    report = summarise(plan, [
        make_record(key=run.key, setting=run.setting.content, split=run.split, init=run.init, measured=bounded(run))
        for run in plan.runs()
    ])  # fmt: skip
    assert has_bounds(report)
    first, second = bound_table(report).rows
    told = [entry.text for entry in first]  # means over five splits: 3 times the first
    assert told == ["cora", "GCN", "1", "0.3", "0.6", "0.9", "1.2", "1.5", "1.4", "+0.2000", "4 of 5"]
    assert second[1].text == "GCN+WT-AWP"
    drawn = texts(bound_curves(report))
    for word in (
        "GCN, bound",
        "GCN+WT-AWP, on all",
        "GCN, in training",
        "above: vacuous",
        "rho, relative to each layer",
        "cora",
    ):
        assert word in drawn
    nothing = summarise(report.plan, [])
    assert not has_bounds(nothing)
    assert bound_curves(nothing) == ""
