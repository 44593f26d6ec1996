from collections.abc import Callable
from dataclasses import replace

import pytest

from wtawp.experiments.plans.catalogue import plans
from wtawp.experiments.results.claims import CHECKS
from wtawp.experiments.results.main_claims import MAIN_CLAIMS, CheckedClaim, check_claims
from wtawp.experiments.results.summary import PlanReport, summarise
from wtawp.experiments.spec import Cell, Plan, Record

MakeRecords = Callable[..., list[Record]]


def small(name: str) -> Plan:
    """A plan of the paper with three splits of one initialisation."""
    made = plans()[name]
    return replace(made, cells=tuple(replace(cell, splits=3, inits=1) for cell in made.cells))


def report_of(name: str, make_records: MakeRecords, accuracy: Callable[[Cell, int, int], float]) -> PlanReport:
    made = small(name)
    records = make_records(made, accuracy)
    clean = [replace(cell, setting=replace(cell.setting, poison=None), measure=None) for cell in made.cells]
    records += make_records(replace(made, cells=tuple(clean)), accuracy)
    return summarise(made, list({r.key: r for r in records}.values()))


def gaining(gain: float, noise: float = 0.01) -> Callable[[Cell, int, int], float]:
    """So much more with the method in every cell, give or take a little; 80 otherwise."""
    return lambda cell, split, _: 80.0 + split + (cell.setting.awp is not None) * (gain + noise * (split - 1))


def subjects(claims: list[CheckedClaim]) -> dict[str, str]:
    return {claim.subject: claim.outcome.verdict for claim in claims if claim.is_main}


def test_main_claims_name_plans_and_checks_that_exist() -> None:
    for claim in MAIN_CLAIMS:
        assert set(claim.plans) <= set(plans())
        if claim.check:
            assert claim.check in CHECKS
            assert claim.check in {each.check for each in plans()[claim.plans[0]].claims}
    assert len({claim.subject for claim in MAIN_CLAIMS}) == len(MAIN_CLAIMS)


@pytest.mark.parametrize(
    ("gain", "noise", "higher", "significant"),
    [(1.0, 0.01, "holds", "holds"), (1.0, 5.0, "holds", "does not hold"), (-1.0, 0.01, *["does not hold"] * 2)],
)
def test_clean_accuracy_must_be_higher_everywhere_and_beyond_chance(
    make_records: MakeRecords, gain: float, noise: float, higher: str, significant: str
) -> None:
    report = report_of("tab:natacc", make_records, gaining(gain, noise))
    found = subjects(check_claims({"tab:natacc": report}))
    assert found == {"clean accuracy": higher, "clean accuracy, significance": significant}


def test_a_claim_waits_for_its_runs_and_is_left_out_without_records(make_records: MakeRecords) -> None:
    report = report_of("tab:natacc", make_records, gaining(1.0))
    partial = summarise(small("tab:natacc"), report.records[1:])
    assert set(subjects(check_claims({"tab:natacc": partial})).values()) == {"incomplete"}
    assert check_claims({"tab:natacc": summarise(small("tab:natacc"), [])}) == []


def test_a_main_claim_that_a_plan_makes_is_listed_once(make_records: MakeRecords) -> None:
    report = report_of("tab:graphclass", make_records, gaining(1.0))
    claims = check_claims({"tab:graphclass": report})
    assert [(claim.subject, claim.place) for claim in claims] == [
        ("graph classification", "introduction"),
        ("", "tab:graphclass"),  # its other claim, on the variance
    ]


def test_awp_that_fails_must_be_rescued(make_records: MakeRecords) -> None:
    def accuracy(cell: Cell, split: int, _init: int) -> float:
        fails = cell.row == "AWP" and cell.setting.awp is not None and cell.setting.awp.rho >= 1
        return 84.0 + 0.1 * split - (40.0 if fails else 0.0) + (1.0 if cell.row == "lambda=0.5" else 0.0)

    reports = {name: report_of(name, make_records, accuracy) for name in ("tab:natacc", "tab:ablation")}
    assert subjects(check_claims(reports))["vanishing gradients"] == "holds"
    reports["tab:ablation"] = report_of("tab:ablation", make_records, lambda *_: 84.0)
    assert subjects(check_claims(reports))["vanishing gradients"] == "does not hold", "AWP fails nowhere"


@pytest.mark.parametrize(("factor", "verdict"), [(1.05, "holds"), (1.9, "does not hold")])
def test_cost_is_negligible_up_to_a_tenth(make_records: MakeRecords, factor: float, verdict: str) -> None:
    report = report_of("released:natacc", make_records, gaining(1.0))
    slower = [replace(r, seconds=0.5 * (factor if r.setting["awp"] else 1.0)) for r in report.records]
    found = check_claims({"released:natacc": summarise(small("released:natacc"), slower)})
    assert subjects(found) == {"cost": verdict}
    assert f"{factor:.2f} times as many (median of 9 pairs" in found[0].outcome.sentence


@pytest.mark.parametrize(("less", "verdict"), [(2.0, "holds"), (0.0, "does not hold")])
def test_robustness_is_a_smaller_drop_and_not_a_higher_accuracy(
    make_records: MakeRecords, less: float, verdict: str
) -> None:
    def accuracy(cell: Cell, split: int, _init: int) -> float:
        is_attacked, is_perturbed = cell.attack is not None, cell.setting.awp is not None
        kept = (less + 0.01 * split) * is_perturbed if less else 0.01 * (split - 1) * is_perturbed
        return 80.0 + split + (1.0 + 0.01 * split) * is_perturbed - (5.0 - kept) * is_attacked

    names = ("tab:poison", "tab:dicepoison")
    reports = {name: report_of(name, make_records, accuracy) for name in names}
    empty = replace(reports["tab:poison"], cells=(), pairs=())
    # Evasion is measured on the trained model, which made-up records do not have.
    measured = replace(empty, cells=reports["tab:poison"].cells[:1])
    found = subjects(check_claims({**reports, "tab:evasion": measured}))
    assert found["robust accuracy"] == "holds"
    assert found["smaller loss to attacks"] == verdict
