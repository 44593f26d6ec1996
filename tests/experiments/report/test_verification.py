from collections.abc import Callable
from pathlib import Path

import pytest

from wtawp.experiments.report.verification import Quantities, verify
from wtawp.experiments.results.summary import PlanReport, summarise
from wtawp.experiments.spec import Cell, Plan, Record


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
