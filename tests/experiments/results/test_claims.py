from collections.abc import Callable
from dataclasses import replace

import pytest

from wtawp.experiments.plans.catalogue import plan, plans
from wtawp.experiments.plans.scale import at_scale
from wtawp.experiments.results import claims
from wtawp.experiments.results.claims import CHECKS, check, vanishing_epoch
from wtawp.experiments.results.summary import summarise
from wtawp.experiments.spec import Cell, Claim, Plan, Record, Setting

MakeRecords = Callable[..., list[Record]]
ROWS = tuple(
    Cell(row, "accuracy", Setting(dataset="karate", lr=0.01 + i / 100), 4, 2, judged=False)
    for i, row in enumerate(("one", "two", "three"))
)


def outcome(make_records: MakeRecords, name: str, means: dict[str, float], noise: float = 0.0) -> claims.ClaimOutcome:
    def accuracy(cell: Cell, split: int, init: int) -> float:
        own = sum(map(ord, cell.row)) % 5 - 2  # the rows do not move together
        return means[cell.row] + noise * own * (-1) ** split + 0.02 * (init - 0.5)

    claim = Claim("...", name)
    made = Plan("claim:made-up", "Made up", ROWS, claims=(claim,))
    return check(claim, summarise(made, make_records(made, accuracy)))


def test_every_claim_of_the_paper_has_its_check() -> None:
    asked = {claim.check for p in plans().values() for claim in p.claims}
    assert asked == set(CHECKS)


@pytest.mark.parametrize(
    ("name", "third", "verdict"),
    [
        ("rows_agree_within_3", 82.0, "holds"),
        ("rows_agree_within_3", 81.9, "does not hold"),
        ("rows_agree_within_half", 84.5, "holds"),
        ("rows_agree_within_half", 84.4, "does not hold"),
    ],
)
def test_rows_agree_up_to_the_limit(make_records: MakeRecords, name: str, third: float, verdict: str) -> None:
    found = outcome(make_records, name, {"one": 85.0, "two": 84.8, "three": third})
    assert found.verdict == verdict
    assert f"one 85.00, two 84.80, three {third:.2f}, {85 - third:.2f} points apart" in found.sentence


def test_a_better_row_beats_the_first_only_by_more_than_chance(make_records: MakeRecords) -> None:
    means = {"one": 85.0, "two": 84.0, "three": 85.5}
    sure = outcome(make_records, "first_row_is_not_beaten", means, noise=0.01)
    assert sure.verdict == "does not hold"
    assert "three (accuracy): +0.50 points" in sure.sentence
    by_chance = outcome(make_records, "first_row_is_not_beaten", means, noise=1.0)
    assert by_chance.verdict == "holds"
    worse = outcome(make_records, "first_row_is_not_beaten", {**means, "three": 84.5}, noise=0.01)
    assert worse.verdict == "holds"
    assert "three (accuracy): -0.50 points" in worse.sentence


@pytest.mark.parametrize(
    ("gain", "noise", "verdict"), [(1.0, 0.1, "holds"), (-1.0, 0.1, "does not hold"), (1.0, 3.0, "does not hold")]
)
def test_every_pair_must_gain_by_more_than_chance(
    make_records: MakeRecords, gain: float, noise: float, verdict: str
) -> None:
    made = plan("tab:graphclass")

    def accuracy(cell: Cell, split: int, init: int) -> float:
        return 70 + init + (cell.setting.awp is not None) * (gain + noise * (-1) ** split)

    found = claims.every_pair_gains(summarise(made, make_records(made, accuracy)))
    assert found.verdict == verdict
    assert f"proteins {gain:+.2f} (95 % interval" in found.sentence


@pytest.mark.parametrize(("width", "verdict"), [(0.5, "holds"), (1.0, "does not hold"), (1.5, "does not hold")])
def test_every_pair_must_spread_less(make_records: MakeRecords, width: float, verdict: str) -> None:
    made = plan("tab:graphclass")

    def accuracy(cell: Cell, split: int, init: int) -> float:
        return 70 + split + (1 + 0.01 * split) * (1 if cell.setting.awp is None else width) * init

    found = claims.every_pair_varies_less(summarise(made, make_records(made, accuracy)))
    assert found.verdict == verdict
    once = summarise(at_scale(made, "smoke"), make_records(at_scale(made, "smoke"), accuracy))
    assert claims.every_pair_varies_less(once).verdict == "incomplete"


def test_a_claim_waits_for_all_its_runs(make_records: MakeRecords) -> None:
    made = at_scale(plan("claim:exact-gradient"), "quick")
    report = summarise(made, make_records(made)[1:])
    found = check(made.claims[0], report)
    assert (found.verdict, found.sentence) == ("incomplete", "1 of 40 runs are missing.")


def with_curves(records: list[Record], curve: Callable[[Record], list[float]]) -> list[Record]:
    return [replace(r, history={"perturbed_norm": curve(r)}) for r in records]


def test_the_epoch_at_which_the_gradient_vanishes_stands_beside_the_paper_s(make_records: MakeRecords) -> None:
    made = plan("claim:vanishing-gradient")
    records = make_records(made)
    falls_at = {"cora": 21, "citeseer": 18, "polblogs": 77}

    def curve(record: Record) -> list[float]:
        at = falls_at[record.setting["dataset"]]
        odd = 1e3 if record.split == 0 else 1.0  # one run that never vanishes does not move the median
        return [odd] * at + [odd if record.split == 0 else 1e-4] * (200 - at)

    found = check(made.claims[0], summarise(made, with_curves(records, curve)))
    assert found.verdict == "holds"
    assert "cora from epoch 21 (paper: about 20), citeseer from epoch 18 (paper: about 20)" in found.sentence
    assert "polblogs from epoch 77 (paper: about 80)" in found.sentence
    falls_at["polblogs"] = 200
    found = check(made.claims[0], summarise(made, with_curves(records, curve)))
    assert found.verdict == "does not hold"
    assert "polblogs never (paper: about 80)" in found.sentence
    without = [replace(r, history=None) for r in records]
    assert check(made.claims[0], summarise(made, without)).verdict == "incomplete"


def test_a_gradient_that_comes_back_has_not_vanished() -> None:
    assert vanishing_epoch([1.0] * 5 + [0.0] * 5 + [1.0]) is None
    assert vanishing_epoch([1.0] * 5 + [0.0] * 10) == 5
    assert vanishing_epoch([1.0] * 5 + [0.0] * 9) is None  # not for long enough to be sure
    assert vanishing_epoch([1.0] * 5 + [float("nan")]) is None
    assert vanishing_epoch([0.0] * 10) is None
