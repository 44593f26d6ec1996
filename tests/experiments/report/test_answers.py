from collections.abc import Callable
from dataclasses import replace

import pytest

from wtawp.experiments.plans.catalogue import plan
from wtawp.experiments.report.answers import answers, is_own
from wtawp.experiments.results.summary import summarise
from wtawp.experiments.spec import Cell, Plan, Record, SplitRule

MakeRecords = Callable[..., list[Record]]


@pytest.fixture
def own_plan(small_plan: Plan) -> Plan:
    cells = tuple(replace(c, printed=None) for c in small_plan.cells if c.column == "cora")
    return replace(small_plan, name="comparison", cells=cells)


def records_of(plan: Plan, make_records: MakeRecords, gain: float, train: float, epoch: int = 50) -> list[Record]:
    """Every split gains `gain` give or take 0.1; the perturbed model has a training accuracy of its own."""

    def accuracy(cell: Cell, split: int, _: int) -> float:
        return 80.0 + split + ((gain + 0.1 * (-1) ** split) if cell.setting.awp else 0.0)

    records = []
    for r in make_records(plan, accuracy):
        assert r.accuracy is not None
        perturbed = r.setting["awp"] is not None
        fits = {**r.accuracy, "train": train if perturbed else 1.0}
        seconds = (3.0 if perturbed else 1.0) + 10.0 * (r.split == 0)  # the first starts up
        records.append(replace(r, accuracy=fits, epoch=epoch, seconds=seconds))
    return records


def test_a_gain_is_said_with_its_size_certainty_cost_and_fit(own_plan: Plan, make_records: MakeRecords) -> None:
    (answer,) = answers(summarise(own_plan, records_of(own_plan, make_records, 2.0, 0.97)))
    # Differences 2.1, 1.9, 2.1, 1.9: deviation 0.11547, t(0.975, 3) = 3.182, so the interval is 2 +- 0.184.
    assert answer.startswith(
        "WT-AWP (cora) helps: +2.00 points of test accuracy (95 % interval +1.82 to +2.18 over 4 splits, "
        "Holm-corrected p = "
    )
    assert "A training takes 3.0 times as long (3 s instead of 1 s, the fastest of each)." in answer
    assert answer.endswith("It does not underfit (training accuracy 97.0 % with it, 100.0 % without).")


def test_a_loss_with_a_worse_fit_is_called_underfitting(own_plan: Plan, make_records: MakeRecords) -> None:
    (answer,) = answers(summarise(own_plan, records_of(own_plan, make_records, -5.0, 0.8, epoch=195)))
    assert "WT-AWP (cora) hurts: -5.00 points" in answer
    assert "It underfits (training accuracy 80.0 % with it, 100.0 % without): try a smaller rho" in answer
    assert answer.endswith(
        "In 8 of 8 trainings the selected epoch is one of the last: train it for more than 200 epochs before you judge."
    )


def test_a_gain_that_correction_makes_unclear_is_said_so(own_plan: Plan, make_records: MakeRecords) -> None:
    """Its interval is not corrected and excludes 0, so that it cannot be called no difference."""
    plain, perturbed = own_plan.cells
    awp = perturbed.setting.awp
    assert awp is not None
    others = [
        replace(perturbed, row=f"lam {lam}", setting=replace(perturbed.setting, awp=replace(awp, lam=lam)))
        for lam in (0.1, 0.2)
    ]
    plan = replace(own_plan, cells=(plain, perturbed, *others),
                   pairs=tuple((plain.row, each.row) for each in (perturbed, *others)))  # fmt: skip

    def accuracy(cell: Cell, split: int, _: int) -> float:
        return 80.0 + ((1.0 + 0.65 * (-1) ** split) if cell.row == perturbed.row else 0.0)

    answer = answers(summarise(plan, make_records(plan, accuracy)))[0]
    # Differences 1.65, 0.35, 1.65, 0.35: the standard error is 0.3753, p is 0.076.
    assert "makes no difference that can be told from chance: +1.00 points" in answer

    def nearly(cell: Cell, split: int, _: int) -> float:
        return 80.0 + ((1.0 + 0.5 * (-1) ** split) if cell.row == perturbed.row else 0.0)

    answer = answers(summarise(plan, make_records(plan, nearly)))[0]
    # The standard error is 0.28868, t is 3.464, p is 0.0405 and three times that after correction.
    assert answer.startswith(
        "WT-AWP (cora) helps if this pair is judged alone, but not clearly after correction for the 3 pairs that are "
        "compared: +1.00 points of test accuracy (95 % interval +0.08 to +1.92 over 4 splits, Holm-corrected p = 0.12)"
    )


def test_chance_missing_runs_and_no_spread_are_said(own_plan: Plan, make_records: MakeRecords) -> None:
    (answer,) = answers(summarise(own_plan, records_of(own_plan, make_records, 0.01, 1.0)[:-1]))
    assert "makes no difference that can be told from chance: +0.01 points" in answer
    assert "Runs are missing, so this may change." in answer
    equal = make_records(own_plan, lambda cell, *_: 81.0 if cell.setting.awp else 80.0)
    (answer,) = answers(summarise(own_plan, equal))
    assert "+1.00 points of test accuracy in every one of 4 splits, so chance cannot be estimated." in answer
    assert "helps" not in answer
    (answer,) = answers(summarise(own_plan, []))
    assert answer == (
        "WT-AWP (cora): no answer yet, as a comparison needs two splits that are finished with and without it."
    )


def test_where_masks_describe_one_split_initialisations_are_counted(own_plan: Plan, make_records: MakeRecords) -> None:
    cells = tuple(
        replace(c, splits=1, inits=3, setting=replace(c.setting, split=SplitRule(kind="masks"))) for c in own_plan.cells
    )
    plan = replace(own_plan, cells=cells)

    def answer(gain: Callable[[int], float]) -> str:
        records = make_records(plan, lambda cell, _, init: 80.0 + (gain(init) if cell.setting.awp else 0.0))
        (sentences,) = answers(summarise(plan, records))
        return sentences

    assert "over 3 initialisations, Holm-corrected p = " in answer(lambda init: 1.0 + 0.1 * init)
    assert "+1.00 points of test accuracy in every one of 3 initialisations, so chance" in answer(lambda _: 1.0)
    assert answers(summarise(plan, [])) == [
        "WT-AWP (cora): no answer yet, as a comparison needs two initialisations that are finished with and without it."
    ]


def test_under_attack_the_answer_names_the_drop(poisoned_plan: Plan, poisoned_records: list[Record]) -> None:
    _, attacked = answers(summarise(poisoned_plan, poisoned_records))
    assert attacked.endswith(
        "The attack takes neither clearly more nor less than without it (9.00 points of the clean accuracy instead of "
        "10.00); on the clean graph the gain is +2.00."
    )


def test_only_plans_that_are_not_the_paper_s_are_the_user_s(own_plan: Plan) -> None:
    assert is_own(summarise(own_plan, []))
    assert not is_own(summarise(plan("tab:natacc"), []))


def test_a_comparison_of_two_attacks_gets_no_answer(make_records: MakeRecords) -> None:
    attacks = plan("extra:attacks").only(rows=["random", "DICE"], columns=["poisoning, cora"])
    assert answers(summarise(attacks, make_records(attacks))) == []
