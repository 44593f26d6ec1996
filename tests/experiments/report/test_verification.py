from pathlib import Path

import pytest

from wtawp.experiments.report.verification import correct, verify
from wtawp.experiments.results.summary import PlanReport


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


def test_wrong_numbers_are_corrected_in_place_and_nothing_else_changes(
    reports: list[PlanReport], tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    mark = "<!-- = tab:small; GCN; cora; mean -->"
    page.write_bytes(f"\u00e4 **7**{mark}\r\n81.5{mark} 81.62{mark}\r\nnone {mark} 3<!-- = tab:small; GCN -->".encode())
    _, wrong = verify([page], reports)
    left = correct(wrong)
    expected = f"\u00e4 **82**{mark}\r\n81.5{mark} 81.50{mark}\r\nnone {mark} 3<!-- = tab:small; GCN -->"
    assert page.read_bytes().decode() == expected
    assert [mismatch.line for mismatch in left] == [3, 3]
    assert verify([page], reports)[1] == left
