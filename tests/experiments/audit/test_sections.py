from dataclasses import replace

import pytest

from wtawp.core import AwpConfig
from wtawp.experiments.audit.probing import Abilities, Line
from wtawp.experiments.audit.sections import (
    ACCURACY,
    CERTIFICATE,
    EVASION,
    FLAT,
    POISONING,
    chunk_seconds,
    make_sections,
    total_seconds,
)
from wtawp.experiments.audit.sizes import Sizes
from wtawp.experiments.audit.subject import make_subject
from wtawp.experiments.spec import Setting, SplitRule, chunks

SUBJECT = make_subject(Setting(dataset="wine", epochs=10, split=SplitRule()), AwpConfig(rho=1.0, lam=0.7))
ABILITIES = Abilities(
    num_edges=200, training=Line(1.0, 0.1), evasions={"dice": (Line(0.5), True), "pgd": (Line(1.0, 0.2), False)},
    poisons={"metattack": Line(2.0, 0.3)}, votes={"edges": Line(0.0, 0.01)}, flatness={"sharpness": Line(3.0)},
)  # fmt: skip
SIZES = Sizes(
    splits=4, poisoned_splits=2, budgets=(0.01, 0.1), searched_budgets=(0.001, 0.05), attack_seconds=2.0, votes=100
)


def test_every_ability_is_a_section_and_all_rows_are_paired() -> None:
    sections = make_sections(SUBJECT, SIZES, ABILITIES)
    assert [s.kind for s in sections] == [ACCURACY, FLAT, EVASION, EVASION, CERTIFICATE, POISONING]
    assert len({s.key for s in sections}) == len(sections)
    for section in sections:
        assert section.plan.pairs == SUBJECT.pairs
        assert {cell.row for cell in section.plan.cells} == set(SUBJECT.rows)
        assert {cell.splits for cell in section.plan.cells} == {2 if section.kind == POISONING else 4}


def test_budgets_below_one_edge_are_not_asked_for() -> None:
    columns = {s.key: s.plan.cells for s in make_sections(SUBJECT, SIZES, ABILITIES)}
    assert [c.column for c in columns["attack-dice"][:3]] == ["no attack", "1 %", "10 %"]
    assert [c.column for c in columns["attack-pgd"][:2]] == ["no attack", "5 %"]


def test_an_attack_that_cannot_see_the_model_goes_through_a_plain_gcn_with_the_planned_effort() -> None:
    (section,) = [s for s in make_sections(SUBJECT, SIZES, ABILITIES) if s.key == "attack-pgd"]
    options = dict(section.plan.cells[0].setting.measures[0].options)
    assert (options["adaptive"], options["steps"]) == (False, 5)
    assert "plain GCN" in section.tells
    assert "5 of its usual 200 steps" in section.tells


@pytest.mark.parametrize(("seconds", "steps"), [(0.5, 1), (2.0, 5), (11.0, 50), (1000.0, 200)])
def test_an_attack_makes_the_steps_that_fit_its_time_and_no_more_than_usual(seconds: float, steps: int) -> None:
    sections = make_sections(SUBJECT, replace(SIZES, attack_seconds=seconds), ABILITIES)
    (section,) = [s for s in sections if s.key == "attack-pgd"]
    assert dict(section.plan.cells[0].setting.measures[0].options)["steps"] == steps


def test_the_time_is_the_sum_over_all_runs() -> None:
    sections = {s.key: s for s in make_sections(SUBJECT, SIZES, ABILITIES)}
    plain, perturbed = 1.0 + 10 * 0.1, 1.0 + 2 * 10 * 0.1
    trainings = plain + 2 * perturbed
    assert sections["accuracy"].total() == pytest.approx(4 * trainings)
    assert sections["attack-dice"].total() == pytest.approx(4 * 3 * 2 * 0.5)  # splits, rows, budgets
    assert sections["attack-pgd"].total() == pytest.approx(4 * 3 * (1.0 + 5 * 0.2))
    assert sections["certificate-edges"].total() == pytest.approx(4 * 3 * 100 * 0.01)
    assert sections["poisoning-metattack"].total() == pytest.approx(2 * (trainings + 2.0 + 10 * 0.3))  # 5 % of 200
    assert total_seconds(list(sections.values())) == pytest.approx(sum(s.total() for s in sections.values()))


def test_the_chunks_of_a_sweep_have_the_times_of_their_sections() -> None:
    sections = make_sections(SUBJECT, SIZES, ABILITIES)
    runs = tuple({run.key: run for s in sections for run in s.plan.runs()}.values())
    flips = 2 * (2.0 + 10 * 0.3)  # of the surrogates, which are no runs of the plans
    total = sum(chunk_seconds(sections, chunk) for chunk in chunks(runs, together=False))
    assert total == pytest.approx(total_seconds(sections) - flips)


def test_what_has_no_time_is_left_out() -> None:
    least = replace(SIZES, poisoned_splits=0, certified=(), searched_budgets=())
    assert [s.kind for s in make_sections(SUBJECT, least, ABILITIES)] == [ACCURACY, FLAT, EVASION]


def test_given_weights_are_measured_once_and_compared_with_nothing() -> None:
    subject = make_subject(replace(SUBJECT.base, weights="0123"), None)
    sections = make_sections(subject, replace(SIZES, splits=1), replace(ABILITIES, poisons={}))
    assert all(section.plan.pairs == () for section in sections)
    assert {run.setting.weights for section in sections for run in section.plan.runs()} == {"0123"}
