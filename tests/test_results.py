"""The committed records say what the documents say of them, and the committed report is made of them."""

from pathlib import Path

import pytest

from wtawp.experiments.claims import check
from wtawp.experiments.paper import plans
from wtawp.experiments.plan import Plan
from wtawp.experiments.report import markdown
from wtawp.experiments.store import load_lines
from wtawp.experiments.summary import PlanReport, summarise

RESULTS = Path(__file__).parents[1] / "results"
OFF = {("GAT", "citeseer"), ("PPNP", "citeseer")}  # explained in docs/deviations.md
READY = [p for p in plans().values() if isinstance(p, Plan)]
HOLD = {
    "claim:second-layer": "does not hold",
    "claim:left-out-layer": "does not hold",
    "claim:exact-gradient": "does not hold",
    "claim:adaptive-radius": "holds",
    "claim:vanishing-gradient": "does not hold",
}


@pytest.fixture(scope="module")
def reports() -> dict[str, PlanReport]:
    records = list(load_lines(RESULTS / "records.jsonl.gz"))
    assert len({(r.key, r.device) for r in records}) == len(records)
    assert {r.status for r in records} == {"done"}
    return {plan.name: summarise(plan, records) for plan in READY}


def test_every_plan_is_complete(reports: dict[str, PlanReport]) -> None:
    assert {name: r.count("incomplete") for name, r in reports.items()} == dict.fromkeys(reports, 0)
    assert len(reports["tab:natacc"].records) == 3600


def test_every_judged_cell_agrees_but_the_two_that_are_explained(reports: dict[str, PlanReport]) -> None:
    differ = {
        (name, c.cell.row, c.cell.column) for name, r in reports.items() for c in r.cells if c.verdict == "differs"
    }
    assert differ == {("tab:natacc", *place) for place in OFF}
    explained = {(c.cell.row, c.cell.column): c.verdict for c in reports["deviation:selection"].cells}
    assert {explained[place] for place in OFF} == {"agrees"}


def test_every_pair_of_the_clean_table_gains(reports: dict[str, PlanReport]) -> None:
    gains = {(p.before, p.column): p.gain for p in reports["tab:natacc"].pairs}
    assert len(gains) == 9
    for place, gain in gains.items():
        assert gain is not None
        assert gain.num_pairs == 20
        assert gain.mean > 0
        assert (gain.low > 0) == (place != ("PPNP", "polblogs"))


def test_the_claims_stand_as_documented(reports: dict[str, PlanReport]) -> None:
    found = {name: check(r.plan.claims[0], r).verdict for name, r in reports.items() if r.plan.claims}
    assert found == HOLD


def test_the_committed_report_is_made_from_the_committed_records(reports: dict[str, PlanReport]) -> None:
    text = markdown(list(reports.values()), figures="figures")
    assert text == (RESULTS / "README.md").read_text(encoding="utf-8")
    drawn = [line.split("](")[1].rstrip(")") for line in text.splitlines() if line.startswith("![")]
    assert len(drawn) == 15
    assert all((RESULTS / name).read_text(encoding="utf-8").startswith("<svg") for name in drawn)
